r"""ADMM sharing without protection, for comparison: exact block steps, without noise or with the noise as published.

The problem is that of :class:`~dperm.solvers.vertical.score_sharing.AdmmSharing`, but each party minimises over its own
block exactly (Hu, Liu, Niu and others, KDD 2019, Algorithm 1; Boyd et al. 2011, section 7.3). **No guarantee**: without
noise nothing is private, and the published noise is singular (``exact_admm.proof.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import Charges
from dperm.errors import InvalidInput
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms.lattice import floor_noise
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries.sharing import (
    DUAL,
    SCORES,
    BlockMinimiser,
    InverseRoot,
    PartialPredictions,
    SharedSlopes,
    Stationarity,
)
from dperm.solvers.option_checks import require_positive
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.residual_exchange import WEIGHTS, ResidualExchangeCoordinator, ResidualExchangeParty
from dperm.solvers.vertical.task import VerticalResult, VerticalTask, check_round_count
from dperm.types import FloatArray, IntArray

__all__ = ["ExactSharing", "printed_round_epsilon", "printed_sensitivity"]

#: evaluates a query inside the trusted domain
Inside = Callable[[Any], FloatArray]

_NO_NOISE = 1e-6  # noise multiplier that represents "no noise" in plans: its epsilon is astronomically large
_FINE = 2.0**20  # grid of the standard normal draws


def printed_sensitivity(
    n_columns: int, n_parties: int, rho: float, strength: float, bound: float, slope: float
) -> float:
    """Sensitivity as published in Lemma 1 of the paper: 3/(d_m rho) (strength slope + (1 + M rho) bound)."""
    return 3.0 / (n_columns * rho) * (strength * slope + (1.0 + n_parties * rho) * bound)


def printed_round_epsilon(epsilon: float, delta: float, n_rounds: int) -> float:
    """Epsilon of one round as published in Corollary 1 of the paper: sqrt(2T ln(1/delta')) e + T e (exp(e) - 1).

    >>> round(printed_round_epsilon(1.0, 1e-5, 40), 4)
    0.0316
    """
    root = math.sqrt(2.0 * n_rounds * math.log(1.0 / delta))
    return float(brentq(lambda e: root * e + n_rounds * e * math.expm1(e) - epsilon, 0.0, epsilon / root, xtol=1e-15))


def minimiser_group(party: str) -> str:
    """Name of a party's unprotected minimisers in plans and ledgers."""
    return f"{BlockMinimiser.name} of {party}"


@dataclass(frozen=True)
class ExactSharing(VerticalTask):
    r"""Exact parallel ADMM sharing; no guarantee.

    Party m takes :math:`x_m = \arg\min r^\top D_m u + \tfrac{\rho(1 + \text{damping})}{2} \|D_m (u - x_m)\|^2 + n\,
    \text{penalty}(u)`, r = rho (s - z) + dual. Damping 0 is the step as published, which may diverge if the columns of
    different parties are strongly correlated; M - 1, the default, is the averaged form, which converges for convex
    losses. Proof that there is no guarantee: ``exact_admm.proof.md``.

    Parameters
    ----------
    n_rounds : int
        Number of rounds.
    rho : float
        Public penalty of the constraint.
    damping : float, optional
        Extra curvature of a party's step, relative to rho.
    calibration : {"none", "paper"}
        ``"paper"`` adds noise of covariance sigma^2 (D_m' D_m)^-1 to every minimiser, with sigma as published for the
        budget and the assumed bound ``printed_bound`` on all variables.
    printed_bound : float
        The paper's assumed bound on all variables.
    box : float
        Public bound on a weight.
    """

    n_rounds: int = 60
    rho: float = 0.1
    damping: float | None = None
    calibration: str = "none"
    printed_bound: float = 1.0
    box: float = 1024.0

    name: ClassVar[str] = "exact-admm-sharing"
    #: whether the Lyapunov quantity of the method is computed
    has_lyapunov: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_round_count(self, "n_rounds")
        require_positive(self, "rho", "box", "printed_bound")
        if self.damping is not None and not self.damping >= 0.0:
            raise InvalidInput(f"damping must be 0 or more, not {self.damping!r}.")
        if self.calibration not in ("none", "paper"):
            raise InvalidInput(f"calibration must be 'none' or 'paper', not {self.calibration!r}.")

    @property
    def no_guarantee(self) -> str | None:
        if self.calibration == "none":
            return "the method runs without noise"
        return (
            "the published noise has the covariance sigma^2 D (D'D)^-1 D', which is singular and depends on the data: "
            "one message distinguishes neighbouring data sets with certainty at any sigma"
        )

    def plan(self) -> Plan:
        return Plan(
            tuple(PlannedRelease(minimiser_group(m), "gaussian", self.n_rounds, self.n_rounds) for m in self.parties)
        )

    @property
    def calibrated(self) -> CalibratedPlan:
        """The plan without noise, or with the noise multiplier as published."""
        return CalibratedPlan(self.plan(), _NO_NOISE if self.calibration == "none" else self._multiple, self.budget)

    @property
    def _multiple(self) -> float:
        epsilon = printed_round_epsilon(self.budget.epsilon, self.budget.delta / 2.0, self.n_rounds)
        delta = self.budget.delta / (2.0 * self.n_rounds)
        return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon

    def printed_deviation(self, party: str) -> float:
        """Standard deviation as published for a party's partial scores."""
        strength = self.n * self.objective.penalty.strength
        numbers = (self.parties[party].d, len(self.parties), self.rho, strength, self.printed_bound, 1.0)
        return self._multiple * printed_sensitivity(*numbers)

    def dual_penalty(self) -> float | None:
        """rho of the dual step, or None for methods without one."""
        return self.rho

    def residual(self, slopes: FloatArray, dual: FloatArray, round_: int) -> FloatArray:
        """Return the residuals that multiply the rows in a round."""
        return 2.0 * slopes - dual

    def block(self, party: str, weights: FloatArray, inside: Inside, round_: int) -> FloatArray:
        """Return a party's next weights, from queries evaluated inside the trusted domain."""
        damping = len(self.parties) - 1 if self.damping is None else self.damping
        curvature = self.rho * (1.0 + damping)
        return inside(BlockMinimiser(weights, curvature, self.penalty, self.unpenalised(party)))

    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> ExactCoordinator:
        return ExactCoordinator(self, self.check_target(target), charges, source)

    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> ExactParty:
        self.check_party(name, design)
        return ExactParty(self, name, design, charges, source)


class ExactParty(ResidualExchangeParty):
    """Program of a party in exact ADMM sharing."""

    def __init__(
        self, task: ExactSharing, name: str, design: DesignMatrix, charges: Charges, source: RandomSource
    ) -> None:
        super().__init__(task, name, design, charges, source)
        self._root: FloatArray | None = None

    def _noise(self) -> FloatArray:
        if self._root is None:
            self._root = self._inside(InverseRoot())
        drawn = floor_noise(len(self._weights), _FINE, self._source) / _FINE
        noise: FloatArray = self.task.printed_deviation(self.name) * (self._root @ drawn)
        return noise

    def answer(self, request: Message) -> Message:
        """Minimise over the party's own block; the reply has the block and its partial scores."""
        task = self.task
        self._receive(request)
        stationarity = np.zeros(1)
        if task.has_lyapunov:
            stationarity = self._inside(Stationarity(self._weights, task.penalty, task.unpenalised(self.name)))
        weights = task.block(self.name, self._weights, self._inside, self._round)
        if task.calibration == "paper":
            weights = weights + self._noise()
        self._weights = np.clip(weights, -task.box, task.box)
        charge_round(task, self._charges)
        self._end_round()
        steps = np.rint(self._inside(PartialPredictions(self._weights)) / task.score_spacing(task.box))
        arrays = {"scores": steps.astype(np.int64), WEIGHTS: self._weights.copy(), "stationarity": stationarity}
        return Message("scores", arrays, {}, frozenset({"scores"}))


def charge_round(task: ExactSharing, charges: Charges) -> None:
    """Charge every party's unprotected step of one round as a release with almost no noise."""
    calibrated = task.calibrated
    for name in task.parties:
        group = minimiser_group(name)
        charges.charge(group, GaussianNoise(calibrated.noise_multiplier(group)).event(2.0))


class ExactCoordinator(ResidualExchangeCoordinator):
    """Program of the coordinator, who holds the label; it records the Lyapunov quantity of every round."""

    def __init__(self, task: ExactSharing, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        super().__init__(task, target, charges, source)
        self._gap = 0.0
        self.lyapunov: list[float] = []
        #: called with the weights after every round, for figures; this method protects nothing
        self.on_round: Callable[[Mapping[str, FloatArray]], None] | None = None

    def _next_residual(self) -> FloatArray:
        domain = self.task.domain
        self._received.put(SCORES, self._scores)
        self._received.put(DUAL, self._dual)
        query = SharedSlopes(self.task.objective.loss, self.task.dual_penalty())
        dual = self._holder.share(query, domain).reveal_inside(domain)
        residual: FloatArray = self.task.residual(dual, self._dual, self.round)
        self._gap = float(np.sum((dual - self._dual) ** 2)) / self.task.rho**2  # ||scores - z||^2
        self._dual = dual
        return residual

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the parties' blocks, stationarities and the total of partial scores."""
        scores = self._total(totals)
        self._take(replies, stationarity=("float64", (1,)))
        self._scores = scores
        blocks = sum(float(reply.arrays["stationarity"][0]) for reply in replies.values())
        self.lyapunov.append(blocks + (1.0 + self.task.rho**2) * self._gap)
        charge_round(self.task, self._charges)
        if self.on_round is not None:
            self.on_round(self._weights)

    def _more_state(self) -> dict[str, Any]:
        return {"lyapunov": np.array(self.lyapunov, np.float64), "gap": np.array([self._gap])}

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        super().restore(state)
        self.lyapunov, self._gap = state.arrays["lyapunov"].tolist(), float(state.arrays["gap"][0])

    def result(self) -> VerticalResult:
        """Return the blocks, which are not protected, and the Lyapunov quantities."""
        diagnostics = {"lyapunov": np.array(self.lyapunov)} if self.task.has_lyapunov else {}
        return replace(super().result(), held=True, diagnostics=diagnostics)

"""Distributed Frank-Wolfe exactly as published, for comparison: it has no guarantee.

Algorithm 2 of Lou & Cheung (AAAI 2018): in every step each party chooses one of its own signed columns by Laplace noise
on their partial gradients, and sends the choice with a noisy random projection of the column. The server adds up the
parties' atoms, each of norm radius, and keeps a projection q of the mean prediction, from which all residuals come.
Where the paper contradicts itself the reading is: the inner product of column and q is taken between projections; q
has the factor radius, which (15) leaves out, and the target the factor 1/n, which (13) leaves out; the atom moves
against the gradient, so its sign is turned once; the choice is among 2 tau signed columns, each with its own noise.
What the printed noise is certified to cost, and why the printed epsilon is wrong: ``frank_wolfe.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import Charges
from dperm.errors import InvalidInput, PlanViolation, Unsupported
from dperm.kernels.sketch import normal_steps
from dperm.objective import Squared
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.printed import LaplaceMax
from dperm.privacy.mechanisms.standard import GaussianNoise, Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.queries.sharing import RESIDUAL, SCORES, LocalAtomScores, SharedSlopes
from dperm.queries.transcript import NormalSketch
from dperm.solvers.option_checks import require_whole
from dperm.solvers.theory.distributed_frank_wolfe import printed_feature_deviation, printed_index_scale
from dperm.solvers.vertical.frank_wolfe import DistributedFrankWolfe, FrankWolfeParty, choice_group
from dperm.solvers.vertical.frank_wolfe_path import FrankWolfeCoordinatorBase, FrankWolfePath
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.task import VerticalResult, check_message
from dperm.types import FloatArray, IntArray

__all__ = ["PrintedFrankWolfe"]

# outside these the plan's shares, their inverse squares, lose precision or leave the range of doubles
_LEAST_MULTIPLIER, _LARGEST_MULTIPLIER = 1e-9, 1e12
_NO_NOISE = 1e-6  # noise multiplier that represents "no noise" in plans: its epsilon is astronomically large


def _sketch_group(party: str) -> str:
    return f"{NormalSketch.name} of {party}"


@dataclass(frozen=True)
class PrintedFrankWolfe(DistributedFrankWolfe):
    """Distributed Frank-Wolfe as published; no guarantee.

    The report's planned accounting has the epsilon that can be certified for the printed noise, against everyone who
    sees what the parties send. It does not cover the labels, which the published parties know.

    Parameters
    ----------
    calibration : {"paper", "none"}
        Noise as published for the budget, or none.
    n_sketch : int
        Rows m of the projection.
    sketch_seed : str
        Public seed of its normal entries.
    """

    calibration: str = "paper"
    n_sketch: int = 256
    sketch_seed: str = "dperm sketch"

    name: ClassVar[str] = "printed-frank-wolfe"
    public_arrays: ClassVar[frozenset[str]] = frozenset({"place", "sketch"})
    common_draws: ClassVar[bool] = False  # each party adds its own noise
    certifies_transcript: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, "n_sketch")
        if self.calibration not in ("paper", "none"):
            raise InvalidInput(f"calibration must be 'paper' or 'none', not {self.calibration!r}.")
        if not isinstance(self.objective.loss, Squared):
            raise Unsupported("task 'printed-frank-wolfe' takes the squared loss only: leave the published LASSO.")
        if self.product:
            raise Unsupported("task 'printed-frank-wolfe' adds up the parties' atoms: leave product out.")
        if self.neighbours is not Neighbours.REPLACE_ONE:
            raise Unsupported("task 'printed-frank-wolfe' is published for neighbours='replace-one' only.")

    @property
    def no_guarantee(self) -> str | None:
        if self.calibration == "none":
            return "the method runs without noise"
        return (
            "the published noise on projected columns is divided by the number of people, although one person moves a "
            "projection by as much in any number, and the choices of all parties are charged as those of one"
        )

    @property
    def not_covered(self) -> tuple[str, ...]:
        return (
            "the parties: residuals reach them without noise and reveal every label; the certified epsilon covers who "
            "sees only what parties send",
        )

    @property
    def n_rounds(self) -> int:
        """Number of exchanges, one per step."""
        return self.n_steps

    def path(self) -> FrankWolfePath:
        return FrankWolfePath(self.radius, self.smallest_probability)

    def groups(self) -> tuple[str, ...]:
        return (*map(choice_group, self.parties), *map(_sketch_group, self.parties))

    # ------------------------------------------------------------------------------------------------ the noise
    @cached_property
    def projection(self) -> FloatArray:
        """J: normal numbers of variance 1/m, public."""
        bits = self._entry_bits
        steps = normal_steps(self.sketch_seed, self.n_sketch, self.n, bits)
        return steps * math.ldexp(1.0 / math.sqrt(self.n_sketch), -bits)

    @property
    def _entry_bits(self) -> int:
        found = {NormalSketch.entry_bits(facts) for facts in self.parties.values()}
        if len(found) > 1:
            raise Unsupported("the parties' numbers of columns differ too much for one projection.")
        return found.pop()

    @cached_property
    def singular_value(self) -> float:
        """sigma(J), its largest singular value."""
        return math.sqrt(float(np.linalg.eigvalsh(self.projection @ self.projection.T)[-1]))

    @cached_property
    def multipliers(self) -> dict[str, float]:
        """Noise multiplier of every group: printed scale over what one person can change."""
        if self.calibration == "none":
            return dict.fromkeys(self.groups(), _NO_NOISE)
        budget, n, steps = self.budget, self.n, self.n_steps
        gradient = self.limit * self.common_bound  # G; residuals are clipped, so no gradient is larger
        scale = n * printed_index_scale(
            n=n,
            n_steps=steps,
            gradient_bound=gradient,
            radius=self.radius,
            epsilon=budget.epsilon,
            delta=budget.delta,
        )
        deviation = printed_feature_deviation(
            n=n,
            n_parties=len(self.parties),
            n_steps=steps,
            singular_value=self.singular_value,
            epsilon=budget.epsilon,
            delta=budget.delta,
        )
        out = {}
        for name, facts in self.parties.items():
            query = LocalAtomScores(self.limit, None, self.common_bound)
            out[choice_group(name)] = scale / query.sensitivity(facts, self.neighbours)
            sketch = NormalSketch(0, self.n_sketch, self.sketch_seed)
            moved = sketch.sensitivity(facts, self.neighbours) / math.sqrt(self.n_sketch)
            out[_sketch_group(name)] = deviation / moved
        if not all(_LEAST_MULTIPLIER <= multiplier <= _LARGEST_MULTIPLIER for multiplier in out.values()):
            raise Unsupported("the published noise for this budget is out of range: choose an epsilon nearer 1.")
        return out

    def plan(self) -> Plan:
        # at scale 1 a group's multiplier is sqrt(count / share)
        made = {group: self.n_steps / multiplier**2 for group, multiplier in self.multipliers.items()}
        kinds = dict.fromkeys(map(choice_group, self.parties), LaplaceMax.kind)
        return Plan(
            tuple(PlannedRelease(g, kinds.get(g, GaussianNoise.kind), self.n_steps, share) for g, share in made.items())
        )

    @cached_property
    def calibrated(self) -> CalibratedPlan:
        """The plan with the noise as published, or none."""
        return CalibratedPlan(self.plan(), 1.0, self.budget)

    def mechanism(self, group: str) -> Mechanism:
        """Return the mechanism of a group of releases."""
        kind = LaplaceMax if self.calibrated.release(group).kind == LaplaceMax.kind else GaussianNoise
        return kind(self.calibrated.noise_multiplier(group))

    def charge(self, group: str, charges: Charges) -> None:
        """Charge another participant's release, which is about the same people."""
        charges.charge(group, self.mechanism(group).event(2.0))

    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> PrintedCoordinator:  # type: ignore[override]
        return PrintedCoordinator(self, self.check_target(target), charges, source)

    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> PrintedParty:
        self.check_party(name, design)
        return PrintedParty(self, name, design, charges, source)


class PrintedParty(FrankWolfeParty):
    """Program of a party: in every step a noisy choice and the noisy projection of the chosen column."""

    task: PrintedFrankWolfe

    @property
    def _step_number(self) -> int:
        return self._round

    def answer(self, request: Message) -> Message:
        """Choose among the party's own columns, and send the choice with its projection."""
        task = self.task
        if self._round >= task.n_rounds:
            raise PlanViolation("a request came after the last round.")
        check_message(request, "choose", residual=("float64", (task.n,)))
        self._received.put(RESIDUAL, request.arrays["residual"])
        columns, sketch = self._columns(), np.zeros(0)
        for name in task.parties:
            choice, sent = choice_group(name), _sketch_group(name)
            if name == self.name:
                query = LocalAtomScores(task.limit, columns, task.common_bound)
                self._place = self._signed(int(self._holder.release(query, task.mechanism(choice), choice)), columns)
                column = NormalSketch(self._place % self._facts.d, task.n_sketch, task.sketch_seed)
                sketch = self._holder.release(column, task.mechanism(sent), sent) / math.sqrt(task.n_sketch)
            else:
                task.charge(choice, self._charges)
                task.charge(sent, self._charges)
        self._path.move({self._place % self._facts.d: 1 if self._place < self._facts.d else -1})
        self._round += 1
        return Message("chosen", {"place": np.array([self._place]), "sketch": sketch})


class PrintedCoordinator(FrankWolfeCoordinatorBase):
    """Program of the server, who holds the label here and sends residuals in place of q and the labels."""

    task: PrintedFrankWolfe

    def __init__(self, task: PrintedFrankWolfe, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        super().__init__(task, target, charges, source)
        self._shared = np.zeros(task.n_sketch)  # q, the projection of the mean prediction
        self._asked: FloatArray | None = None

    def requests(self) -> Mapping[str, Message]:
        """Return the requests for choices."""
        task = self.task
        if self._asked is None:
            self._received.put(SCORES, task.n * (task.projection.T @ self._shared))
            slopes = self._holder.share(SharedSlopes(task.objective.loss), task.domain).reveal_inside(task.domain)
            self._asked = np.clip(slopes, -task.limit, task.limit)
        message = Message("choose", {"residual": self._asked.copy()}, {"round": self.round})
        return dict.fromkeys(task.parties, message)

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the choices: take the step with all parties' atoms, and update q."""
        task = self.task
        if set(replies) != set(task.parties) or totals or self._asked is None:
            raise InvalidInput("the replies do not belong to this round.")
        gamma = 2.0 / (self.path.probability * self.path.step + 2.0)
        atoms, moved = {}, np.zeros(task.n_sketch)
        for name, reply in replies.items():
            check_message(reply, "chosen", place=("int64", (1,)), sketch=("float64", (task.n_sketch,)))
            place, d = int(reply.arrays["place"][0]), task.parties[name].d
            if not 0 <= place < 2 * d:
                raise InvalidInput(f"party {name!r} chose a column that it does not hold.")
            sign = 1 if place < d else -1
            atoms[task.offsets[name] + place % d] = sign
            moved += sign * reply.arrays["sketch"]
        self.path.move(atoms)
        self._shared = (1.0 - gamma) * self._shared + gamma * task.radius / task.n * moved
        for group in task.groups():
            task.charge(group, self._charges)
        self._asked = None
        self.round += 1

    def _more_state(self) -> dict[str, Any]:
        return {"shared": self._shared.copy()}

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        super().restore(state)
        self._shared, self._asked = state.arrays["shared"].copy(), None

    def result(self) -> VerticalResult:
        """Return the weights, which may lie outside the ball."""
        return replace(super().result(), held=True)

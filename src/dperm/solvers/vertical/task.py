"""Vertical tasks: the public description of a run that all participants agree on.

A task does not depend on data: it names the parties with the public facts of their columns. It determines the plan of
the whole run and its noise, and builds both sides' programs and the report.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import Charges, TrustedDomain
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import power_of_two_above
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, calibrate
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.reporting.report import NOT_COVERED, PrivacyReport, ReleaseLine
from dperm.solvers.option_checks import require_whole
from dperm.solvers.vertical.protocol import CoordinatorProgram, Message, TrainedParty
from dperm.solvers.vertical.views import VIEWS, view_of
from dperm.types import FloatArray

__all__ = ["MOST_ROUNDS", "VerticalResult", "VerticalTask", "check_message", "check_round_count"]


#: limit for all methods, so that a participant never has to compute an endless plan from a received task
MOST_ROUNDS = 1_000_000

_ALIGNMENT = "who the common people are: alignment reveals it to the parties"


@dataclass(frozen=True)
class VerticalResult:
    """Result of a run: the weights of every party's scaled columns, and the report.

    With ``held`` the weights are not protected by noise and must stay with their holders.
    """

    weights: Mapping[str, FloatArray]
    n_rounds: int
    report: PrivacyReport
    held: bool = False
    diagnostics: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True)
class VerticalTask(ABC):
    """Base of all vertical tasks.

    Parameters
    ----------
    objective : Objective
        Mean loss plus a penalty that is a sum over single weights; an intercept is the last column of a party whose
        design has one, and is not penalised.
    parties : mapping of str to Facts
        Public facts of each party's columns, in the order of the model.
    budget : Budget
        Budget of the whole run. Every participant charges all of it to its own ledger.
    neighbours : Neighbours
        The neighbouring relation.
    view : {"model", "transcript"}
        Against whom the guarantee holds: everyone who sees the model or any released step, or everyone who sees every
        message.
    target_low, target_high : float
        Public bounds on the target; 0 and 1 for two classes.
    """

    objective: Objective
    parties: Mapping[str, Facts]
    budget: Budget
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    view: str = "model"
    target_low: float = 0.0
    target_high: float = 1.0

    name: ClassVar[str]
    #: arrays of messages that may leave the trusted domain in the model view, because they were released
    public_arrays: ClassVar[frozenset[str]] = frozenset()
    views: ClassVar[tuple[str, ...]] = ("model",)
    #: whether every draw is labelled by run, round and column, so that with a seed all participants share one stream
    common_draws: ClassVar[bool] = False
    #: without a guarantee: whether the plan's epsilon is still certified, against everyone who sees the public arrays
    certifies_transcript: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        object.__setattr__(self, "parties", dict(self.parties))
        if not self.parties:
            raise InvalidInput("a vertical run needs at least one party with columns.")
        if not all(isinstance(name, str) and name for name in self.parties):
            raise InvalidInput("every party needs a name.")
        if len({facts.n for facts in self.parties.values()}) != 1:
            raise InvalidInput("the parties have different numbers of people: align them first.")
        proved = view_of(self.view).neighbours
        if self.view not in self.views:
            raise Unsupported(f"task {self.name!r} has no {self.view} view.")
        if self.neighbours not in proved:
            names = " or ".join(f"{str(one)!r}" for one in proved)
            raise Unsupported(f"the {self.view} view is proved for neighbours={names} only.")
        if self.objective.loss.n_outputs != 1:
            raise Unsupported("vertical tasks take two classes or one number to predict.")
        if self.objective.constraint is not None or self.objective.unpenalised:
            raise Unsupported("vertical tasks take no constraint and no unpenalised weights: leave both out.")
        penalty = self.penalty
        if not (math.isinf(penalty.low) and math.isinf(penalty.high)):
            raise Unsupported("vertical tasks take penalty none, l1, l2 or elastic-net.")

    # ------------------------------------------------------------------------------------------ public numbers
    @property
    def n(self) -> int:
        """Number of people."""
        return next(iter(self.parties.values())).n

    @property
    def penalty(self) -> SeparablePenalty:
        """The penalty of a single weight."""
        return SeparablePenalty.of(self.objective.penalty)

    @property
    def shared_domain(self) -> TrustedDomain | None:
        """The trusted domain if the view does not cover participants, else None: then nothing can be shared."""
        return None if VIEWS[self.view].covers_participants else self.domain

    @property
    def domain(self) -> TrustedDomain:
        """The participants, who may see per-person values in the model view."""
        return TrustedDomain(f"{self.name} run", ("coordinator", *self.parties))

    def unpenalised(self, party: str) -> tuple[int, ...]:
        """Return the columns of a party that are not penalised."""
        facts = self.parties[party]
        return (facts.d - 1,) if facts.d > facts.n_features else ()

    def score_spacing(self, box: float) -> float:
        """Return the public grid spacing of partial scores for weights within ``box``; their total fits in 52 bits."""
        reach = sum(facts.d * facts.value_bound * box for facts in self.parties.values())
        return math.ldexp(power_of_two_above(reach), -52)

    # ------------------------------------------------------------------------------------------------ the plan
    @abstractmethod
    def plan(self) -> Plan:
        """List every release of the run, by party."""

    @cached_property
    def calibrated(self) -> CalibratedPlan:
        """The plan with the noise that fits the budget."""
        return calibrate(self.plan(), self.budget)

    @cached_property
    def accounting(self) -> Accounting:
        """The accounting of the whole run."""
        return Accounting.of(self.calibrated.event, self.budget.delta)

    @property
    def no_guarantee(self) -> str | None:
        """Why this task has no guarantee, or None."""
        return None

    @abstractmethod
    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> CoordinatorProgram:
        """Return the program of the coordinator, who holds the label."""

    @abstractmethod
    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> TrainedParty:
        """Return a party's program."""

    def source(self, participant: str, insecure_seed: int | str | None = None) -> RandomSource:
        """Return a participant's source of noise.

        With a seed each participant gets its own stream; otherwise two participants would add the same noise.
        """
        made = RandomSource(insecure_seed)
        return made if self.common_draws else made.stream(participant)

    def check_party(self, name: str, design: DesignMatrix) -> None:
        """Refuse a design that does not match the facts that were agreed on."""
        if name not in self.parties:
            raise InvalidInput(f"{name!r} is not a party of this run.")
        if Facts.of_design(design.shape) != self.parties[name]:
            raise InvalidInput(f"the columns of party {name!r} do not match the public facts agreed on for this run.")

    def check_target(self, target: FloatArray) -> FloatArray:
        """Return the target clipped to its public bounds; only its length is checked."""
        values = np.asarray(target, np.float64)
        if values.shape != (self.n,):
            raise InvalidInput(f"the target must have one number for each of {self.n} people.")
        return np.clip(np.nan_to_num(values), self.target_low, self.target_high)

    # ---------------------------------------------------------------------------------------------- the report
    def release_lines(self) -> Iterable[ReleaseLine]:
        """Yield every group of releases with its noise; sizes and sensitivities follow from public numbers."""
        audience = VIEWS[self.view].audience
        for planned in self.calibrated.plan.releases:
            multiplier = planned.noise_multiplier(self.calibrated.scale)
            yield ReleaseLine(planned.query, planned.kind, planned.count, 0, multiplier, None, None, None, audience)

    def public_facts(self) -> dict[str, Any]:
        """Return what is assumed public: the parties, the objective, and every option of the method."""
        common = {f.name for f in fields(VerticalTask)}
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in common}
        return options | {
            "task": self.name,
            "view": self.view,
            "records": self.n,
            "parties": {name: facts.d for name, facts in self.parties.items()},
            "loss": self.objective.loss.name,
            "penalty": self.objective.penalty.name,
            "strength": self.objective.penalty.strength,
        }

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the view leaves uncovered, for the report."""
        return VIEWS[self.view].not_covered

    def report(self, *, secure: bool = True) -> PrivacyReport:
        """Return the report of a run, without the ledger's part, which the owner of the ledger adds."""
        reason = self.no_guarantee if secure else "insecure_seed makes the noise reproducible"
        accounting = self.accounting
        guarantee = None
        if reason is None:
            guarantee = Guarantee(
                epsilon=accounting.epsilon,
                delta=self.budget.delta,
                neighbours=self.neighbours,
                view=self.view,
                assumptions=(
                    "every participant runs this program unchanged (semi-honest) and keeps its noise secret",
                    "declared bounds of every party's columns and of the target were not taken from the data",
                    *VIEWS[self.view].assumptions,
                ),
                looseness=accounting.looseness,
            )
        return PrivacyReport(
            planned=accounting,
            guarantee=guarantee,
            reason=None if reason is None else reason.rstrip(".") + ".",
            releases=tuple(self.release_lines()),
            public=self.public_facts(),
            arithmetic="values, residuals and scores on power-of-two grids, sums exact in any order; lattice noise",
            randomness="AES-256-CTR keyed by the operating system" if secure else "insecure seed (reproducible)",
            version=version("dperm"),
            not_covered=(*self.not_covered, _ALIGNMENT, *NOT_COVERED),
        )

    def without_noise(self) -> VerticalTask:
        """Return the task with a budget so large that the noise is negligible, for tests of its arithmetic."""
        return replace(self, budget=Budget(1e9, self.budget.delta))


def check_round_count(task: VerticalTask, name: str) -> None:
    """Refuse a number of rounds or steps that is not a whole number from 1 to :data:`MOST_ROUNDS`."""
    require_whole(task, name)
    if getattr(task, name) > MOST_ROUNDS:
        raise InvalidInput(f"{name} must be at most {MOST_ROUNDS}.")


def check_message(message: Message, kind: str, **arrays: tuple[str, tuple[int, ...]]) -> None:
    """Refuse a message of another kind, or with other arrays, types or shapes than these."""
    if message.kind != kind:
        raise InvalidInput(f"expected a message of kind {kind!r} here, not {message.kind!r}.")
    got = {name: (str(value.dtype), value.shape) for name, value in message.arrays.items()}
    if got != arrays:
        raise InvalidInput(f"a message of kind {kind!r} does not have the arrays that the protocol prescribes.")

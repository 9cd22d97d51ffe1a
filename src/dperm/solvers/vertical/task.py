"""A vertical task: the public description that every participant agrees on, and that builds both sides' programs.

Nothing in a task depends on data: parties are named with the public facts of their columns. From it follow the plan of
the whole run, its noise, the programs and the report.
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
from dperm.solvers._checks import whole
from dperm.solvers.vertical.programs import CoordinatorProgram, Message, TrainedParty
from dperm.solvers.vertical.views import VIEWS, view_of
from dperm.types import FloatArray

__all__ = ["MOST_ROUNDS", "VerticalResult", "VerticalTask", "expect_arrays", "few_enough"]


#: of any method; whoever is asked to take part need not work out a plan without end
MOST_ROUNDS = 1_000_000

_ALIGNMENT = "who the common people are: alignment shows it to the parties"


@dataclass(frozen=True)
class VerticalResult:
    """What was learnt: the released weights of every party's scaled columns, and the report.

    ``held`` weights were never protected by noise and stay with their holders.
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
        What the whole run may spend. Every participant charges all of it to its own ledger.
    neighbours : Neighbours
        What one person's change is.
    view : {"model", "transcript"}
        Whom the guarantee covers: everyone who sees the model or any released step, or everyone who sees every message.
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
    #: arrays of messages that may leave the trusted domain in the model view: they were released
    public_arrays: ClassVar[frozenset[str]] = frozenset()
    views: ClassVar[tuple[str, ...]] = ("model",)
    #: whether every draw is labelled by run, round and column, so that with a seed all participants share one stream
    common_draws: ClassVar[bool] = False

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
            raise Unsupported("vertical tasks take no constraint, and free their intercepts by themselves.")
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
        """The domain, where the view leaves participants uncovered; without one nothing can be shared."""
        return None if VIEWS[self.view].covers_participants else self.domain

    @property
    def domain(self) -> TrustedDomain:
        """Who may see per-person values in the model view."""
        return TrustedDomain(f"{self.name} run", ("coordinator", *self.parties))

    def unpenalised(self, party: str) -> tuple[int, ...]:
        """Columns of a party that no penalty touches."""
        facts = self.parties[party]
        return (facts.d - 1,) if facts.d > facts.n_features else ()

    def score_spacing(self, box: float) -> float:
        """Public grid of partial scores for weights within ``box``: their total takes at most 52 bits."""
        reach = sum(facts.d * facts.value_bound * box for facts in self.parties.values())
        return math.ldexp(power_of_two_above(reach), -52)

    # ------------------------------------------------------------------------------------------------ the plan
    @abstractmethod
    def plan(self) -> Plan:
        """List every release of the run, by whom."""

    @cached_property
    def calibrated(self) -> CalibratedPlan:
        """The plan with the noise that fits the budget."""
        return calibrate(self.plan(), self.budget)

    @cached_property
    def accounting(self) -> Accounting:
        """The numbers of the whole run."""
        return Accounting.of(self.calibrated.event, self.budget.delta)

    @property
    def no_guarantee(self) -> str | None:
        """Why this task has no guarantee, or None."""
        return None

    @abstractmethod
    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> CoordinatorProgram:
        """Return the coordinator's program; it holds the label."""

    @abstractmethod
    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> TrainedParty:
        """Return a party's program."""

    def source(self, participant: str, insecure_seed: int | str | None = None) -> RandomSource:
        """Return a participant's source of noise.

        With a seed, two participants would otherwise add the same noise, and hide nothing from each other's sums.
        """
        made = RandomSource(insecure_seed)
        return made if self.common_draws else made.stream(participant)

    def check_party(self, name: str, design: DesignMatrix) -> None:
        """Refuse a design that is not the one that was agreed on."""
        if name not in self.parties:
            raise InvalidInput(f"{name!r} is not a party of this run.")
        if Facts.of_design(design.shape) != self.parties[name]:
            raise InvalidInput(f"the columns of party {name!r} do not have the public facts that the run agreed on.")

    def check_target(self, target: FloatArray) -> FloatArray:
        """Return the target within its public bounds; only its length is looked at."""
        values = np.asarray(target, np.float64)
        if values.shape != (self.n,):
            raise InvalidInput(f"the target must have one number for each of {self.n} people.")
        return np.clip(np.nan_to_num(values), self.target_low, self.target_high)

    # ---------------------------------------------------------------------------------------------- the report
    def release_lines(self) -> Iterable[ReleaseLine]:
        """Every group of releases with its noise; sizes and sensitivities follow from public numbers."""
        audience = VIEWS[self.view].audience
        for planned in self.calibrated.plan.releases:
            multiplier = planned.noise_multiplier(self.calibrated.scale)
            yield ReleaseLine(planned.query, planned.kind, planned.count, 0, multiplier, None, None, None, audience)

    def public_facts(self) -> dict[str, Any]:
        """What was assumed public: the parties, the objective, and every option of the method."""
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

    def report(self, *, secure: bool = True) -> PrivacyReport:
        """Return the report of a run; the ledger's part is added by whoever keeps the ledger."""
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
                    "every participant runs this program as it is (semi-honest) and keeps its noise to itself",
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
            not_covered=(*VIEWS[self.view].not_covered, _ALIGNMENT, *NOT_COVERED),
        )

    def without_noise(self) -> VerticalTask:
        """Return the task with a budget so large that the noise vanishes, for checks of its arithmetic."""
        return replace(self, budget=Budget(1e9, self.budget.delta))


def few_enough(task: VerticalTask, name: str) -> None:
    """Refuse a number of rounds or steps that is not a whole number from 1 to :data:`MOST_ROUNDS`."""
    whole(task, name)
    if getattr(task, name) > MOST_ROUNDS:
        raise InvalidInput(f"{name} must be at most {MOST_ROUNDS}.")


def expect_arrays(message: Message, kind: str, **arrays: tuple[str, tuple[int, ...]]) -> None:
    """Refuse a message of another kind, or without exactly these arrays of these types and shapes."""
    if message.kind != kind:
        raise InvalidInput(f"a message of kind {kind!r} was expected here, not {message.kind!r}.")
    got = {name: (str(value.dtype), value.shape) for name, value in message.arrays.items()}
    if got != arrays:
        raise InvalidInput(f"a message of kind {kind!r} has arrays other than those agreed on.")

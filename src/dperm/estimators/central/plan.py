"""What a fit would release, before any data are touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dperm.data.design.facts import Facts
from dperm.estimators.central.request import NUMBERS, FitRequest, PreparedFit, prepare
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.guarantee import Accounting
from dperm.queries.quantiles import INNERMOST_LEVEL, rank_error
from dperm.queries.statistics import TargetQuantileScores
from dperm.solvers.base import Forecast

__all__ = ["PlanLine", "PlanSummary", "SearchSummary", "summarise", "summarise_search", "utility_warnings"]

#: part of the records by which a target's bought range may be off before a plan says so
_ROUGH = 0.2
#: standard deviation, in ranges, below which columns may be lost without a word
_NARROW = 0.05


@dataclass(frozen=True)
class PlanLine:
    """One group of planned releases; ``share`` is its part of the budget, measured in rho."""

    query: str
    kind: str
    count: int
    noise_multiplier: float
    share: float


@dataclass(frozen=True)
class PlanSummary:
    """What a fit would release and what that costs, from public numbers only.

    Attributes
    ----------
    estimator, solver : str
    budget : Budget
        Epsilon and the delta that is used.
    neighbours : str
    epsilon : float
        Epsilon of the whole plan, at most the budget's.
    releases : tuple of PlanLine
        Every planned release with its count, noise multiplier and share of rho.
    bounds : dict
        ``"declared"`` or ``"bought"`` for features, and for the target of a regression.
    forecast : Forecast or None
        The expected excess of the objective over its minimum, where a theorem gives one.
    warnings : tuple of str
        What is likely to disappoint.
    """

    estimator: str
    solver: str
    n: int
    n_features: int
    budget: Budget
    neighbours: str
    epsilon: float
    releases: tuple[PlanLine, ...]
    bounds: dict[str, str]
    forecast: Forecast | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.estimator} by {self.solver!r} on {self.n} rows and {self.n_features} columns: epsilon "
            f"{self.epsilon:.4g} of {self.budget.epsilon:.4g}, delta {self.budget.delta:.3g}, {self.neighbours}",
            "bounds: " + ", ".join(f"{what} {how}" for what, how in self.bounds.items()),
            *(
                f"- {line.count} x {line.query} ({line.kind} noise, {line.noise_multiplier:.4g} sensitivities each, "
                f"{_part(line.share)} of the budget)"
                for line in self.releases
            ),
        ]
        if self.forecast is not None:
            lines.append(f"expected excess of the objective: {self.forecast.excess:.3g} ({self.forecast.basis})")
            lines += [f"  assuming {text}" for text in self.forecast.assumes]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


@dataclass(frozen=True)
class SearchSummary:
    """What a search would release and what that costs, from public numbers only.

    Attributes
    ----------
    estimator : str
        What is tuned.
    budget : Budget
        Epsilon of the whole search and the delta that is used.
    epsilon : float
        Epsilon of the whole search, at most the budget's.
    expected_runs : float
        Mean of the number of runs.
    candidates : tuple of (str, PlanSummary)
        Every candidate with the plan of one run of it, its score included; ``epsilon`` there is that of one run.
    """

    estimator: str
    budget: Budget
    epsilon: float
    expected_runs: float
    candidates: tuple[tuple[str, PlanSummary], ...]

    @property
    def tried(self) -> float:
        """Probability that a given candidate is tried at all."""
        # 1 - E[(1 - 1/k)^N] for k candidates and a geometric number N of runs of this mean
        return self.expected_runs / (self.expected_runs + len(self.candidates) - 1.0)

    def __str__(self) -> str:
        first = self.candidates[0][1]
        lines = [
            f"search over {len(self.candidates)} candidates of {self.estimator} on {first.n} rows and "
            f"{first.n_features} columns: epsilon {self.epsilon:.4g} of {self.budget.epsilon:.4g}, "
            f"delta {self.budget.delta:.3g}, {first.neighbours}",
            f"{self.expected_runs:.4g} runs are expected; a given candidate is tried with probability {self.tried:.2f}",
        ]
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, plan in self.candidates:
            alike.setdefault((f"one run of it is a fit by {plan.solver!r}", *str(plan).splitlines()[1:]), []).append(
                name
            )
        for plan_lines, names in alike.items():
            lines += [f"candidate {name}" for name in names] + [f"  {line}" for line in plan_lines]
        return "\n".join(lines)


def summarise_search(
    estimator: str,
    runs: Sequence[tuple[str, FitRequest, PreparedFit]],
    event: Event,
    budget: Budget,
    expected_runs: float,
) -> SearchSummary:
    """Describe a search whose candidates are planned; ``runs`` are their names, requests and plans."""
    candidates = tuple((name, _described(estimator, request, prepared)) for name, request, prepared in runs)
    return SearchSummary(estimator, budget, Accounting.of(event, budget.delta).epsilon, expected_runs, candidates)


def summarise(estimator: str, request: FitRequest, n: int, n_features: int) -> PlanSummary:
    """Plan a fit and describe it; whatever a fit would refuse for public reasons is refused here."""
    return _described(estimator, request, prepare(request, n, n_features))


def _described(estimator: str, request: FitRequest, prepared: PreparedFit) -> PlanSummary:
    calibrated, n, n_features = prepared.calibrated, prepared.facts.n, prepared.facts.n_features
    total = sum(release.share for release in calibrated.plan.releases)
    lines = tuple(
        PlanLine(r.query, r.kind, r.count, r.noise_multiplier(calibrated.scale), r.share / total)
        for r in calibrated.plan.releases
    )
    bounds = {"features": "bought" if request.buys_features(n_features) else "declared"}
    if request.target == NUMBERS:
        bounds["target"] = "bought" if request.buys_target else "declared"
    forecast = _forecast(request, prepared)
    return PlanSummary(
        estimator=estimator,
        solver=prepared.solver.name,
        n=n,
        n_features=n_features,
        budget=prepared.budget,
        neighbours=str(request.neighbours),
        epsilon=Accounting.of(calibrated.event, prepared.budget.delta).epsilon,
        releases=lines,
        bounds=bounds,
        forecast=forecast,
        warnings=(*_without_guarantee(request, prepared), *_likely_lacks(request, prepared, forecast)),
    )


def _forecast(request: FitRequest, prepared: PreparedFit) -> Forecast | None:
    """Return the solver's forecast for one problem, or None."""
    if request.calibration == "paper":
        return None
    return prepared.solver.forecast(request.objective, prepared.facts, prepared.for_solver, request.neighbours)


def _part(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def _without_guarantee(request: FitRequest, prepared: PreparedFit) -> list[str]:
    """Why there will be no guarantee; a fit has the report and a warning of its own for it."""
    out = [] if prepared.unbounded is None else [f"no guarantee: {prepared.unbounded}"]
    if request.insecure_seed is not None:
        out.append("no guarantee: insecure_seed makes the noise reproducible")
    return out


def utility_warnings(request: FitRequest, prepared: PreparedFit) -> tuple[str, ...]:
    """What a fit is likely to lack, from public numbers; a plan shows it and a fit warns of it before any charge."""
    return _likely_lacks(request, prepared, _forecast(request, prepared))


def _likely_lacks(request: FitRequest, prepared: PreparedFit, forecast: Forecast | None) -> tuple[str, ...]:
    facts, out = prepared.facts, list[str]()
    if prepared.budget.delta > 1.0 / facts.n:
        out.append("delta is above 1/n: some person's whole record may be given away; 1/n^2 is usual")
    out += _doubtful_ranges(request, prepared.calibrated, facts)
    if forecast is not None:
        if forecast.null_excess is not None and forecast.excess >= forecast.null_excess:
            out.append("the forecast promises nothing over predicting one value for all (such bounds are often loose)")
        # declared scales follow the data, and bought ranges up to a factor of 2 or a note; a declared range need not
        if request.bounds.features is not None and forecast.least_seen is not None and forecast.least_seen > _NARROW:
            out.append(
                f"{_thin_columns(forecast.least_seen)} lose half of their weight or more: declare narrower ranges, or "
                "Bounds(centre=, scale=, clip=)"
            )
        out += forecast.doubts
    return tuple(out)


def _thin_columns(least_seen: float) -> str:
    if least_seen >= 0.5:  # no column's standard deviation is above half of its range
        return "all columns, however spread over their declared ranges,"
    return f"columns whose standard deviation is below about {least_seen:.1%} of their declared range"


def _doubtful_ranges(request: FitRequest, calibrated: CalibratedPlan, facts: Facts) -> list[str]:
    """Say which bought ranges are in doubt; those of a target that may fail altogether are refused before."""
    out = []
    if request.buys_features(facts.n_features):
        missed = rank_error(request.purchase, calibrated) / facts.n
        if missed > INNERMOST_LEVEL:  # further inside than that no quantile is bought
            out.append(
                f"bought ranges of columns may be off by {min(missed, 1.0):.0%} of the records, and such columns are "
                "lost: declare bounds if you can"
            )
    if request.buys_target:
        missed = rank_error(request.purchase, calibrated, TargetQuantileScores) / facts.n
        if missed > _ROUGH:
            out.append(
                f"the target's bought range may be off by {missed:.0%} of the records, and several times too wide or "
                "too narrow: declare Bounds(target=(lo, hi)) if you can"
            )
    return out

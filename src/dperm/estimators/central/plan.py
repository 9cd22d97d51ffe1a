"""Describes what a fit or a search would release, from public numbers, before any data are touched."""

from __future__ import annotations

from dataclasses import dataclass

from dperm.estimators.central.request import NUMBERS, PreparedFit
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.guarantee import Accounting
from dperm.reporting.labels import describe_release
from dperm.solvers.base import Forecast

__all__ = ["PlanLine", "PlanSummary", "SearchSummary", "in_words", "summarise"]


#: shares from which "most", and below which "little", of what the columns can explain is left
_MOST, _LITTLE = 0.85, 0.25


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
        Why there is no guarantee, if so, and why the model may be of little use.
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

    @property
    def share_left(self) -> float | None:
        """Share of what the columns can explain that the forecast leaves after the noise; None without a forecast."""
        if self.forecast is None or not self.forecast.null_excess:
            return None
        return max(0.0, 1.0 - self.forecast.excess / self.forecast.null_excess)

    def __repr__(self) -> str:
        """Return one line; ``print`` shows everything."""
        releases = f"{sum(line.count for line in self.releases):,} releases"
        return f"PlanSummary({self._headline()}, method {self.solver!r}, {releases}, {len(self.warnings)} warnings)"

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self.details()])

    def _headline(self) -> str:
        return (
            f"{self.estimator} on {self.n} rows and {self.n_features} columns: epsilon {self.epsilon:.4g} of "
            f"{self.budget.epsilon:.4g}, delta {self.budget.delta:.3g}, {self.neighbours}"
        )

    def details(self) -> list[str]:
        """Return everything but the headline as lines: what a reader needs first, technical detail last."""
        lines = [f"warning: {text}" for text in self.warnings]
        if self.share_left is not None:
            lines.append(
                f"left after the noise: {in_words(self.share_left)} of what the columns can explain (estimate)"
            )
        lines.append("bounds: " + ", ".join(f"{what} {how}" for what, how in self.bounds.items()))
        lines.append(f"method {self.solver!r}, which releases:")
        lines += [
            "- " + describe_release(r.count, r.query, r.kind, r.noise_multiplier, f"{_percent(r.share)} of the budget")
            for r in self.releases
        ]
        if self.forecast is not None:
            excess = f"{self.forecast.excess:.3g} above its minimum"
            lines.append(f"forecast: the objective is expected to end {excess} ({self.forecast.basis})")
            lines += [f"  assuming {text}" for text in self.forecast.assumptions]
        return lines


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

    def __repr__(self) -> str:
        """Return one line; ``print`` shows everything."""
        return f"SearchSummary({self._headline()})"

    def _headline(self) -> str:
        first = self.candidates[0][1]
        return (
            f"search over {len(self.candidates)} candidates of {self.estimator} on {first.n} rows and "
            f"{first.n_features} columns: epsilon {self.epsilon:.4g} of {self.budget.epsilon:.4g}, "
            f"delta {self.budget.delta:.3g}, {first.neighbours}"
        )

    def __str__(self) -> str:
        lines = [
            self._headline(),
            f"{self.expected_runs:.4g} runs are expected; a given candidate is tried with probability {self.tried:.2f}",
        ]
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, plan in self.candidates:
            alike.setdefault(tuple(plan.details()), []).append(name)
        for details, names in alike.items():
            lines += [f"candidate {name}" for name in names] + ["  one run of it:", *(f"  {line}" for line in details)]
        return "\n".join(lines)


def summarise(prepared: PreparedFit) -> PlanSummary:
    """Describe a plan."""
    request, calibrated, facts = prepared.request, prepared.calibrated, prepared.facts
    total = sum(release.share for release in calibrated.plan.releases)
    lines = tuple(
        PlanLine(r.query, r.kind, r.count, r.noise_multiplier(calibrated.scale), r.share / total)
        for r in calibrated.plan.releases
    )
    bounds = {"features": "bought" if request.buys_features(facts.n_features) else "declared"}
    if request.target == NUMBERS:
        bounds["target"] = "bought" if request.buys_target else "declared"
    return PlanSummary(
        estimator=request.estimator,
        solver=prepared.solver.name,
        n=facts.n,
        n_features=facts.n_features,
        budget=prepared.budget,
        neighbours=str(request.neighbours),
        epsilon=Accounting.of(calibrated.event, prepared.budget.delta).epsilon,
        releases=lines,
        bounds=bounds,
        forecast=prepared.forecast,
        warnings=(*_without_guarantee(prepared), *prepared.utility_warnings),
    )


def in_words(left: float) -> str:
    """Return the share of what the columns can explain that is left, no more precisely than a forecast knows it.

    On the data of ``benchmarks/automatic_warnings.py`` fits of which most was expected to be left kept two thirds or
    more, and others anything between nothing and nearly all.

    >>> in_words(0.97), in_words(0.6), in_words(0.1)
    ('most', 'part', 'little')
    """
    return "most" if left >= _MOST else "part" if left >= _LITTLE else "little"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def _without_guarantee(prepared: PreparedFit) -> list[str]:
    """Why there will be no guarantee; a fit states it in its report and in a warning of its own."""
    out = [] if prepared.unbounded is None else [f"no guarantee: {prepared.unbounded}"]
    if prepared.request.insecure_seed is not None:
        out.append("no guarantee: insecure_seed makes the noise reproducible")
    return out

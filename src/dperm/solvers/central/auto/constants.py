"""Every constant of the automatic rule, once: value, unit, meaning, and where it comes from.

No other module of this folder holds a number of its own, apart from those of formulas. ``docs/automatic.md`` derives
the formulas and shows this table. ``benchmarks/automatic_constants.py`` halves and doubles each constant and measures
what that changes; the result is in ``docs/automatic-evidence.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

__all__ = ["RULE", "SMALLEST", "TINY", "Constants", "table"]

#: smallest relative number that is told from zero: keeps divisions finite, and changes no result
TINY = 1e-12
#: smallest normal number: keeps divisions finite where zero has no scale
SMALLEST = float(np.finfo(np.float64).tiny)


def _constant(value: Any, unit: str, meaning: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "meaning": meaning, "source": source})


@dataclass(frozen=True)
class Constants:
    """The constants. "Rows times mu" is n mu over the number of records in which neighbours differ."""

    # sizes of losses
    logistic_curvature: float = _constant(
        0.15,
        "second derivative",
        "typical curvature of the logistic loss",
        "p (1 - p) averaged over predictions that spread as those of useful columns do; at even odds it is 1/4",
    )
    explainable: float = _constant(
        0.8,
        "squared typical slopes",
        "part of the null model's loss that columns explain",
        "a third of the logistic null loss; half of the variance of a regression target",
    )
    tolerated_excess: float = _constant(
        0.01,
        "mean loss",
        "excess loss from noise at which the noise fraction is one half",
        "1.5% of the logistic null loss; scan .005 to .02",
    )
    much_noise: float = _constant(
        0.5,
        "share",
        "noise fraction below which the metric is always taken; share of noise from which a fit warns",
        "noise as large as the tolerated excess",
    )
    # clips and steps
    class_clip: float = _constant(
        0.5, "typical gradients", "clip of one person's gradient where noise dominates, for classes", "scan .35 to 1"
    )
    regression_clip: float = _constant(0.8, "typical gradients", "the same in regression", "scan .5 to 1")
    patience: float = _constant(
        0.25,
        "-",
        "how much longer than the best time for one direction a descent with little noise takes",
        "scan 0 to .5",
    )
    step_margin: float = _constant(
        0.83,
        "share",
        "longest step, of the longest stable one",
        "1 is stable without noise; 3 / 3.6 was the longest step tried",
    )
    momentum: float = _constant(0.8, "-", "heavy-ball coefficient", "time of 5 steps in one, so that 48 steps suffice")
    n_steps: int = _constant(
        48,
        "releases",
        "gradients of a descent or refit, at least",
        "the number does not change the noise; scan 24 to 96",
    )
    most_steps: int = _constant(
        256, "releases", "gradients of a descent without a metric, at most", "limits the time of a fit"
    )
    most_rounds: int = _constant(
        8, "rounds", "iterations of a computation on released values, at most", "settled to a few percent; scan 4 to 20"
    )
    # budget
    rows_for_frequencies: float = _constant(
        15.0, "rows times mu", "where the class frequencies would take the whole budget", "scan 7.5 to 30"
    )
    rows_for_mean: float = _constant(
        30.0,
        "rows times mu",
        "the same for a regression's mean, whose noise matters more",
        "scan 15 to 60",
    )
    small_share: float = _constant(
        0.03,
        "of the budget",
        "share of a single number: mean deviation, mean row length, and at least that of the target's mean",
        "scan .015 to .06",
    )
    most_target_share: float = _constant(
        0.3,
        "of the budget",
        "largest share of class frequencies; a regression's mean may take twice as much",
        "scan .15 to .6",
    )
    intercept_weight: float = _constant(
        2.0,
        "columns",
        "weight of the intercept's noise when it is balanced against that of the columns",
        ".77 by derivation for equal classes; 2 for a class of 4 in a hundred",
    )
    moment_share: float = _constant(
        0.15,
        "of the budget",
        "share of the second moments without noise; the small share where noise dominates",
        "scan .07 to .3",
    )
    refit_share: float = _constant(
        0.07,
        "of the budget",
        "share of the refit; a quarter of it each for lengths and moments of scores",
        "scan .035 to .14",
    )
    # metric and rows
    intercept_height: float = _constant(
        0.25,
        "row lengths",
        "height of the intercept's column: half of it where noise dominates, twice as much for the squared loss",
        "the descent starts at the best constant, which should move little; scan .125 to .5",
    )
    prior_length: float = _constant(
        0.85,
        "longest rows",
        "prior mean of a row length, where noise hides the released one",
        "a uniform column has .58 of its largest value, a clipped normal one nearly its spread",
    )
    prior_length_error: float = _constant(
        0.3, "longest rows", "prior standard deviation of it", "covers .25 to 1 within two standard deviations"
    )
    duration: float = _constant(
        0.1,
        "typical gradients",
        "time of a descent without a metric, and largest score of the refit, per rows times mu",
        "scan .05 to .2",
    )
    # evidence
    clear: float = _constant(
        2.0, "standard deviations", "what stands out from noise by so much is taken for real", "the usual 5% level"
    )
    least_kept: float = _constant(
        0.1,
        "share",
        "least that is kept of a ranking, a spread or a share, so that noise cannot remove it",
        "scan .05 to .2",
    )
    null_level: float = _constant(0.1, "p-value", "level of the null test", "scan .05 to .2")
    prior_relevant: float = _constant(
        3.0, "columns", "columns assumed to be relevant a priori", "keeps all of a few columns; scan 0 to 10"
    )
    clipping_bias: float = _constant(
        0.2, "mean deviations", "prior size of the bias of a mean prediction from clipped residuals", "scan 0 to .4"
    )
    noisy_constant: float = _constant(
        0.03,
        "share",
        "noise of a frequency, or of a mean in ranges, from which a plan warns",
        "three percentage points",
    )
    # many columns
    most_columns_of_metric: int = _constant(
        1500, "columns", "second moments of more are not released", "a fit takes seconds, not minutes"
    )
    in_few_directions: float = _constant(
        0.5,
        "share",
        "part of what columns explain that lies in about sqrt(d) directions; the rest lies equally in all",
        "scan .25 to 1",
    )
    short_rows: float = _constant(
        0.25,
        "squared lengths",
        "declared squared length below which rows are short, of what the columns' spread would give",
        "half as long as the columns allow: most entries are zero, as in texts",
    )
    columns_for_test: int = _constant(
        100, "columns", "with fewer, a single relevant column does not stand out", "scan 50 to 200"
    )
    rows_for_test: float = _constant(
        40.0, "rows times mu", "where the test of few relevant columns would take the whole budget", "scan 20 to 80"
    )
    most_test_share: float = _constant(0.25, "of the budget", "largest share of that test", "scan .125 to .5")
    sparse_ratio: float = _constant(
        4.0,
        "-",
        "typical largest gradient over gradient length at which pursuit and descent cost the same",
        "measured 6 to 10 with few relevant columns, 1 to 3 in texts and images",
    )
    detectable: float = _constant(
        0.29, "columns", "columns that pursuit looks for, per rows times mu over log of columns", "scan .15 to .6"
    )
    pursuit_clip: float = _constant(
        1.5, "typical products", "clip of one person's product of slope and value in pursuit", "scan .75 to 3"
    )
    selection_share: float = _constant(
        0.75, "of the budget", "share of selecting columns in pursuit; the rest measures them", "scan .5 to .9"
    )
    largest_contribution: float = _constant(
        64.0,
        "outputs",
        "bound on what one column may add to a prediction in pursuit",
        "far above any useful value; keeps numbers finite",
    )


RULE = Constants()


def table() -> list[str]:
    """Return the lines of a Markdown table of all constants."""
    lines = ["| constant | value | unit | what it is | where it comes from |", "|---|---|---|---|---|"]
    for one in fields(Constants):
        unit, meaning, source = (one.metadata[key] for key in ("unit", "meaning", "source"))
        lines.append(f"| `{one.name}` | {one.default:g} | {unit} | {meaning} | {source} |")
    return lines

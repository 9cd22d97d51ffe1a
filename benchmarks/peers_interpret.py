"""Worker: boosted curves with noise from interpret (DP-EBM) with its defaults."""

from __future__ import annotations

import warnings
from typing import Any

from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor
from peers_data import Problem
from peers_worker import Order, Outcome, main

warnings.filterwarnings("ignore")  # among them that a seed repeats the noise, which is wanted here
# interpret reads a bound that it was not given off the data, and says so: such a fit must not become a row
warnings.filterwarnings("error", message="Possible privacy violation")


def fit(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """One fit; types of columns and bounds are given, so that the number of rows is all that is read off the data.

    A target is counted from the middle of its public range. Scores start at 0, and interpret scales its noise to the
    length of the range: without the shift, targets far from 0 have larger residuals than that. Residuals are not
    clipped, so that its claim for regression needs scores that stay inside the range.
    """
    given = {
        "epsilon": order.epsilon,
        "delta": order.delta,
        "feature_types": ["continuous"] * X.shape[1],
        "privacy_bounds": dict.fromkeys(range(X.shape[1]), (-problem.clip, problem.clip)),
        "random_state": order.seed,
        "n_jobs": 1,
    }
    rows = problem.clipped(X)
    if problem.task == "logistic":
        classifier = DPExplainableBoostingClassifier(**given).fit(rows, y.astype(int))
        return Outcome(lambda X: classifier.decision_function(problem.clipped(X)))
    half = problem.half_range
    model = DPExplainableBoostingRegressor(**given, privacy_target_min=-half, privacy_target_max=half)
    model.fit(rows, y - problem.middle)
    return Outcome(lambda X: problem.middle + model.predict(problem.clipped(X)))


if __name__ == "__main__":
    main(fit)

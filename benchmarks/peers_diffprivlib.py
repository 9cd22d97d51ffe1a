"""Worker: logistic regression of diffprivlib with its defaults, rows in the unit ball with a constant column."""

from __future__ import annotations

import warnings
from typing import Any

from diffprivlib.models import LogisticRegression
from peers_data import Problem
from peers_worker import Order, Outcome, main

warnings.filterwarnings("ignore")  # convergence and deprecation warnings, irrelevant for the table


def fit(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """One fit; the constant column is among the features, so that the declared norm covers it."""
    model = LogisticRegression(
        epsilon=order.epsilon, data_norm=1.0, fit_intercept=False, max_iter=500, random_state=order.seed
    )
    model.fit(problem.unit_rows(X), y.astype(int))
    return Outcome.linear(*problem.from_unit(model.coef_[0]))


if __name__ == "__main__":
    main(fit)

"""Rows of the comparison with peers: environment, setting and neighbour relation of each method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from peers_data import Problem

from dperm.privacy.accounting import gdp

OPACUS = {"lr": 0.1, "batch": 256, "epochs": 20, "clip": 1.0}
ZERO_OUT, REPLACE_ONE, NO_PRIVACY = "zero-out", "replace-one", "none"


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    key: str
    label: str
    environment: str
    neighbours: str
    setting: str
    options: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ("logistic", "squared")
    tuned_on: str | None = None  # criterion by which a setting is chosen, without privacy cost

    @property
    def script(self) -> str:
        return f"peers_{self.environment}.py"

    @property
    def is_private(self) -> bool:
        return self.neighbours != NO_PRIVACY

    def grid(self, problem: Problem) -> list[dict[str, Any]]:
        """Settings from which an oracle chooses; equal ones are tried once."""
        if self.tuned_on is None:
            return []
        if problem.task == "squared":
            tried = [{"lr": lr, "clip": clip} for lr, clip in product((0.003, 0.01, 0.03, 0.1), (1.0, 30.0))]
        else:
            batches = sorted({min(batch, problem.n_train // 2) for batch in (256, 2048)})
            tried = [{"lr": lr, "batch": batch} for lr, batch in product((0.03, 0.1, 0.5, 2.0), batches)]
        return tried

    def elsewhere(self, epsilon: float, delta: float, mu: float | None) -> tuple[float, float]:
        """(epsilon, delta) that the same fit certainly has under the other relation; mu of a fit that is Gaussian-DP.

        A replaced record is one that is emptied and one that is filled in: privacy of groups of two, which doubles mu
        (Dong, Roth & Su 2022) or, where only (epsilon, delta) is known, gives (2 epsilon, (1 + e^epsilon) delta). The
        other way round, each of dperm's queries moves at least sqrt(2) times less when a record is only emptied (most
        of them 2 times). For a regularised minimiser an empty record is a row of zeros, which is a legal record: the
        same epsilon holds, and nothing better is known.
        """
        if self.neighbours == ZERO_OUT and mu is None:
            return 2.0 * epsilon, (1.0 + math.exp(epsilon)) * delta
        if mu is not None:
            return gdp.epsilon_of(mu * (2.0 if self.neighbours == ZERO_OUT else math.sqrt(0.5)), delta), delta
        return epsilon, 0.0 if self.key == "diffprivlib" else delta


def all_methods(solver: str) -> list[Method]:
    """Every row, in the order of the table."""
    dperm = "public facts only: centre, scale, clip, row norm where one is known; no other argument"
    return [
        Method(
            "dperm",
            f'dperm, solver="{solver}"',
            "dperm",
            ZERO_OUT,
            dperm,
            {"neighbours": ZERO_OUT, "solver": solver},
        ),
        Method(
            "dperm-replace-one",
            f'dperm, solver="{solver}", replace-one',
            "dperm",
            REPLACE_ONE,
            dperm,
            {"neighbours": REPLACE_ONE, "solver": solver},
        ),
        Method(
            "opacus",
            "Opacus, one setting",
            "opacus",
            ZERO_OUT,
            "SGD, learning rate 0.1, batch 256 (at most n/2), 20 epochs, clip 1, PRV accountant, zero start; scaled "
            "rows with a constant column",
            OPACUS,
        ),
        Method(
            "opacus-oracle",
            "Opacus, oracle by train loss (not paid for)",
            "opacus",
            ZERO_OUT,
            "as above with the best of a small grid per set and epsilon (learning rate and batch; least squares: "
            "learning rate and clip), chosen by train loss without paying for it: not a private result, and no upper "
            "bound on the score, since the setting with the least loss need not predict best",
            OPACUS,
            tuned_on="train_loss",
        ),
        Method(
            "opacus-best",
            "Opacus, oracle by test score (not paid for)",
            "opacus",
            ZERO_OUT,
            "the same grid, chosen by the score on the test rows themselves, which flatters it; the choice rests on "
            "one noise seed and at most three splits, so that another setting of the grid may still be better",
            OPACUS,
            tuned_on="score",
        ),
        Method(
            "diffprivlib",
            "diffprivlib, default",
            "diffprivlib",
            REPLACE_ONE,
            "logistic regression, C = 1, rows with a constant divided by their typical length and shortened to norm 1; "
            "pure epsilon (delta = 0)",
            tasks=("logistic",),
        ),
        Method(
            "amp",
            "objective perturbation (AMP), untuned",
            "dperm",
            REPLACE_ONE,
            "approximate minima perturbation without hyperparameters (Iyengar et al. 2019), rows as for diffprivlib",
            tasks=("logistic",),
        ),
        Method(
            "adassp",
            "AdaSSP, untuned",
            "dperm",
            ZERO_OUT,
            "adaptive sufficient statistics perturbation (Wang 2018, Algorithm 2) with exact Gaussian accounting; "
            "entries and target inside their public bounds, rows otherwise as for diffprivlib; labels by least squares "
            "as -1 and 1, so that its train loss there is that of scores which were not fitted to it",
        ),
        Method(
            "ebm",
            "DP-EBM (interpret), default",
            "interpret",
            ZERO_OUT,
            "boosted curves, one per column, not a linear model; interpret's defaults; columns continuous within the "
            "public clip, target counted from the middle of its public range; residuals are not clipped, so that its "
            "claim in least squares needs scores that stay within that range",
        ),
        Method(
            "scikit-learn",
            "scikit-learn, no privacy",
            "dperm",
            NO_PRIVACY,
            "logistic regression with its defaults; lasso with cross-validation",
        ),
        Method("null", "null model", "dperm", NO_PRIVACY, "the larger class, or the mean, of the train rows"),
    ]

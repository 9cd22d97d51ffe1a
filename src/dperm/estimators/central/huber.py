"""Private Huber regression."""

from __future__ import annotations

from typing import Any

from dperm.estimators.central.base import penalty_named
from dperm.estimators.central.regression import PrivateRegressor
from dperm.objective import Huber, Loss, Penalty

__all__ = ["DPHuberRegressor"]


class DPHuberRegressor(PrivateRegressor):
    r"""Huber regression, robust to outlying targets, with a differential-privacy guarantee.

    Minimises :math:`\frac1n \sum_i \ell(x_i^\top w - y_i) + \text{strength} \cdot \text{penalty}(w)` over scaled
    columns and a target scaled to [-1, 1], the intercept unpenalised, with :math:`\ell(r) = r^2 / 2` for :math:`|r|
    \le \tau` and :math:`\tau |r| - \tau^2 / 2` beyond, :math:`\tau` = ``threshold``. The threshold bounds one
    person's effect too, so a smaller one needs less noise. Unlike scikit-learn's, the threshold is not estimated: it
    is public, in units of half the width of the target's range.

    Parameters
    ----------
    epsilon, delta, bounds, solver, neighbours, calibration, fit_intercept, ledger, insecure_seed, verbose
        As in :class:`dperm.DPRidge`.
    threshold : float
        Where the loss turns linear, in units of half the width of the target's range.
    penalty : {"l2", "l1", "elastic-net", "none"}
        :math:`\|w\|_2^2 / 2`, :math:`\|w\|_1`, or both mixed by ``l1_ratio``.
    strength : float, optional
        Weight of the penalty; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.
    l1_ratio : float
        Share of the L1 part of the elastic net.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, feature_names_in_, n_iter_, scaling_, target_range_, privacy_report_
        As in :class:`dperm.DPRidge`.

    Notes
    -----
    **Guarantee.**
    That of :class:`dperm.DPRidge`.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds, DPHuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3)); y = X[:, 0] + 0.1 * rng.standard_t(2, 5000)
    >>> model = DPHuberRegressor(epsilon=2.0, bounds=Bounds(features=(-1, 1), target=(-2, 2))).fit(X, y)
    >>> bool(0.8 < model.coef_[0] < 1.2)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        threshold: float = 0.3,
        penalty: str = "l2",
        strength: float | None = None,
        l1_ratio: float = 0.5,
        neighbours: str = "replace-one",
        calibration: str = "certified",
        fit_intercept: bool = True,
        ledger: Any = None,
        insecure_seed: int | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            bounds=bounds,
            solver=solver,
            strength=strength,
            neighbours=neighbours,
            calibration=calibration,
            fit_intercept=fit_intercept,
            ledger=ledger,
            insecure_seed=insecure_seed,
            verbose=verbose,
        )
        self.threshold = threshold
        self.penalty = penalty
        self.l1_ratio = l1_ratio

    def _penalty(self, strength: float) -> Penalty:
        return penalty_named(self.penalty, strength, self.l1_ratio)

    def _loss(self, n_classes: int) -> Loss:
        return Huber(self.threshold)

"""Private linear support vector classification."""

from __future__ import annotations

from typing import Any

from dperm.estimators.central.base import penalty_named
from dperm.estimators.central.classification import PrivateClassifier
from dperm.objective import Loss, Penalty, SmoothedHinge

__all__ = ["DPLinearSVC"]


class DPLinearSVC(PrivateClassifier):
    r"""Linear support vector classification with a differential-privacy guarantee.

    Minimises :math:`\frac1n \sum_i \ell(x_i^\top w, y_i) + \text{strength} \cdot \text{penalty}(w)` over the scaled
    columns, the intercept unpenalised. With :math:`m = (2y - 1) z`, the loss is the hinge with its corner replaced by a
    parabola of width :math:`h` (``smoothing``): 0 for :math:`m \ge 1`, :math:`(1 - m)^2 / (2h)` for
    :math:`1 - h < m < 1`, and :math:`1 - m - h/2` below. More than two classes are fitted one against the rest, each
    with the K-th part of the budget (in rho) and all in one plan. In scikit-learn's terms (``loss="hinge"``)
    strength = 1 / (n C) on scaled columns.

    Parameters
    ----------
    epsilon, delta, bounds, solver, neighbours, calibration, fit_intercept, ledger, insecure_seed, verbose
        As in :class:`dperm.DPLogisticRegression`.
    penalty : {"l2", "l1", "elastic-net", "none"}
        :math:`\|w\|_2^2 / 2`, :math:`\|w\|_1`, or both mixed by ``l1_ratio``.
    strength : float, optional
        Weight of the penalty; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.
    l1_ratio : float
        Share of the L1 part of the elastic net.
    smoothing : float
        Width of the parabola; smaller is nearer to the hinge and makes smaller steps.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    scaling_, privacy_report_
        As in :class:`dperm.DPLogisticRegression`.

    Notes
    -----
    **Guarantee.**
    Released to everyone who sees the model: what the solver's plan lists (and bought bounds), nothing else;
    :meth:`plan` shows it beforehand. Covers one person's whole record under the chosen neighbours. Assumes one row
    per person, public n, public label set and declared bounds that do not come from the data;
    ``privacy_report_.guarantee.assumptions`` lists them.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds, DPLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 3)); y = X[:, 0] > 0
    >>> model = DPLinearSVC(epsilon=2.0, bounds=Bounds(features=(-1, 1))).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        penalty: str = "l2",
        strength: float | None = None,
        l1_ratio: float = 0.5,
        smoothing: float = 0.5,
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
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.smoothing = smoothing

    def _penalty(self, strength: float) -> Penalty:
        return penalty_named(self.penalty, strength, self.l1_ratio)

    def _loss(self, n_classes: int) -> Loss:
        return SmoothedHinge(self.smoothing)

    def _n_heads(self, n_classes: int) -> int:
        return n_classes if n_classes > 2 else 1

"""Private least squares: plain, ridge, lasso and elastic net."""

from __future__ import annotations

from typing import Any

from dperm.errors import InvalidInput
from dperm.estimators.central.base import penalty_named
from dperm.estimators.central.regression import PrivateRegressor
from dperm.objective import L1, L2, ElasticNet, Loss, Penalty, Squared

__all__ = ["DPElasticNet", "DPLasso", "DPLinearRegression", "DPRidge"]


class _LeastSquares(PrivateRegressor):
    """Least squares with a clipped residual; see :class:`dperm.DPRidge`."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        strength: float | None = None,
        residual_clip: float = 1.0,
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
        self.residual_clip = residual_clip

    def _loss(self, n_classes: int) -> Loss:
        if self.residual_clip is None:
            raise InvalidInput("residual_clip must be a positive number: without one a person's effect has no bound.")
        return Squared(residual_clip=self.residual_clip)


class DPRidge(_LeastSquares):
    r"""Ridge regression with a differential-privacy guarantee.

    Minimises :math:`\frac1n \sum_i \tfrac12 (x_i^\top w - y_i)^2 + \tfrac{\text{strength}}{2} \|w\|_2^2` over scaled
    columns and a target scaled to [-1, 1], the intercept unpenalised. Coefficients and predictions are in
    your units. In scikit-learn's terms strength = alpha / n on scaled columns and target.

    A person's residual counts up to ``residual_clip`` times half the width of the target's range, so that one person's
    effect is bounded. Beyond it the squared loss goes on as a straight line, which is the Huber loss: the clip changes
    what is minimised where residuals are that large.

    Parameters
    ----------
    epsilon : float
        Privacy budget of this fit.
    delta : float, optional
        min(1e-5, 1/n^2) by default.
    bounds : Bounds, "declare" or None
        What is public: ``Bounds(features=(lo, hi), target=(lo, hi))``. The target is clipped to its range, and so are
        predictions. What is not declared is bought with 10% of the budget in all; "declare" refuses the fit and shows
        what to write.
    solver : str or Solver
        ``"auto"`` or a solver's name, or a configured solver object.
    strength : float, optional
        Weight of the penalty; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.
    residual_clip : float
        Largest residual that counts in full, in units of half the width of the target's range.
    neighbours : {"replace-one", "zero-out"}
        Which two data sets are compared: one record replaced by any other, or by an empty one.
    calibration : {"certified", "paper"}
        ``"paper"`` uses the noise that a method's paper prints, for comparison, without a guarantee.
    fit_intercept : bool
        Whether a constant is fitted too. Without one the prediction for a row of zeros is the middle of the target's
        range.
    ledger : Ledger, optional
        Where the budget is charged; in memory if None. Shared, never copied, by ``clone``.
    insecure_seed : int, optional
        Reproducible noise for tests; the result then has no guarantee.
    verbose : bool
        Print how many steps are done; this reveals nothing about the data.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    scaling_ : Scaling
        Public constants that clip and scale a row, in training and in prediction.
    target_range_ : TargetRange
        Public range of the target, declared or bought.
    privacy_report_ : PrivacyReport
        What was released, and the guarantee that follows.

    Notes
    -----
    **Guarantee.**
    Released to everyone who sees the model: what the solver's plan lists (and bought bounds), nothing else;
    :meth:`plan` shows it beforehand. Covers one person's whole record, target included, under the chosen neighbours.
    Assumes one row per person, public n and declared bounds that do not come from the data;
    ``privacy_report_.guarantee.assumptions`` lists them.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds, DPRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (5000, 3)); y = 3 * X[:, 0] - X[:, 1] + rng.normal(size=5000)
    >>> model = DPRidge(epsilon=2.0, bounds=Bounds(features=(0, 10), target=(-15, 35))).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    >>> model.privacy_report_.guarantee.epsilon <= 2.0
    True
    """

    def _penalty(self, strength: float) -> Penalty:
        return L2(strength)


class DPLasso(_LeastSquares):
    r"""Lasso with a differential-privacy guarantee.

    Minimises :math:`\frac1n \sum_i \tfrac12 (x_i^\top w - y_i)^2 + \text{strength} \cdot \|w\|_1` over scaled
    columns and a target scaled to [-1, 1], the intercept unpenalised. In scikit-learn's terms strength = alpha on
    scaled columns and target. Which coefficients are not zero is part of the released model. Solvers ``"greedy"``
    and ``"peel"`` choose few columns and spend no noise on the others.

    Parameters
    ----------
    epsilon, delta, bounds, solver, residual_clip, neighbours, calibration
        As in :class:`dperm.DPRidge`.
    fit_intercept, ledger, insecure_seed, verbose
        As in :class:`dperm.DPRidge`.
    strength : float, optional
        Weight of the penalty; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.

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
    >>> from dperm import Bounds, DPLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 40)); y = 3 * X[:, 4] + rng.normal(size=5000)
    >>> model = DPLasso(epsilon=2.0, bounds=Bounds(features=(-1, 1), target=(-6, 6)), solver="peel").fit(X, y)
    >>> int(abs(model.coef_).argmax())
    4
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        strength: float | None = None,
        residual_clip: float = 1.0,
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
            residual_clip=residual_clip,
            neighbours=neighbours,
            calibration=calibration,
            fit_intercept=fit_intercept,
            ledger=ledger,
            insecure_seed=insecure_seed,
            verbose=verbose,
        )

    def _penalty(self, strength: float) -> Penalty:
        return L1(strength)


class DPElasticNet(_LeastSquares):
    r"""Elastic net with a differential-privacy guarantee.

    Minimises :math:`\frac1n \sum_i \tfrac12 (x_i^\top w - y_i)^2 + \text{strength} \bigl(r \|w\|_1 + \tfrac{1 - r}{2}
    \|w\|_2^2\bigr)` with :math:`r` = ``l1_ratio``, over scaled columns and a target scaled to [-1, 1], the
    intercept unpenalised. In scikit-learn's terms strength = alpha on scaled columns and target.

    Parameters
    ----------
    epsilon, delta, bounds, solver, residual_clip, neighbours, calibration
        As in :class:`dperm.DPRidge`.
    fit_intercept, ledger, insecure_seed, verbose
        As in :class:`dperm.DPRidge`.
    strength : float, optional
        Weight of the penalty; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.
    l1_ratio : float
        Share of the L1 part, between 0 and 1.

    Attributes
    ----------
    coef_, intercept_, n_features_in_, feature_names_in_, n_iter_, scaling_, target_range_, privacy_report_
        As in :class:`dperm.DPRidge`.

    Notes
    -----
    **Guarantee.**
    That of :class:`dperm.DPRidge`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        strength: float | None = None,
        l1_ratio: float = 0.5,
        residual_clip: float = 1.0,
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
            residual_clip=residual_clip,
            neighbours=neighbours,
            calibration=calibration,
            fit_intercept=fit_intercept,
            ledger=ledger,
            insecure_seed=insecure_seed,
            verbose=verbose,
        )
        self.l1_ratio = l1_ratio

    def _penalty(self, strength: float) -> Penalty:
        return ElasticNet(strength, self.l1_ratio)


class DPLinearRegression(_LeastSquares):
    r"""Least squares with a differential-privacy guarantee.

    Minimises :math:`\frac1n \sum_i \tfrac12 (x_i^\top w - y_i)^2` over scaled columns and a target scaled to
    [-1, 1], plus :math:`\text{strength} \cdot \text{penalty}(w)` if a penalty is asked for. With much noise a penalty
    helps: :class:`dperm.DPRidge` is the same model with one.

    Parameters
    ----------
    epsilon, delta, bounds, solver, residual_clip, neighbours, calibration
        As in :class:`dperm.DPRidge`.
    fit_intercept, ledger, insecure_seed, verbose
        As in :class:`dperm.DPRidge`.
    penalty : {"none", "l2", "l1", "elastic-net"}
        None by default.
    strength : float, optional
        Weight of the penalty, if there is one; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.
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
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        penalty: str = "none",
        strength: float | None = None,
        l1_ratio: float = 0.5,
        residual_clip: float = 1.0,
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
            residual_clip=residual_clip,
            neighbours=neighbours,
            calibration=calibration,
            fit_intercept=fit_intercept,
            ledger=ledger,
            insecure_seed=insecure_seed,
            verbose=verbose,
        )
        self.penalty = penalty
        self.l1_ratio = l1_ratio

    def _penalty(self, strength: float) -> Penalty:
        return penalty_named(self.penalty, strength, self.l1_ratio)

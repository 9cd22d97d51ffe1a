"""Buys the ranges of columns and target that are not declared, with the part of the budget planned for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dperm.data.design.matrix import Scaling
from dperm.data.design.target_range import TargetRange
from dperm.data.holding.holder import DataHolder, Released
from dperm.data.tables.target_source import TargetSource
from dperm.estimators.central.request import PreparedFit
from dperm.queries.quantiles import buy_range, buy_scaling, is_one_grid_step_wide
from dperm.queries.statistics import TargetQuantileScores
from dperm.types import FloatArray

__all__ = ["RangePurchase"]

#: most columns that a note lists by name
_MOST_NAMED = 5


class RangePurchase:
    """Buys ranges inside a scope; ``holder_of`` makes the holder of a table through which they are released."""

    def __init__(self, prepared: PreparedFit, holder_of: Callable[[Any], DataHolder]) -> None:
        self._request, self._calibrated, self._n = prepared.request, prepared.calibrated, prepared.facts.n
        self._holder_of = holder_of
        self.released: list[Released] = []

    def features(self, X: Any) -> Scaling:
        """Buy the ranges of the columns that are not declared."""
        request, holder = self._request, self._holder_of(X)
        scaling = buy_scaling(holder, request.bounds, self._calibrated, request.fit_intercept, request.boolean)
        self.released += holder.released
        return scaling

    def target(self, target: FloatArray | TargetSource) -> tuple[float, float]:
        """Buy the range of the target."""
        holder = self._holder_of(target if isinstance(target, TargetSource) else target[:, None])
        low, high = buy_range(holder, self._request.purchase, self._calibrated, 0, TargetQuantileScores)
        self.released += holder.released
        return low, high

    def notes(self, scaling: Scaling, target_range: TargetRange | None) -> tuple[str, ...]:
        """Note which bought ranges may be far wider than the values in them, from the ranges alone."""
        request = self._request
        if not request.fit_intercept:  # ranges then reach to zero anyway
            return ()
        found = self._narrow_columns(scaling)
        if request.buys_target and target_range is not None:
            ends = np.array([target_range.low, target_range.high])
            if is_one_grid_step_wide(ends, request.purchase, self._calibrated, self._n, TargetQuantileScores):
                found.append("the target")
        if not found:
            return ()
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        return (
            f"the bought range of {', '.join(found[:_MOST_NAMED])}{more} is as narrow as the grid of ranges allows, "
            "and the values may fill a small part of it, as years do: declare it in Bounds",
        )

    def _narrow_columns(self, scaling: Scaling) -> list[str]:
        request, found = self._request, list[str]()
        for column in np.flatnonzero(request.bounds.bought_columns(len(scaling.centre), request.boolean)):
            ends = scaling.centre[column] + scaling.scale[column] * np.array([-1.0, 1.0])
            if is_one_grid_step_wide(ends, request.purchase, self._calibrated, self._n):
                names = request.feature_names
                found.append(f"column {column if names is None else repr(str(names[int(column)]))}")
        return found

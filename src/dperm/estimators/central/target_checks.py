"""Public rules that check the targets of a fit and turn them into numbers, here or on the workers of a cluster.

Each is a function of the targets of some people; its refusals show none of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dperm.data.tables.target_source import TargetSource
from dperm.errors import InvalidData
from dperm.estimators.central.data_checks import Y_NOT_FINITE, without_values
from dperm.types import FloatArray

__all__ = ["ClassCodes", "KnownCodes", "Labels", "Numbers", "ScoredNumbers", "class_labels", "in_numbers"]

T = TypeVar("T")

#: labels that are not declared become public with the model: more than this are probably personal data
_MOST_CLASSES = 100


def _shown_nothing(work: Callable[[], T], numbers: bool = False) -> T:
    """Run ``work``; the errors of scikit-learn and numpy about targets become sentences without values."""
    try:
        return work()
    except InvalidData:
        raise
    except ValueError as error:
        refused = without_values(str(error), numbers)
    except TypeError:
        refused = without_values("Unknown label type: unknown")
    raise InvalidData(refused)  # outside the except block: an error's context would keep the hidden values


def _column(y: Any) -> NDArray[Any]:
    """Return targets as an array, checked as scikit-learn checks them."""
    plain = column_or_1d(y)
    assert_all_finite(plain, input_name="y")
    return np.asarray(plain)


@dataclass(frozen=True)
class Labels:
    """Class labels as they are; refuses numbers that are no labels."""

    def __call__(self, y: Any) -> NDArray[Any]:
        return _shown_nothing(lambda: self._checked(y))

    @staticmethod
    def _checked(y: Any) -> NDArray[Any]:
        plain = _column(y)
        with warnings.catch_warnings():  # one warning would show how many different labels there are
            warnings.simplefilter("ignore")
            check_classification_targets(plain)
        return plain


@dataclass(frozen=True, eq=False)
class ClassCodes:
    """The position of every label among the sorted classes."""

    classes: NDArray[Any]

    def __call__(self, y: NDArray[Any]) -> FloatArray:
        codes, known = _shown_nothing(lambda: self._codes(y))
        if not known:
            raise InvalidData("y contains a label that is not among the declared classes.")
        return np.asarray(codes, np.float64)

    def _codes(self, y: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        codes = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        return codes, bool(np.all(self.classes[codes] == y))


@dataclass(frozen=True)
class Numbers:
    """One finite number per row."""

    def __call__(self, y: Any) -> FloatArray:
        plain = _shown_nothing(lambda: self._plain(y), numbers=True)
        if plain.dtype.kind not in "biuf":
            raise InvalidData("y must hold one number per row, not text or dates.")
        target = np.asarray(plain, np.float64)
        if not np.isfinite(target).all():  # missing values among objects become NaN only here
            raise InvalidData(Y_NOT_FINITE)
        return target

    @staticmethod
    def _plain(y: Any) -> NDArray[Any]:
        plain = _column(y)
        return plain.astype(np.float64) if plain.dtype.kind == "O" else plain


@dataclass(frozen=True, eq=False)
class KnownCodes:
    """The code of each label that a fitted model knows, for its score."""

    classes: NDArray[Any]

    def __call__(self, y: Any) -> FloatArray:
        places = {label: float(code) for code, label in enumerate(self.classes.tolist())}
        codes = np.array([places.get(one, -1.0) for one in np.asarray(y).tolist()])
        if (codes < 0.0).any():
            raise InvalidData("the held-out rows contain a label that the model does not know.")
        return codes


@dataclass(frozen=True)
class ScoredNumbers:
    """One finite number for each row that is scored."""

    def __call__(self, y: Any) -> FloatArray:
        numbers: FloatArray | None
        try:
            numbers = np.asarray(y).astype(np.float64)
        except (TypeError, ValueError):
            numbers = None
        if numbers is None:  # raised outside the except block: an error's context would keep the hidden values
            raise InvalidData("y must hold numbers, as it did in the fit.")
        if not np.isfinite(numbers).all():
            raise InvalidData(Y_NOT_FINITE)
        return numbers


def in_numbers(y: Any, rule: Callable[[Any], FloatArray]) -> Any:
    """Return targets after a rule: an array here, or targets on a cluster, all checked before they are used."""
    if not isinstance(y, TargetSource):
        return rule(y)
    made = y.in_numbers(rule)
    if not made.checked_with_rows:
        made.check()
    return made


def class_labels(y: Any, declared: Any) -> tuple[NDArray[Any], Any]:
    """Return the sorted classes, declared or else those of ``y``, and the code of every label."""
    labels = y.in_numbers(Labels()) if isinstance(y, TargetSource) else Labels()(y)
    if declared is not None:
        classes = _shown_nothing(lambda: np.unique(np.asarray(declared)))
    elif isinstance(labels, TargetSource):
        classes = labels.labels(_MOST_CLASSES)
    else:
        classes = _shown_nothing(lambda: np.unique(labels))
    if declared is None and len(classes) > _MOST_CLASSES:
        raise InvalidData(
            f"y has more than {_MOST_CLASSES} different labels: declare them by Bounds(classes=...), or use a "
            "regressor if they are numbers."
        )
    if len(classes) < 2:
        raise InvalidData("y has one class only; a classifier needs at least two classes.")
    return classes, in_numbers(labels, ClassCodes(classes))

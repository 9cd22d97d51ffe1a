"""Checks the data of a fit and of predictions; errors name columns, never a row or a value."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from dperm.data.tables.frames import (
    NUMBERS_ONLY,
    boolean_columns,
    column_names,
    non_finite_message,
    not_numbers_error,
    plain_labels,
    plain_matrix,
)
from dperm.data.tables.row_source import RowSource, row_source
from dperm.data.tables.target_source import TargetSource, other_lengths, rows_and_target, target_source
from dperm.errors import InvalidBounds, InvalidData
from dperm.estimators.central.request import CLASSES, NUMBERS
from dperm.privacy.ledger import Ledger
from dperm.types import BoolArray, FloatArray

__all__ = [
    "Y_NOT_FINITE",
    "DataChecks",
    "TrainingData",
    "fingerprint_of",
    "how_to_declare",
    "one_entry_per_cell",
    "without_values",
]

OTHER_NAMES = "The feature names should match those that were passed during fit: same names, in the same order."
Y_NOT_FINITE = "y contains NaN or infinite values: remove those rows."

#: most columns for which a proposed declaration lists one number each, and most that it lists by name
_MOST_LISTED = 8
_MOST_NAMED = 40

# Beginnings of scikit-learn's messages that show shapes, types and column names only, and where each is cut off.
_HARMLESS = {
    "The feature names should match": None,
    "X has ": None,
    "Found array with": None,
    "This ": None,
    "y should be a 1d array": None,
    "Expected array-like": None,
    "Complex data not supported": "\n",
}

#: scikit-learn's message about X and y of other lengths
_OTHER_LENGTHS = re.compile(r"Found input variables with inconsistent numbers of samples: \[(\d+), (\d+)\]")


@dataclass(frozen=True)
class TrainingData:
    """Checked data of a fit, with the target in numbers, and what is public about them."""

    X: Any
    #: an array, or targets that stay on a cluster with their rows
    target: FloatArray | TargetSource
    boolean: BoolArray | None
    assumptions: tuple[str, ...] = ()
    #: labels in the order of their codes; None if the target is a number
    classes: NDArray[Any] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 2 if the target is a number, where it is not used."""
        return 2 if self.classes is None else len(self.classes)

    @property
    def target_here(self) -> FloatArray:
        """The target of data that are not on a cluster."""
        if isinstance(self.target, TargetSource):
            raise InvalidData("this estimator needs y in memory: give y.compute().")
        return self.target

    def canonical(self) -> TrainingData:
        """Return the same data with one stored entry per cell."""
        return replace(self, X=one_entry_per_cell(self.X))

    def fingerprint(self, ledger: Ledger | None) -> str | None:
        """Return the keyed fingerprint by which a ledger recognises these data; None without a ledger."""
        return fingerprint_of(ledger, self.X, self.target)


def one_entry_per_cell(X: Any) -> Any:
    """Return sparse data in their one canonical form, without touching the caller's arrays."""
    if not sp.issparse(X):
        return X
    canonical = sp.csr_array(X, copy=True)
    canonical.sum_duplicates()
    canonical.eliminate_zeros()
    return canonical


def fingerprint_of(ledger: Ledger | None, X: Any, target: FloatArray | TargetSource) -> str | None:
    """Return the keyed fingerprint by which a ledger recognises data; None without a ledger.

    It is needed just before a reservation, so this is where rows that are not the same each time are refused. On a
    cluster both are done in one reading.
    """
    found = None if ledger is None else ledger.fingerprint(X, target)
    if isinstance(X, RowSource):
        X.confirm()
    return found


class DataChecks:
    """Mixin of estimators: checks X and y, and sets ``n_features_in_`` and ``feature_names_in_``."""

    #: kind of target: classes or numbers
    _target: str = CLASSES
    bounds: Any

    def _check_parameters(self) -> None:
        """Refuse bad parameters before the data are looked at."""
        raise NotImplementedError

    def _checked_arrays(self, X: Any, y: Any) -> tuple[Any, Any, BoolArray | None]:
        """Check parameters, then data; return both arrays, and which columns are of type bool."""
        self._check_parameters()
        X, y = rows_and_target(X, y)
        X = _source_or_table(X)
        boolean = None if isinstance(X, RowSource) else boolean_columns(X)
        target = target_source(y, X)
        if target is None:
            X, y = self._checked(X, plain_labels(y), reset=True)
        else:
            X, y = self._checked(X, reset=True), target
            self._check_rows(X, target, reset=True)
        if isinstance(X, RowSource):
            boolean = X.boolean
        self._refuse_undeclared(X.shape[1], getattr(self, "feature_names_in_", None), boolean)
        return X, y, boolean

    def _refuse_undeclared(
        self, n_features: int, names: Sequence[str] | None = None, boolean: BoolArray | None = None
    ) -> None:
        """With ``bounds="declare"``, refuse with what to write; it uses names and types of columns only."""
        if isinstance(self.bounds, str) and self.bounds == "declare":
            raise InvalidBounds(how_to_declare(self._target == NUMBERS, n_features, names, boolean))

    def _checked(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Return X (and y if it is given) as checked arrays; errors name no row and no value."""
        y_given = not (isinstance(y, str) and y == "no_validation")
        options: dict[str, Any] = {"y_numeric": self._target == NUMBERS} if y_given else {}
        refused = None
        try:
            source = row_source(X, None if reset else getattr(self, "feature_names_in_", None))
            if source is not None and 0 in source.shape:
                raise InvalidData("Found array with {} sample(s) and {} feature(s): 1 is needed.".format(*source.shape))
            plain, names = ("no_validation" if source else plain_matrix(X)), column_names(X)
            converted = plain is not X
            if source is None or y_given:
                with warnings.catch_warnings():
                    if converted:  # names are compared below
                        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                    if source is None:
                        # single precision stays: rows are turned into doubles some at a time, where they are read
                        kinds = np.float64 if sp.issparse(plain) else [np.float64, np.float32]
                        options |= {"accept_sparse": ["csr", "csc"], "dtype": kinds, "ensure_all_finite": False}
                    checked = validate_data(self, plain, y, reset=reset, **options)
        except InvalidData:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            refused = _refusal(X, str(error), numbers=self._target == NUMBERS)
        if refused is not None:  # raised outside the except block: an error's context would keep the hidden values
            raise refused
        if source is not None:
            self._check_rows(source, checked if y_given else None, reset)
            return (source, checked) if y_given else source
        if converted and reset:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif converted and hasattr(self, "feature_names_in_") and list(self.feature_names_in_) != names:
            raise InvalidData(OTHER_NAMES)
        bad = non_finite_message(checked[0] if isinstance(checked, tuple) else checked, names)
        if bad is not None:
            raise InvalidData(bad)
        return checked

    def _check_rows(self, source: RowSource, y: Any, reset: bool) -> None:
        """Check the public facts of rows that are read in blocks; values are checked whenever they are read."""
        n, n_features = source.shape
        if y is not None and len(y) != n:
            raise InvalidData(other_lengths(n, len(y)))
        if reset:
            self.n_features_in_ = n_features
            vars(self).pop("feature_names_in_", None)
            if source.names is not None:
                self.feature_names_in_ = np.asarray(source.names, dtype=object)
        elif n_features != self.n_features_in_:
            raise InvalidData(
                f"X has {n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} features."
            )
        elif source.names is not None and list(getattr(self, "feature_names_in_", source.names)) != source.names:
            raise InvalidData(OTHER_NAMES)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave an earlier model as it was if the fit is refused or interrupted."""
        written = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in written if name in vars(self)}
        try:
            yield
        except BaseException:
            for name in written:
                vars(self).pop(name, None)
            vars(self).update(before)
            raise


def _source_or_table(X: Any) -> Any:
    """Return the reader of a table that is read in blocks, or any other table as it is."""
    source = row_source(X)
    return X if source is None else source


def _refusal(X: Any, message: str, numbers: bool) -> InvalidData:
    """Return the error for data that were refused with this message, which may hold values."""
    text = any(words in message for words in ("convert string", "bytes/strings", "argument must be", "array element"))
    found = not_numbers_error(X) if text else None
    if found is None or (str(found) == NUMBERS_ONLY and numbers):  # it may be y
        return InvalidData(without_values(message, numbers))
    return found


def without_values(message: str, numbers: bool = False) -> str:
    """Return a message of scikit-learn or numpy in a form that shows none of the data.

    >>> without_values("could not convert string to float: 'Mrs. Smith'")
    'X must hold numbers only: encode text columns by a rule that is public.'
    """
    if (lengths := _OTHER_LENGTHS.match(message)) is not None:
        return other_lengths(int(lengths[1]), int(lengths[2]))
    for beginning, cut in _HARMLESS.items():
        if message.startswith(beginning):
            return message if cut is None else message.split(cut)[0].rstrip(".") + "."
    if message.startswith(("Expected 2D array", "Expected a 2-dimensional container")):
        return "Reshape your data: X must have two dimensions, and X.reshape(-1, 1) makes one column of a list."
    if message.startswith("Unknown label type: unknown"):
        return "Unknown label type: y mixes labels of several kinds; give all as text or all as whole numbers."
    if message.startswith("Unknown label type"):
        return message.split(". ")[0].rstrip(".") + ": y must hold class labels."
    if message.startswith("Input y contains"):
        return Y_NOT_FINITE
    if "convert string" in message or "bytes/strings" in message:
        return "X and y must hold numbers only: encode text by a rule that is public." if numbers else NUMBERS_ONLY
    return "these data cannot be used: X must be a table of numbers and y one label or number per row."


def how_to_declare(regression: bool, n_features: int, names: Sequence[str] | None, boolean: BoolArray | None) -> str:
    """Return the sentence that shows what to write for these columns.

    >>> print(how_to_declare(True, 2, ["age", "sex"], np.array([False, True])))  # doctest: +NORMALIZE_WHITESPACE
    bounds are not declared: write bounds=Bounds(features=({'age': lo}, {'age': hi}), target=(lo, hi)) with publicly
    known numbers for every lo and hi (columns of type bool need none), or bounds=None to buy them with part of the
    budget.
    """
    open_columns = np.ones(n_features, bool) if boolean is None else ~boolean
    parts, more = [], ""
    if open_columns.any():
        named = None if names is None else [name for name, is_open in zip(names, open_columns, strict=True) if is_open]
        if named is None:
            few = n_features <= _MOST_LISTED
            features = f"({_listed('lo', n_features)}, {_listed('hi', n_features)})" if few else "(lo, hi)"
            more = f" (one pair for all {n_features} columns, or two lists with a number for each)"
        elif len(named) <= _MOST_NAMED:
            low, high = ("{" + ", ".join(f"{name!r}: {end}" for name in named) + "}" for end in ("lo", "hi"))
            features = f"({low}, {high})"
        else:
            features = "(lo, hi)"
            more = f" (one pair for all {len(named)} columns, or two dicts with a number for each name)"
        parts.append(f"features={features}")
    parts.append("target=(lo, hi)" if regression else "classes=[...]")
    known = " (columns of type bool need none)" if boolean is not None else ""
    labels = "" if regression else " and all labels in classes"
    return (
        f"bounds are not declared: write bounds=Bounds({', '.join(parts)}){more} with publicly known numbers for every "
        f"lo and hi{known}{labels}, or bounds=None to buy them with part of the budget."
    )


def _listed(word: str, count: int) -> str:
    return "[" + ", ".join([word] * count) + "]"

"""Sentences for people: errors that show none of the data, and what to write to declare bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dperm.data.tables.frames import NUMBERS_ONLY
from dperm.types import BoolArray

__all__ = ["Y_NOT_FINITE", "how_to_declare", "without_values"]

Y_NOT_FINITE = "y contains NaN or infinite values: remove those rows."

_MOST_LISTED = 8
_MOST_NAMED = 40

# Beginnings of scikit-learn's messages that tell of shapes, types and column names only, and where each is cut off.
_HARMLESS = {
    "The feature names should match": None,
    "X has ": None,
    "Found array with": None,
    "Found input variables with inconsistent numbers of samples": None,
    "This ": None,
    "y should be a 1d array": None,
    "Expected array-like": None,
    "Complex data not supported": "\n",
}


def without_values(message: str, numbers: bool = False) -> str:
    """Return a message of scikit-learn or numpy in a form that shows none of the data.

    >>> without_values("could not convert string to float: 'Mrs. Smith'")
    'X must hold numbers only: encode text columns by a rule that is public.'
    """
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

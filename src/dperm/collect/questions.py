"""The questions of a collection in words, as its page states them.

``page/questions.js`` computes the same texts in the browser; a test compares the two for every kind of collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dperm.collect.description import Collection

__all__ = ["question_text"]

_POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def question_text(collection: Collection, j: int) -> str:
    """Return question ``j`` in words; a column's name stands for the column scaled to its range."""
    document = collection.document()
    sketch, columns = document["task"]["sketch"], document["columns"]
    if sketch["kind"] == "moments":
        return _moment(sketch["exponents"][j], columns, document["record"], collection.estimate_model.target)
    if sketch["kind"] == "chebyshev":
        return " × ".join(f"T{e}({name})" for e, name in zip(sketch["degrees"][j], columns, strict=True) if e)
    if sketch["kind"] == "theta-grid":
        return f"the loss of weights {', '.join(_short(w) for w in sketch['nodes'][j])}"
    return _parity(j, document["sizes"], columns)


def _moment(powers: Sequence[int], columns: Sequence[str], record: Any, target: dict[str, Any]) -> str:
    classes = target.get("classes", ())
    names = [*columns, *(["1"] if record["constant"] else []), *(["target"] if "range" in target else [])]
    names += [f"[{_label(label)}]" for label in classes] if len(classes) > 2 else []
    parts = ["target"] if len(classes) == 2 and sum(powers) % 2 else []
    parts += [name + (_POWERS[e] if e > 1 else "") for name, e in zip(names, powers, strict=True) if e and name != "1"]
    return " × ".join(parts)


def _parity(j: int, sizes: Sequence[int], columns: Sequence[str]) -> str:
    """Sets of columns, small ones first, each size in increasing order of its masks (combinatorial numbers)."""
    size = 1
    while j >= sizes[size - 1]:
        j -= sizes[size - 1]
        size += 1
    chosen: list[str] = []
    for r in range(size, 0, -1):
        column, below, upto = r - 1, 0, 1
        while upto <= j:
            column, below = column + 1, upto
            upto = upto * (column + 1) // (column + 1 - r)
        j -= below
        chosen.insert(0, columns[column])
    return f"whether an even number of {', '.join(chosen)} holds" if len(chosen) > 1 else f"not {chosen[0]}"


def _short(value: float) -> str:
    """Four digits, as JavaScript writes them."""
    rounded = float(f"{value:.4g}")
    return str(int(rounded)) if rounded.is_integer() else repr(rounded)


def _label(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)

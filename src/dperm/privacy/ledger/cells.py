"""Cells of raw tables as 64-bit words, the same for every file format.

A number is the bits of its double, whether a file stores it as a number or as text. ``true`` and ``false`` are 1 and 0,
as in a column of type bool. A missing value is one word of its own, whether it is an empty cell, a null or NaN. Every
other text is a keyed hash of its letters without the spaces around them.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.types import AnyArray

__all__ = ["CellWords"]

_MISSING = 0x7FF8000000000000  # the usual NaN
_BOOLEAN = {"true": 1.0, "false": 0.0}
#: texts whose words are remembered; a table of long free texts must not fill the memory
_MOST_REMEMBERED = 1 << 18


class CellWords:
    """Turns columns into words; equal texts are hashed once."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[Any, int] = {}

    def of(self, column: AnyArray | list[Any]) -> NDArray[np.uint64]:
        """Return one word per cell of a column of doubles (NaN if missing) or of texts (None if missing)."""
        if not isinstance(column, np.ndarray):
            try:
                column = np.array([float(text) if text else np.nan for text in column], np.float64)
            except ValueError:
                return np.fromiter(map(self._word, column), np.uint64, len(column))
        words: NDArray[np.uint64] = np.asarray(column, np.float64).view(np.uint64)
        missing = np.isnan(column)
        return np.where(missing, np.uint64(_MISSING), words) if missing.any() else words

    def _word(self, text: str | None) -> int:
        word = self._known.get(text)
        if word is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            word = self._known[text] = self._new_word("" if text is None else text.strip())
        return word

    def _new_word(self, text: str) -> int:
        if not text:
            return _MISSING
        try:
            number = _BOOLEAN[text.lower()] if text.lower() in _BOOLEAN else float(text)
        except ValueError:
            code = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key).digest()
            return int.from_bytes(code, "little")
        return _MISSING if number != number else int(struct.unpack("<Q", struct.pack("<d", number))[0])

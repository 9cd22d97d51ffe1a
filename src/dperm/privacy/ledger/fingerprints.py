"""Fingerprints that let an owner recognise a renamed copy of a data set.

A fingerprint is a function of the data, so it is keyed (HMAC-SHA256): without the key, which is kept outside
the ledger, nobody can test guesses of the data against it. Another user has another key and recognises nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from dperm.atomic_files import create_exclusively, user_folder
from dperm.errors import LedgerError
from dperm.types import AnyArray

__all__ = ["KEY_FILE", "fingerprint", "user_key"]

KEY_FILE = "fingerprint.key"
_KEY_BYTES = 32
_CHUNK = 1 << 20  # elements converted at a time, so that a large array is not copied whole


def user_key() -> bytes:
    """Return this user's key, made at first use with mode 0600."""
    path = user_folder() / KEY_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with create_exclusively(path) as draft:
                draft.write_text(os.urandom(_KEY_BYTES).hex(), encoding="ascii")
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise LedgerError(
            f"the fingerprint key {path} cannot be used ({error.strerror}): set DPERM_HOME to a folder you may write."
        ) from None
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise LedgerError(f"the fingerprint key {path} is damaged: restore it, or delete it to make a new one.")
    return key


def fingerprint(arrays: Iterable[Any], key: bytes) -> str:
    """HMAC-SHA256 of the arrays' shapes and values; memory order and numeric type do not matter.

    A table that has ``blocks()`` is read block by block and has the fingerprint of the same array in memory.
    """
    code = hmac.new(key, digestmod=hashlib.sha256)
    for array in arrays:
        table = array if hasattr(array, "blocks") else np.asarray(array)
        code.update(repr(table.shape).encode())
        for block in _row_blocks(table) if isinstance(table, np.ndarray) else table.blocks():
            flat = block.reshape(-1)
            for start in range(0, flat.size, _CHUNK):
                code.update(_bytes_of(flat[start : start + _CHUNK]))
    return code.hexdigest()


def _row_blocks(array: AnyArray) -> Iterable[AnyArray]:
    """Split an array into parts that can be flattened without copying the whole array."""
    if array.flags.c_contiguous or array.ndim < 2:
        return (array,)
    rows = max(1, _CHUNK * len(array) // max(array.size, 1))
    return (array[start : start + rows] for start in range(0, len(array), rows))


def _bytes_of(part: AnyArray) -> bytes:
    if part.dtype.kind in "biuf":
        return (part.astype("<f8") + 0.0).tobytes()  # + 0.0 turns -0.0 into 0.0
    # labels and categories: length-prefixed text, so that ("ab", "c") differs from ("a", "bc")
    texts = [str(value).encode("utf-8", "surrogatepass") for value in part.tolist()]
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)

"""The hash chain: every row names the digest of the row before it, so edits and rollbacks are detected.

A row is a number, the previous digest, a canonical JSON payload and SHA-256 of the three. The chain has no
secret: someone who may write the file can forge a whole new chain, but not one that contains a head printed
earlier.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dperm.errors import LedgerTampered

__all__ = ["Row", "canonical", "check", "link"]

_BEFORE_FIRST = "0" * 64


@dataclass(frozen=True)
class Row:
    """One line of the ledger as it is stored."""

    seq: int
    previous: str
    payload: str
    digest: str

    def data(self) -> dict[str, Any]:
        """Return the payload as plain data."""
        found = json.loads(self.payload)
        if not isinstance(found, dict):
            raise LedgerTampered(f"row {self.seq} of the ledger holds no record: restore it from a backup.")
        return found


def canonical(payload: dict[str, Any]) -> str:
    """Write plain data as JSON in exactly one way: sorted keys, no spaces, no NaN, floats by repr.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain_number)


def _plain_number(value: Any) -> int | float:
    """Turn a numpy scalar into the Python number that JSON can write."""
    try:
        return operator.index(value)
    except TypeError:
        return float(value)


def _digest(seq: int, previous: str, payload: str) -> str:
    return hashlib.sha256(f"{seq}\n{previous}\n{payload}".encode()).hexdigest()


def link(newest: Row | None, payloads: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the rows that continue the chain after ``newest`` (None starts a chain)."""
    rows: list[Row] = []
    for payload in payloads:
        text = canonical(payload)
        seq = newest.seq + 1 if newest else 1
        previous = newest.digest if newest else _BEFORE_FIRST
        newest = Row(seq, previous, text, _digest(seq, previous, text))
        rows.append(newest)
    return rows


def check(newest: Row | None, rows: Iterable[Row]) -> None:
    """Raise :class:`~dperm.errors.LedgerTampered` unless ``rows`` continue the chain after ``newest``."""
    for row in rows:
        expected = newest.seq + 1 if newest else 1
        if row.seq != expected:
            raise LedgerTampered(
                f"the ledger's hash chain breaks at row {expected}, which is missing: restore it from a backup."
            )
        if row.previous != (newest.digest if newest else _BEFORE_FIRST) or row.digest != _digest(
            row.seq, row.previous, row.payload
        ):
            raise LedgerTampered(
                f"the ledger's hash chain breaks at row {row.seq}: it was edited after it was written, "
                "restore the ledger from a backup."
            )
        newest = row

"""Read the reports that devices send: JSON with one or many reports, or packed ones. No other body is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.service.tokens import CODE_BYTES, valid
from dperm.collect.store.store import Entry

__all__ = ["MOST_BYTES", "MOST_REPORTS", "PACKED", "Rejected", "pack", "read_json", "read_packed"]

#: content type of packed reports: the task's hash (32 bytes), then 21 bytes per report: id, j and b, little-endian;
#: with tokens 37, the token's code last
PACKED = "application/vnd.dperm.reports"
MOST_BYTES = 1 << 20
MOST_REPORTS = 20_000

_PLAIN = np.dtype([("key", "<i8"), ("secret", "<u8"), ("j", "<u4"), ("b", "u1")])
_WITH_CODE = np.dtype([*_PLAIN.descr, ("code", f"V{CODE_BYTES}")])
_KEYS = {"id", "j", "b"}
_HEX32, _HEX64 = re.compile(r"[0-9a-f]{32}\Z"), re.compile(r"[0-9a-f]{64}\Z")


class Rejected(Exception):
    """A refused body: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def read_json(
    body: bytes,
    name: str,
    known: Mapping[str, Collection],
    key: bytes | None,
    *,
    operator: bool = False,
    claimed: bool = False,
) -> Entry:
    """Read ``{"task", "id", "j", "b"}`` or ``{"task", "reports": [{"id", "j", "b"}, ...]}``.

    Only the operator may send several reports: a batch of made-up ones would cost an attacker nothing.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise Rejected(400, "the body is not JSON.") from None
    if not isinstance(given, dict):
        raise Rejected(400, "the body must be one JSON object.")
    collection = _collection(given.pop("task", None), name, known)
    reports = given.get("reports")
    if reports is None:
        reports = [given]
    elif len(given) != 1 or not isinstance(reports, list) or not reports:
        raise Rejected(400, "reports must be a list of at least one report, with nothing else beside it but the task.")
    _check_number(len(reports), operator, claimed)
    fields = _KEYS | {"token"} if collection.tokens else _KEYS
    size, levels, digest = collection.task.sketch.size, collection.task.n_levels, collection.digest
    keys, secrets, cells = [], [], []
    for one in reports:
        if not isinstance(one, dict) or one.keys() != fields:
            raise Rejected(400, f"a report holds {', '.join(sorted(fields))} and nothing else.")
        id16 = _bytes16(one["id"], "id")
        j, b = one["j"], one["b"]
        if type(j) is not int or type(b) is not int:
            j, b = _as_whole(j), _as_whole(b)
        if type(j) is not int or not 0 <= j < size or type(b) is not int or not 0 <= b < levels:
            raise Rejected(400, f"j must be a whole number from 0 to {size - 1}, and b one from 0 to {levels - 1}.")
        if collection.tokens:
            _check_token(key, digest, id16, _bytes16(one["token"], "token"))
        keys.append(int.from_bytes(id16[:8], "little", signed=True))
        secrets.append(int.from_bytes(id16[8:], "little"))
        cells.append(j * levels + b)
    return Entry(digest, keys, secrets, cells)


def read_packed(
    body: bytes,
    name: str,
    known: Mapping[str, Collection],
    key: bytes | None,
    *,
    operator: bool = False,
    claimed: bool = False,
) -> Entry:
    """Read packed reports; only the operator may send several."""
    collection = _collection(body[:32].hex(), name, known)
    kind = _WITH_CODE if collection.tokens else _PLAIN
    n, rest = divmod(len(body) - 32, kind.itemsize)
    if n < 1 or rest:
        raise Rejected(400, f"packed reports are 32 bytes and then {kind.itemsize} bytes for every report.")
    _check_number(n, operator, claimed)
    rows = np.frombuffer(body, kind, offset=32)
    size, levels = collection.task.sketch.size, collection.task.n_levels
    if int(rows["j"].max()) >= size or int(rows["b"].max()) >= levels:
        raise Rejected(400, f"j must be a whole number from 0 to {size - 1}, and b one from 0 to {levels - 1}.")
    if collection.tokens:
        for start in range(32, len(body), kind.itemsize):
            id16, given = body[start : start + 16], body[start + _PLAIN.itemsize : start + kind.itemsize]
            _check_token(key, collection.digest, id16, given)
    cells = rows["j"].astype(np.int64) * levels + rows["b"]
    return Entry(collection.digest, rows["key"].astype(np.int64), rows["secret"].astype(np.uint64), cells)


def pack(digest: str, ids: bytes, j: Any, b: Any) -> bytes:
    """Pack reports without tokens: ``ids`` holds 16 bytes for each."""
    rows = np.empty(len(ids) // 16, _PLAIN)
    halves = np.frombuffer(ids, [("key", "<i8"), ("secret", "<u8")])
    rows["key"], rows["secret"], rows["j"], rows["b"] = halves["key"], halves["secret"], j, b
    return bytes.fromhex(digest) + rows.tobytes()


def _check_number(n: int, operator: bool, claimed: bool) -> None:
    if n > MOST_REPORTS:
        raise Rejected(413, f"one request may hold at most {MOST_REPORTS} reports: send them in parts.")
    if n > 1 and not operator:
        needed = "several reports in one request need the operator's secret"
        wrong = f"the secret is wrong: {needed}, which is in the file of `serve --batch-secret`."
        raise Rejected(403, wrong if claimed else f"{needed}: send every report by itself.")


def _collection(digest: Any, name: str, known: Mapping[str, Collection]) -> Collection:
    found = known.get(digest) if isinstance(digest, str) and _HEX64.match(digest) else None
    if found is None or found.name != name:
        raise Rejected(400, "the hash in this report is not that of a description of this collection.")
    return found


def _as_whole(value: Any) -> Any:
    """JSON has one type of number: 5.0 is the whole number 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes16(text: Any, what: str) -> bytes:
    if not isinstance(text, str) or not _HEX32.match(text):
        raise Rejected(400, f"{what} must be 32 lower-case hexadecimal digits.")
    return bytes.fromhex(text)


def _check_token(key: bytes | None, digest: str, id16: bytes, given: bytes) -> None:
    if key is None or not valid(key, digest, id16, given):
        raise Rejected(403, "the token is not one of this collection's.")

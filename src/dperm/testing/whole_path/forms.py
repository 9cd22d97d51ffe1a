"""Takes anything apart into named leaves of bytes, so that two results can be compared to the last bit.

A difference is reported by the path to it and never by its value, which may be private.
"""

from __future__ import annotations

import enum
import re
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from dperm.privacy.ledger import Ledger
from dperm.privacy.randomness import RandomSource

__all__ = ["Leaves", "Replacements", "differences", "exported", "leaves_of"]

#: path of every leaf, and its type with its bytes
Leaves = dict[str, tuple[str, bytes]]

#: objects that hold no values: only their type is compared
_WITHOUT_VALUES = (types.ModuleType, type(threading.Lock()), type(threading.RLock()))
_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?"


def leaves_of(thing: Any, name: str = "") -> Leaves:
    """Return all leaves of a value: arrays with type and shape, the order of keys, attributes of objects, and so on.

    >>> list(leaves_of({"a": [1, 2.0]}, "x"))
    ['x', 'x keys', "x['a']", "x['a'][0]", "x['a'][1]"]
    """
    out: Leaves = {}
    _Walk(out).visit(thing, name)
    return out


def differences(one: Leaves, two: Leaves) -> list[str]:
    """Return the paths at which two results differ, in the order of the first one."""
    return [path for path in dict.fromkeys((*one, *two)) if one.get(path) != two.get(path)]


def exported(ledger: Ledger) -> dict[str, Any]:
    """Return what may be exported of a ledger, without the hashes, which follow from the rows, keys and times."""
    found = ledger.export()
    rows = [{key: value for key, value in row.items() if key != "hash"} for row in found["entries"]]
    return {**found, "entries": rows, "head": None}


class Replacements:
    """Texts that differ from run to run by design: random ids and hashes of the ledger's rows, and times.

    Each is known from the place that made it, so nothing else is left out of the comparison.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def add(self, text: str, meaning: str) -> None:
        """Replace ``text`` by its meaning and the number of its first appearance."""
        self._known[text.encode()] = meaning

    def applied(self, leaves: Leaves) -> Leaves:
        """Return the leaves with all replacements made."""
        pattern = re.compile(b"|".join((*map(re.escape, self._known), _TIME)))
        numbers: dict[bytes, int] = {}

        def replace(found: re.Match[bytes]) -> bytes:
            meaning = self._known.get(found[0])
            return (
                b"<time>" if meaning is None else f"<{meaning} {numbers.setdefault(found[0], len(numbers))}>".encode()
            )

        return {path: (kind, pattern.sub(replace, value)) for path, (kind, value) in leaves.items()}


class _Walk:
    def __init__(self, out: Leaves) -> None:
        self._out = out
        self._seen: dict[int, tuple[str, Any]] = {}  # keeps what it names, so that no id is used twice

    def visit(self, thing: Any, path: str) -> None:
        """Add the leaves of one value."""
        leaf = _leaf(thing)
        if leaf is not None:
            self._out[path] = (type(thing).__qualname__, leaf)
            return
        if id(thing) in self._seen:
            self._out[path] = ("the same object", self._seen[id(thing)][0].encode())
            return
        self._seen[id(thing)] = path, thing
        kind = type(thing)
        parts = list(_parts(thing))
        self._out[path] = (f"{kind.__module__}.{kind.__qualname__}", repr(len(parts)).encode())
        if isinstance(thing, Mapping):  # their order shows in files
            self._out[f"{path} keys"] = ("keys", repr([_key(key) for key in thing]).encode())
        for step, part in parts:
            self.visit(part, path + step)


def _leaf(thing: Any) -> bytes | None:
    """Return the bytes of a value that has no parts."""
    if thing is None or isinstance(thing, bool | int | str | complex | enum.Enum | PurePath | range | slice):
        return repr(thing).encode("utf-8", "surrogatepass") if not isinstance(thing, str) else _text(thing)
    if isinstance(thing, float):
        return float(thing).hex().encode()  # all bits, also of a numpy double
    if isinstance(thing, bytes | bytearray | memoryview):
        return bytes(thing)
    if isinstance(thing, np.generic):
        return thing.dtype.str.encode() + b" " + thing.tobytes()
    if isinstance(thing, np.dtype):
        return thing.str.encode()
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return f"{thing.dtype.str} {thing.shape} ".encode() + thing.tobytes()
    if isinstance(thing, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"{thing.__module__}.{thing.__qualname__}".encode()
    if isinstance(thing, _WITHOUT_VALUES):
        return b""
    if isinstance(thing, RandomSource):  # its key is secret, and what it drew shows in what was released
        return repr(thing).encode()
    return None


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container or the attributes of an object, each with its step in the path."""
    if isinstance(thing, Ledger):
        yield " exported", exported(thing)
    elif isinstance(thing, Mapping):
        yield from ((f"[{_key(key)}]", value) for key, value in thing.items())
    elif isinstance(thing, np.ndarray):
        yield " shape", thing.shape
        yield from ((f"[{k}]", part) for k, part in enumerate(thing.ravel().tolist()))
    elif isinstance(thing, list | tuple):
        yield from ((f"[{k}]", part) for k, part in enumerate(thing))
    elif isinstance(thing, set | frozenset):
        yield from ((f"{{{k}}}", part) for k, part in enumerate(sorted(thing, key=repr)))
    if not isinstance(thing, Ledger):
        yield from ((f".{name}", getattr(thing, name)) for name in _attributes(thing) if hasattr(thing, name))


def _key(key: Any) -> str:
    return repr(key) if isinstance(key, str | int | float | bool | tuple | None) else type(key).__name__


def _attributes(thing: Any) -> Iterable[str]:
    slots = [name for cls in type(thing).__mro__ for name in _slots(cls)]
    return [*getattr(thing, "__dict__", {}), *slots]


def _slots(cls: type) -> tuple[str, ...]:
    given = vars(cls).get("__slots__", ())
    names = (given,) if isinstance(given, str) else tuple(given)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))

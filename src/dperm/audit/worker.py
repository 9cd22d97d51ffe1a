"""Runs an audited function in a process of its own; needs the standard library and numpy, not dperm.

The text of this file is given to the interpreter of the audited function's environment (``python -c``). It answers
requests on standard input, one at a time. A message is the length of a header (4 bytes), the length of arrays (8
bytes), the header as JSON, and the arrays as npz. Whatever the function prints is kept apart from the answers.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import random
import struct
import sys
import tempfile
import traceback
import warnings
from typing import Any, BinaryIO

import numpy as np

_LENGTHS = struct.Struct(">IQ")
#: nesting up to which attributes are followed, and most entries of one array or container that are told apart
_DEPTH, _MOST_ENTRIES = 6, 400
#: what is seen of a vector beside its numbers
_FORM = "form of the result"


class _Unusable(Exception):
    """The function cannot be used at all; the message goes to the person who audits."""


class _NoVector(Exception):
    """It did not return a vector of finite numbers on this table; it may on others, and that may be a leak."""


def _read_message(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the header and the arrays of the next message, or None at the end."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    n_header, n_arrays = _LENGTHS.unpack(lengths)
    header = json.loads(stream.read(n_header))
    body = stream.read(n_arrays)
    arrays: dict[str, Any] = {}
    if body:
        with np.load(io.BytesIO(body), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    return header, arrays


def _write_message(stream: BinaryIO, header: dict[str, Any], arrays: dict[str, Any] | None = None) -> None:
    """Write one message."""
    body = b""
    if arrays:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        body = buffer.getvalue()
    text = json.dumps(header).encode()
    stream.write(_LENGTHS.pack(len(text), len(body)) + text + body)
    stream.flush()


def _load(request: dict[str, Any]) -> Any:
    """Import the function; with ``arguments`` the name is that of a maker, which returns the function."""
    sys.path[:] = [*request["path"], *(one for one in sys.path if one not in request["path"])]
    module_name, name = request["module"], request["function"]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise _Unusable(f"there is no module {error.name!r} in this environment or in --path") from None
        raise _Unusable(f"module {module_name!r} needs {error.name!r}, which is not installed here") from None
    except Exception as error:
        raise _Unusable(f"module {module_name!r} cannot be imported: {_told(error)}") from None
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if not callable(found):
        raise _Unusable(f"module {module_name!r} has no function {name!r}")
    if request.get("arguments") is not None:
        return found(**request["arguments"])
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return found  # compiled functions may have no signature
    try:
        signature.bind(None, None)
    except TypeError:
        raise _Unusable(f"it must take fit(X, y), a table and its target, but takes {name}{signature}") from None
    return found


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Return the file and line where the error was raised; this program itself is not meant for readers."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != "<string>"]
    return f"{os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""


def _vector(returned: Any) -> tuple[Any, Any]:
    """Return the released vector, and the object beside it whose attributes are published too (or None)."""
    beside = None
    if isinstance(returned, tuple) and len(returned) == 2 and not isinstance(returned[1], int | float | np.number):
        returned, beside = returned
    elif hasattr(returned, "coef_"):
        beside = returned
        parts = [np.ravel(returned.coef_), np.ravel(getattr(returned, "intercept_", []))]
        returned = np.concatenate(parts)
    if returned is None:
        raise _NoVector("it returned None: return the vector that is released")
    try:
        vector = np.asarray(returned, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        raise _NoVector(f"it returned {type(returned).__name__}, which is not a vector of numbers") from None
    if vector.size == 0:
        raise _NoVector("it returned an empty vector")
    return vector, beside


def _leaves(value: Any, name: str, out: dict[str, str], depth: int, above: tuple[int, ...]) -> None:
    """Write every plain value that can be reached through attributes, entries and keys as text."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        out[name] = f"{type(value).__name__} {value!r}"
        return
    if depth == 0 or id(value) in above:
        return
    above = (*above, id(value))
    if isinstance(value, np.ndarray):
        out[f"{name}.shape"] = str(value.shape)
        if value.dtype == object:
            value = value.tolist()
        else:
            for i, one in enumerate(value.ravel()[:_MOST_ENTRIES].tolist()):
                out[f"{name}[{i}]"] = repr(one)
            if value.size > _MOST_ENTRIES:
                out[f"{name}[{_MOST_ENTRIES}...]"] = repr(value.ravel()[_MOST_ENTRIES:].tobytes())
            return
    if isinstance(value, dict):
        for key, one in list(value.items())[:_MOST_ENTRIES]:
            _leaves(one, f"{name}[{key!r}]", out, depth - 1, above)
    elif isinstance(value, list | tuple):
        out[f"{name}.length"] = str(len(value))
        for i, one in enumerate(value[:_MOST_ENTRIES]):
            _leaves(one, f"{name}[{i}]", out, depth - 1, above)
    elif isinstance(value, set | frozenset):
        out[name] = repr(sorted(map(repr, value)))
    elif not isinstance(value, type) and not callable(value):
        for key, one in _attributes(value).items():
            _leaves(one, f"{name}.{key}" if name else key, out, depth - 1, above)


def _attributes(value: Any) -> dict[str, Any]:
    """Return the public attributes, and the private ones that a pickle of the object has: models are published so."""
    slots = [one for kind in type(value).__mro__ for one in _slots(kind) if hasattr(value, one)]
    found = {key: getattr(value, key, None) for key in [*getattr(value, "__dict__", ()), *slots]}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reduced = value.__reduce_ex__(2)
    except Exception:
        reduced = ()  # it cannot be pickled, so nobody gets its private attributes
    state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    parts = state if isinstance(state, tuple) else (state,)
    pickled = {key for part in parts if isinstance(part, dict) for key in part}
    return {key: one for key, one in found.items() if not str(key).startswith("_") or key in pickled}


def _slots(kind: type) -> tuple[str, ...]:
    slots = getattr(kind, "__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


class _Worker:
    """Holds the function and the tables."""

    def __init__(self) -> None:
        self.function: Any = None
        self.tables: dict[str, Any] = {}

    def call(self, name: str) -> tuple[Any, Any]:
        """Call the function once, on copies: it may change its arguments."""
        X, y = self.tables[name]
        return _vector(self.function(X.copy(), y.copy()))

    def finite(self, name: str) -> Any:
        """Call the function once and return its vector of finite numbers."""
        vector, _ = self.call(name)
        if not np.isfinite(vector).all():
            raise _NoVector("it returned NaN or an infinite number")
        return vector

    def answer(self, request: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Answer one request."""
        kind = request["kind"]
        if kind == "load":
            self.function = _load(request)
            return {}, None
        if kind == "table":
            self.tables[request["name"]] = (arrays["X"], arrays["y"])
            return {}, None
        if kind == "observe":
            return {"seen": [self.observe(name) for name in request["tables"]]}, None
        if kind == "forked":
            return {}, {"outputs": np.stack([_in_child(self, name) for name in request["tables"]])}
        outputs = []
        for name in request["tables"]:
            if request.get("seed") is not None:
                _seed_global_generators(request["seed"])
            outputs.append(self.finite(name))
        if len({len(one) for one in outputs}) > 1:
            raise _NoVector("it returned vectors of different lengths")
        return {}, {"outputs": np.stack(outputs)}

    def observe(self, name: str) -> dict[str, str]:
        """Call the function once and return all that can be seen: result, attributes, warnings, printed text, error."""
        seen: dict[str, str] = {}
        with tempfile.TemporaryFile() as printed, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            before = os.dup(1), os.dup(2)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            try:
                vector, beside = self.call(name)
            except _NoVector as error:
                seen[_FORM] = str(error)
            except Exception as error:
                seen["error"] = _told(error)
            else:
                odd = "" if np.isfinite(vector).all() else ", some of them NaN or infinite"
                seen[_FORM] = f"{len(vector)} numbers{odd}"
                _leaves(vector, "output", seen, _DEPTH, ())
                _leaves(beside, "", seen, _DEPTH, ())
                seen.pop("", None)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                for target, saved in zip((1, 2), before, strict=True):
                    os.dup2(saved, target)
                    os.close(saved)
            printed.seek(0)
            seen["printed text"] = printed.read().decode(errors="replace")
        texts = sorted({f"{one.category.__name__}: {one.message}" for one in warned})
        seen["warnings"] = "; ".join(texts)
        return seen


def _seed_global_generators(seed: int) -> None:
    """Do what many programs do at their start."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def _in_child(worker: _Worker, name: str) -> Any:
    """Call the function in a forked process, which starts with the memory of this one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, worker.finite(name).tobytes())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        body = stream.read()
    os.waitpid(child, 0)
    if not body:
        raise _NoVector("it fails in a forked process")
    return np.frombuffer(body)


def main() -> None:
    """Answer requests until the other side closes."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    worker = _Worker()
    while (message := _read_message(requests)) is not None:
        try:
            with warnings.catch_warnings():
                if message[0]["kind"] != "observe":
                    warnings.simplefilter("ignore")
                header, arrays = worker.answer(*message)
        except _Unusable as error:
            header, arrays = {"unusable": str(error)}, None
        except _NoVector as error:
            header, arrays = {"no_vector": str(error)}, None
        except KeyboardInterrupt:
            return
        except BaseException as error:
            header, arrays = {"raised": _told(error), "place": _place(error)}, None
        _write_message(answers, header, arrays)


if __name__ == "__main__":
    main()

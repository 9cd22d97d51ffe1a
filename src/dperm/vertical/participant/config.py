"""A participant's configuration: one small TOML file; unknown settings are refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from dperm.errors import InvalidInput
from dperm.solvers.vertical.views import VIEWS
from dperm.vertical.identity.names import require_safe_name

__all__ = ["Allowed", "Config", "LedgerSettings", "RunSettings", "TableSource", "read_config"]

T = TypeVar("T")


@dataclass(frozen=True)
class TableSource:
    """A table: its file, its identifier column, and the row order that alignment wrote."""

    file: Path
    id: str | None = None
    order: Path | None = None


@dataclass(frozen=True)
class LedgerSettings:
    """The participant's own ledger and cap."""

    file: str
    dataset: str
    epsilon: float | None = None
    delta: float = 1e-6


@dataclass(frozen=True)
class Allowed:
    """What this party agrees to, whichever coordinator asks."""

    methods: tuple[str, ...] = ("connection-test", "align")
    epsilon: float = 0.0
    delta: float = 1e-6
    neighbours: tuple[str, ...] = ("replace-one",)
    views: tuple[str, ...] = tuple(VIEWS)
    #: other participants besides the coordinator; empty admits every participant with a certificate
    parties: tuple[str, ...] = ()
    secure_sum: bool = False
    #: also admit runs without a guarantee, and a ledger without a cap
    insecure: bool = False


@dataclass(frozen=True)
class RunSettings:
    """What the coordinator wants to compute."""

    name: str
    method: str
    parties: tuple[str, ...]
    secure_sum: bool = False
    out: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """A participant's settings; a coordinator has ``listen`` and ``run``, a party has ``coordinator``.

    Relative paths start at the configuration's own folder.
    """

    path: Path
    name: str
    keys: Path
    state: Path
    coordinator: str | None = None
    listen: str | None = None
    revoked: Path | None = None
    audit: Path | None = None
    patience: float = 600.0
    limit: int = 1 << 30
    pause: float = 0.0
    rows: int | None = None
    data: TableSource | None = None
    predict: TableSource | None = None
    ledger: LedgerSettings | None = None
    allow: Allowed = Allowed()
    run: RunSettings | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)

    def need(self, what: str) -> Any:
        """Return a setting that a command requires."""
        value = getattr(self, what)
        if value is None or value == {}:
            raise InvalidInput(f"{self.path.name} has no `{what}`: add it, because this command needs it.")
        return value


_PARTS: dict[str, type] = {
    "data": TableSource,
    "predict": TableSource,
    "ledger": LedgerSettings,
    "allow": Allowed,
    "run": RunSettings,
}
_FREE = ("pins", "columns", "target", "options")


def read_config(path: Path) -> Config:
    """Read a configuration; unknown settings are refused."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"the configuration {str(path)!r} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"the configuration {str(path)!r} is not valid TOML: {error}.") from None
    if "path" in given:
        raise InvalidInput(f"{path.name} has an unknown setting `path`.")
    defaults = {"path": path, "keys": "keys", "state": "state"}
    config = _build(Config, {**defaults, **given}, path.resolve().parent, path.name)
    require_safe_name(config.name, f"name in {path.name}")
    return config


def _build(cls: type[T], given: Mapping[str, Any], folder: Path, where: str) -> T:
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise InvalidInput(f"{where} has an unknown setting `{key}`: allowed are {', '.join(sorted(known))}.")
        values[key] = _value(key, value, str(known[key].type), folder, where)
    for f in known.values():
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise InvalidInput(f"{where} lacks the setting `{f.name}`.")
    return cls(**values)


def _value(key: str, value: Any, kind: str, folder: Path, where: str) -> Any:
    if key in _PARTS and kind.split(" ")[0] == _PARTS[key].__name__:
        if not isinstance(value, dict):
            raise InvalidInput(f"`{key}` in {where} must be a section [{key}].")
        return _build(_PARTS[key], value, folder, f"[{key}] of {where}")
    if key in _FREE:
        if not isinstance(value, dict):
            raise InvalidInput(f"`{key}` in {where} must be a section [{key}].")
        return value
    if kind.startswith("Path"):
        return _expect(str, key, value, where) and (value if isinstance(value, Path) else folder / value)
    if kind.startswith("tuple"):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InvalidInput(f"`{key}` in {where} must be a list of texts.")
        return tuple(value)
    if kind.startswith("bool"):
        return _expect(bool, key, value, where)
    if kind.startswith("int"):
        return _expect(int, key, value, where)
    if kind.startswith("float"):
        return float(_expect((int, float), key, value, where))
    text = _expect(str, key, value, where)
    if key == "file":  # of a ledger: a path or the address of a server
        return text if "://" in text else str(folder / text)
    return text


def _expect(kind: Any, key: str, value: Any, where: str) -> Any:
    if isinstance(value, Path):
        return value
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = {str: "a text", bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise InvalidInput(f"`{key}` in {where} must be {wanted}.")
    return value

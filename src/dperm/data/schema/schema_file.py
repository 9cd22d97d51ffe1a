"""Schemas as TOML files that people read and edit, and as plain data inside a saved model."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from dperm.data.schema.schema import CATEGORY, CLASSES, DEFAULT_MISSING_VALUES, IGNORE, NUMBER, Column, Schema, Target
from dperm.errors import DpermError, InvalidBounds, InvalidInput

__all__ = ["confirmed_text", "parse_schema", "read_schema", "schema_to_dict", "schema_to_toml"]

FORMAT = 1

_HEADER = """\
# What is public about the columns of {table}, for `dperm fit`.
#
# The privacy guarantee depends on this file: every line must be known without looking at these data. Lines that a
# column lists as `unconfirmed` were read from the data. Replace each of them by a publicly known value (from a data
# dictionary, the law, physics) and delete the line `unconfirmed`. If all of them are already public, run
#     dperm schema --confirm {schema}
# A range that is too wide costs accuracy, one that is too narrow clips values; neither costs privacy.
"""

_TARGET_KEYS = {f.name for f in fields(Target)} - {"name"} | {"column"}
_COLUMN_KEYS = {f.name for f in fields(Column)} - {"name"}


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """Read a schema from a TOML file."""
    where = Path(path)
    try:
        data = tomllib.loads(where.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"the schema {str(where)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidBounds(f"the schema {str(where)!r} is not UTF-8 text: save it again in UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidBounds(f"the schema {str(where)!r} is not valid TOML: {error}.") from None
    try:
        return parse_schema(data)
    except DpermError as error:
        refused = error if isinstance(error, InvalidBounds) else InvalidBounds(str(error))
        refused.add_place(f"in {where.name}")
        raise refused from None


def parse_schema(data: Mapping[str, Any]) -> Schema:
    """Return the schema described by plain data; unknown keys are refused."""
    _refuse_unknown_keys(data, {"format", "missing_values", "target", "columns"}, "the schema")
    if data.get("format") != FORMAT:
        raise InvalidBounds(f"a schema must start with `format = {FORMAT}`: draft one with `dperm schema`.")
    target, columns = data.get("target"), data.get("columns")
    if not isinstance(target, Mapping) or not isinstance(target.get("column"), str):
        raise InvalidBounds("a schema needs a section [target] with the name of its column.")
    if not isinstance(columns, Mapping) or not all(isinstance(one, Mapping) for one in columns.values()):
        raise InvalidBounds("a schema needs a section [columns.<name>] for every column.")
    _refuse_unknown_keys(target, _TARGET_KEYS, "[target]")
    for name, one in columns.items():
        _refuse_unknown_keys(one, _COLUMN_KEYS, f"column {name!r}")
    return Schema(
        columns=tuple(Column(name, **_values(one, f"column {name!r}")) for name, one in columns.items()),
        target=Target(target["column"], **_values({k: v for k, v in target.items() if k != "column"}, "[target]")),
        missing_values=_texts(data.get("missing_values", list(DEFAULT_MISSING_VALUES)), "missing_values"),
    )


def _values(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    if "kind" not in given:
        raise InvalidBounds(f"{what} needs a kind: add a line `kind`.")
    out = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    for key in ("unconfirmed", "confirmed"):
        if key in out:
            out[key] = _texts(given[key], f"{key} of {what}")
    if "categories" in out:
        out["categories"] = tuple(str(one) for one in _list(given["categories"], f"categories of {what}"))
    return out


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidBounds(f"{what} must be a list.")
    return value


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not all(isinstance(one, str) for one in _list(value, what)):
        raise InvalidBounds(f"{what} must be a list of texts.")
    return tuple(value)


def _refuse_unknown_keys(given: Mapping[str, Any], keys: set[str], what: str) -> None:
    unknown = [key for key in given if key not in keys]
    if unknown:
        raise InvalidBounds(
            f"{what} must not have a line {unknown[0]!r}: possible lines are {', '.join(sorted(keys))}."
        )


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return plain data for JSON; :func:`parse_schema` reads them."""
    target = schema.target
    return {
        "format": FORMAT,
        "missing_values": list(schema.missing_values),
        "target": {"column": target.name, **_lines(target)},
        "columns": {column.name: _lines(column) for column in schema.columns},
    }


def _lines(part: Column | Target) -> dict[str, Any]:
    """Return the lines of a column in reading order, without empty ones."""
    out: dict[str, Any] = {"kind": part.kind}
    if part.kind == NUMBER:
        out |= {"low": part.low, "high": part.high}
    if isinstance(part, Column):
        if part.scale is not None:
            out["scale"] = part.scale
        if part.kind == CATEGORY:
            out["categories"] = list(part.categories)
        if part.kind != IGNORE:
            out["missing"] = part.missing
    elif part.kind == CLASSES:
        out["classes"] = list(part.classes)
    for key in ("unconfirmed", "confirmed"):
        if getattr(part, key):
            out[key] = list(getattr(part, key))
    return out


def schema_to_toml(
    schema: Schema, table: str = "a table", path: str = "schema.toml", notes: Mapping[str, str] | None = None
) -> str:
    """Return a schema as TOML for people; ``notes`` by column name become comments."""
    notes = notes or {}
    data = schema_to_dict(schema)
    lines = [
        *_comment(_HEADER.format(table=table, schema=shlex.quote(path))),
        "",
        f"format = {FORMAT}",
        f"missing_values = {_toml(data['missing_values'])}  # texts that mean: no value",
    ]
    parts = [("target", schema.target.name, data["target"])]
    parts += [(f"columns.{_key(name)}", name, part) for name, part in data["columns"].items()]
    for title, name, part in parts:
        lines += ["", f"[{title}]", *([f"# {_one_line(notes[name])}"] if name in notes else [])]
        lines += [f"{key} = {_toml(value)}" for key, value in part.items()]
    return "\n".join(lines) + "\n"


def confirmed_text(text: str) -> str:
    """Return the text of a schema with everything confirmed; comments and order do not change."""
    schema = parse_schema(tomllib.loads(text)).confirm()
    changed = re.sub(r"^(\s*)unconfirmed(\s*=)", r"\1confirmed\2", text, flags=re.MULTILINE)
    try:
        if parse_schema(tomllib.loads(changed)) == schema:
            return changed
    except (tomllib.TOMLDecodeError, DpermError):
        pass
    return schema_to_toml(schema)  # a column has both lines, or unusual formatting


def _comment(text: str) -> list[str]:
    return [line if line.startswith("#") else f"# {line}" for line in text.splitlines()]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, str):
        # JSON and TOML use the same escapes, except for one character that JSON does not escape
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)

"""Descriptions of collections: immutable, checked, the same wherever they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dperm.collect import Collection
from dperm.errors import InvalidInput


def test_a_description_survives_its_file(collections: dict[str, Collection], tmp_path: Path) -> None:
    for name, one in collections.items():
        one.write(tmp_path / name)
        again = Collection.read(tmp_path / name)
        assert (again.digest, again.text, again.task.digest) == (one.digest, one.text, one.task.digest)
        one.write(tmp_path / name)  # the same again is fine


def test_a_file_is_never_changed(collections: dict[str, Collection], tmp_path: Path) -> None:
    collections["logistic"].write(tmp_path / "x.json")
    with pytest.raises(InvalidInput, match="immutable"):
        collections["linear"].write(tmp_path / "x.json")


def test_everything_is_in_the_hash(logistic: Collection) -> None:
    others = [
        Collection("logistic", logistic.model, title="x"),
        Collection("logistic", logistic.model, version=2),
        Collection("logistic", logistic.model, window=60),
        Collection("logistic", logistic.model, tokens=True),
        Collection("logistic", {**logistic.model, "epsilon": 1.5}),
        Collection("logistic", {**logistic.model, "names": ["seconds", "mode"]}),
        Collection("other", logistic.model),
    ]
    assert len({logistic.digest, *(one.digest for one in others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("task", "floor"), 5),
        (("task", "epsilon"), 2.0),
        (("task", "thresholds"), [1]),
        (("low",), 0.0),
        (("sizes",), []),
        (("record", "clip"), 9.0),
        (("columns",), ["a", "b"]),
        (("model", "epsilon"), 2.0),
        (("model", "kind"), "pixels"),
        (("model", "surprise"), 1),
        (("model", "names"), 7),
        (("model", "bounds"), {"features": [[1.0, 1.0], [0.0, 0.0]]}),
        (("model",), None),
        (("name",), "Not A Name"),
        (("version",), 0),
        (("window",), -1),
        (("tokens",), "yes"),
        (("title",), 5),
        (("format",), "dperm collection 9"),
        (("extra",), 1),
    ],
)
def test_a_tampered_description_is_refused(path: tuple[str, ...], value: Any, logistic: Collection) -> None:
    data = json.loads(logistic.text)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InvalidInput):
        Collection.parse(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "dperm collection 1"}', "[" * 10_000, b"\xff"])
def test_other_texts_are_refused(text: Any) -> None:
    with pytest.raises(InvalidInput):
        Collection.parse(text)


def test_repeated_columns_are_refused(logistic: Collection) -> None:
    with pytest.raises(InvalidInput, match="different names"):
        Collection("x", {**logistic.model, "names": ["a", "a"]})


@pytest.mark.parametrize("name", ["health", "metrics", "v1"])
def test_reserved_names_are_refused(name: str, logistic: Collection) -> None:
    with pytest.raises(InvalidInput, match="its own page"):
        Collection(name, logistic.model)

"""Names of values: they must be the description's, and nothing but names and description decides on a refusal."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from programs import find_node

from dperm.collect import Collection
from dperm.collect.sdk import bundle
from dperm.collect.sdk.python import Device, RefusedTask, record
from dperm.collect.sdk.python.device import parse_task

NODE = find_node() or ""
needs_node = pytest.mark.skipif(not NODE, reason="neither node nor playwright is installed")

#: columns of descriptions, honest and forged
COLUMNS: list[Any] = [
    ["seconds", "mood"],
    ["mood", "seconds"],
    ["seconds", "renamed"],
    ["seconds"],
    ["seconds", "mood", "more"],
    ["seconds", "seconds"],
    ["seconds", "mood", "mood"],
    ["seconds,mood"],
    ["seconds", "__proto__"],
    ["__proto__", "constructor"],
    ["0", "1"],
    [0, 1],
    [],
    # no lists, though some have a length and contain names
    "ab",
    "",
    {"length": 2, "map": 1},
    None,
]
#: sets of names that an application gives
NAMES = [
    ["seconds", "mood"],
    ["seconds"],
    ["mood"],
    [],
    ["seconds", "mood", "more"],
    ["seconds", "__proto__"],
    ["__proto__", "constructor"],
    ["seconds,mood"],
    ["0", "1"],
    ["toString", "seconds"],
    ["a", "b"],
]
VALUES: list[Any] = [None, 0, 7.5, 1e308, "7", True, [], {}]

_PROGRAM = """
const { documents, given } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const made = async (d, x) => {
  const kept = {}, store = { getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = v; } };
  try { await dperm.report({ ...d, hash: "h" }, x, "left", { store }); return "made"; } catch { return "refused"; }
};
(async () => {
  const out = [];
  for (const d of documents) {
    out.push([]);
    // JSON makes __proto__ a name of its own
    for (const text of given) out.at(-1).push(await made(d, JSON.parse(text)));
  }
  const honest = documents[0], inherited = Object.create({ seconds: 1, mood: 0 });
  const half = Object.assign(Object.create({ mood: 0 }), { seconds: 1 });
  const hidden = Object.defineProperty({ seconds: 1 }, "mood", { value: 0, enumerable: false });
  const failing = { seconds: 1, get mood() { throw Error("private"); } };
  const undefineds = { seconds: undefined, mood: undefined };
  const others = [];
  const literal = { __proto__: { mood: 0 }, seconds: 1 };
  for (const x of [inherited, half, hidden, literal, failing, undefineds, [,,], [1], [1, 2, 3]])
    others.push(await made(honest, x));
  console.log(JSON.stringify([out, others]));
})();
"""


def _documents(one: Collection) -> list[dict[str, Any]]:
    return [{**one.document(), "columns": columns} for columns in COLUMNS]


def _given() -> list[dict[str, Any]]:
    """Every set of names with several combinations of values."""
    return [
        dict(zip(names, values, strict=False))
        for names in NAMES
        for values in itertools.islice(itertools.product(VALUES, repeat=3), 0, None, 37)
    ]


def _expected(columns: Any, x: dict[str, Any]) -> str:
    return "made" if isinstance(columns, list) and sorted(map(repr, columns)) == sorted(map(repr, x)) else "refused"


def _check(found: list[list[str]], given: list[dict[str, Any]]) -> None:
    for columns, answers in zip(COLUMNS, found, strict=True):
        assert answers == [_expected(columns, x) for x in given], columns
        by_names: dict[frozenset[str], set[str]] = {}
        for x, answer in zip(given, answers, strict=True):
            by_names.setdefault(frozenset(x), set()).add(answer)
        assert all(len(answers) == 1 for answers in by_names.values())  # whatever the values


@needs_node
def test_a_browser_refuses_by_names_alone(logistic: Collection) -> None:
    given = _given()
    texts = [json.dumps(x) for x in given]
    found, others = _node({"documents": _documents(logistic), "given": texts})
    _check(found, given)
    # inherited and hidden names are none; a value that fails is a missing value; a list needs the right length
    assert others == ["refused"] * 4 + ["made"] * 3 + ["refused"] * 2


def test_a_device_refuses_by_names_alone(logistic: Collection, tmp_path: Path) -> None:
    given, found, number = _given(), [], itertools.count()
    for document in _documents(logistic):
        found.append([])
        for x in given:
            try:
                device = Device(tmp_path / f"{next(number)}.json")
                device.report({**document, "hash": "h"}, x, "left")
                found[-1].append("made")
            except RefusedTask:
                found[-1].append("refused")
                assert not device.path.exists()
    _check(found, given)


def test_a_value_that_fails_is_a_missing_value(logistic: Collection, tmp_path: Path) -> None:
    class Failing(float):
        def __float__(self) -> float:
            raise RuntimeError("private")

    device = Device(tmp_path / "reports.json")
    assert len(device.report(parse_task(logistic.text), {"seconds": Failing(1.0), "mood": 0}, "left")) == 224


def test_lists_need_a_value_for_every_column(logistic: Collection) -> None:
    task = parse_task(logistic.text)
    for x in ([], [1], [1, 2, 3], (), (None,)):
        with pytest.raises(RefusedTask, match="a list needs 2 values"):
            record(task, x, "left")
    assert len(record(task, [None, None], "left")) == len(record(task, [1, 0], "left"))


def test_names_are_checked_before_a_stored_report_is_returned(logistic: Collection, tmp_path: Path) -> None:
    """Also a retry depends on names alone, and never on what is stored."""
    device, task = Device(tmp_path / "reports.json"), parse_task(logistic.text)
    device.report(task, [1, 0], "left")
    with pytest.raises(RefusedTask, match="a value for each of seconds, mood"):
        device.report(task, {"seconds": 1}, "left")


def _node(given: Any) -> Any:
    program = bundle.script() + _PROGRAM
    done = subprocess.run([NODE, "-e", program], input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

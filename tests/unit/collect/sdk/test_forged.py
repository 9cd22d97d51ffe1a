"""Forged descriptions: no client spends more epsilon than it checked, and no record prevents a report."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import find_node

from dperm.collect import Collection
from dperm.collect.sdk import bundle
from dperm.collect.sdk.python import Device, RefusedTask, answer, check, random_word, record
from dperm.collect.sdk.python.device import parse_task

WORDS = 2**32
#: forged descriptions of every collection
N_FORGED = 80

_ODD = [0, -1, 1, 0.5, 3, 1e308, -1e308, 5e-324, 1e-308, 1e300, -0.0, 2**31]
_FEW = [-1, 0, 0.5, 1, 2, 3]  # how often to multiply: large ones would take long
_STRANGE = ["7", "x", None, [], [1], {}, {"valueOf": 1, "toString": 1}, True]
_PEOPLE = [None, 0, 1e308, -1e308, 5e-324, 1, -2.5, True, "7"]

NODE = find_node() or ""
needs_node = pytest.mark.skipif(not NODE, reason="neither node nor playwright is installed")

_PROGRAM = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const tried = async (what) => { try { return await what(); } catch { return "raised"; } };
(async () => {
  const out = [];
  for (const { document, people, words } of cases) {
    const kept = {}, store = { getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = v; } };
    const d = { ...document, hash: "h" }, [x, y] = people[0];
    const checked = await tried(() => dperm.report(d, x, y, { store, cap: 99 }));
    const answers = [];
    for (const draws of words) for (const [x, y] of people) {
      let k = 0;
      answers.push(await tried(() => dperm.answer(document, dperm.record(document, x, y), () => draws[k++])));
    }
    out.push([checked != "raised", answers]);
  }
  console.log(JSON.stringify(out));
})();
"""


def _node(program: str, given: Any) -> Any:
    done = subprocess.run([NODE, "-e", program], input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _leaves(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(part, dict | list):
        if path:
            yield path
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _leaves(inner, (*path, key))
    elif isinstance(part, int | float):
        yield path


def _forged(document: dict[str, Any], rng: random.Random, strange: bool) -> dict[str, Any]:
    """Change some values of a description: numbers, lengths of lists, and with ``strange`` their types."""
    made = copy.deepcopy(document)
    for _ in range(rng.randint(1, 4)):
        parts = {"task": {key: made["task"].get(key) for key in ("sketch", "levels")}}
        parts |= {key: made[key] for key in ("low", "high", "record")}
        path = rng.choice([one for one in _leaves(parts) if one not in (("task",), ("task", "sketch"))] or [("low",)])
        inner: Any = made
        for key in path[:-1]:
            inner = inner[key]
        value = inner[path[-1]]
        if strange:
            inner[path[-1]] = rng.choice(_STRANGE)
        elif isinstance(value, list):
            if rng.random() < 0.5 or len(value) < 3:
                value.append(copy.deepcopy(value[-1]) if value else 1)
            else:
                value.pop()
        elif not isinstance(value, dict):
            inner[path[-1]] = rng.choice(_FEW if {"exponents", "degrees"} & set(path) else _ODD)
    return made


def _cases(collections: dict[str, Collection], strange: bool) -> list[dict[str, Any]]:
    rng, out = random.Random(5), []
    for one in collections.values():
        d, columns, target = one.document(), one.estimate_model.columns, one.estimate_model.target
        labels = target.get("classes", [3.0, None, 1e308, "x"])
        for _ in range(N_FORGED):
            people = [
                ([rng.choice(_PEOPLE[1:7] if k % 2 else _PEOPLE) for _ in columns], rng.choice([*labels, "nobody"]))
                for k in range(6)
            ]
            words = [[rng.randrange(WORDS) for _ in range(4)] for _ in range(3)]
            # the outermost words of an honest bit: whatever the record, the first gives 1 and the second 0
            if "floor" in d["task"]:
                floor = d["task"]["floor"]
                words += [[*words[0][:2], end, 0] for end in (floor - 1, WORDS - floor)]
            out.append({"document": _forged(d, rng, strange), "people": people, "words": words})
    return out


def _python(case: dict[str, Any]) -> tuple[bool, list[Any]]:
    document = case["document"]
    try:
        check(document)
        accepted = True
    except RefusedTask:
        accepted = False
    answers: list[Any] = []
    for words in case["words"]:
        for x, y in case["people"]:
            try:
                answers.append(list(answer(document, record(document, x, y), iter(words).__next__)))
            except Exception:
                answers.append("raised")
    return accepted, answers


def _data_decides_nothing(case: dict[str, Any], answers: list[Any]) -> None:
    n = len(case["people"])
    for k, words in enumerate(case["words"]):
        here = answers[k * n : (k + 1) * n]
        assert len({one == "raised" for one in here}) == 1, (words, here, case["document"])
    if len(case["words"]) == 5 and not case["document"]["task"].get("levels"):
        assert all(one == "raised" or one[1] == 1 for one in answers[3 * n : 4 * n]), case["document"]
        assert all(one == "raised" or one[1] == 0 for one in answers[4 * n :]), case["document"]


@needs_node
@pytest.mark.parametrize("strange", [False, True])
def test_forged_descriptions_break_neither_client(strange: bool, collections: dict[str, Collection]) -> None:
    cases = _cases(collections, strange)
    n_accepted = 0
    for case, (accepted, theirs) in zip(cases, _node(bundle.script() + _PROGRAM, cases), strict=True):
        ours_accept, ours = _python(case)
        if not strange:
            assert accepted == ours_accept, case["document"]
        if accepted:
            _data_decides_nothing(case, theirs)
        if ours_accept:
            _data_decides_nothing(case, ours)
        n_accepted += accepted and ours_accept
        if accepted and ours_accept and not strange:
            assert ours == theirs, case["document"]
    assert n_accepted > len(cases) // 2


_LENGTHS = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
const lengths = ({ document, people }) => people.map(([x, y]) => dperm.record(document, x, y).length);
console.log(JSON.stringify(cases.map(lengths)));
"""


@needs_node
@pytest.mark.parametrize("strange", [False, True])
def test_every_record_has_the_same_length(strange: bool, collections: dict[str, Collection]) -> None:
    """Incomplete or not, whatever the label: a description could else make the client fail or loop for some alone."""
    cases = _cases(collections, strange)
    for case, theirs in zip(cases, _node(bundle.script() + _LENGTHS, cases), strict=True):
        ours = [len(record(case["document"], x, y)) for x, y in case["people"]]
        assert len(set(ours)) == 1, case
        assert len(set(theirs)) == 1, case


@needs_node
def test_a_long_record_is_computed_like_others(logistic: Collection) -> None:
    """It has more numbers than a JavaScript function may have arguments."""
    document = copy.deepcopy(logistic.document())
    document["record"]["constant"] = [1.0] * 200_000
    document["task"]["sketch"]["ball"] = 200_002
    # the first number of such a record is nearly 0: the bit is 1 with probability 1/2, and with 0.27 for unknown ones
    words = [[1, 1, 4 * WORDS // 10, 0]]
    case = {"document": document, "people": [([3, 0], "left"), ([None, 0], "left"), ([3, 0], "no")], "words": words}
    ((_, theirs),) = _node(bundle.script() + _PROGRAM, [case])
    assert _python(case)[1] == theirs
    assert [b for _, b in theirs] == [1, 0, 0]


def _overflowing(one: Collection) -> dict[str, Any]:
    """Ranges whose width is infinite, and a record that is scaled until its value is."""
    d = copy.deepcopy(one.document())
    n = len(d["task"]["sketch"]["exponents"][0])
    d.update(low=-1e308, high=1e308)
    d["task"]["sketch"].update(
        ball=0, reach=[1e308] * n, exponents=[[1] + [0] * (n - 1)] * len(d["task"]["sketch"]["exponents"])
    )
    d["record"].update(clip=1e150, scale=[1e-150] * 2, centre=[0.0, 0.0], row_norm=1e300, divide_by=1e-158)
    return d


@needs_node
def test_infinite_ranges_cost_what_the_description_says(logistic: Collection) -> None:
    document = _overflowing(logistic)
    check(document)
    floor, people = document["task"]["floor"], [([0, 0], "stayed"), ([1, 0], "stayed"), ([1, 0], "left")]
    words = [[1, 1, floor - 1, 0], [1, 1, WORDS - floor, 0]]
    case = {"document": document, "people": people, "words": words}
    expected = [1, 1, 1, 0, 0, 0]
    assert [b for _, b in _python(case)[1]] == expected
    ((accepted, theirs),) = _node(bundle.script() + _PROGRAM, [case])
    assert accepted
    assert [b for _, b in theirs] == expected


@needs_node
def test_a_description_cannot_fail_for_some_records_alone(logistic: Collection) -> None:
    """A record of an unknown label is short: reading beyond its end would fail for known labels only."""
    document = copy.deepcopy(logistic.document())
    nodes = [[1.0, {"valueOf": 1, "toString": 1}, 1.0]] * len(document["task"]["sketch"]["exponents"])
    document["task"]["sketch"] = {"kind": "theta-grid", "nodes": nodes, "loss": "logistic"}
    people = [([1, 0], "stayed"), ([1, 0], "nobody"), ([None, 0], "left")]
    case = {"document": document, "people": people, "words": [[1, 1, 2**31, 0]]}
    ours, ((_, theirs),) = _python(case)[1], _node(bundle.script() + _PROGRAM, [case])
    assert ours == theirs
    assert "raised" not in ours
    assert len({tuple(one) for one in ours}) == 1


_DRAWS = """
const { script, document, words } = JSON.parse(require("fs").readFileSync(0, "utf8"));
let k = 0;
const system = { getRandomValues: (a) => a.fill(words[k++]) };
const dperm = Function("crypto", script + "return dperm")(system);
const own = [], told = [], a = dperm.record(document, [3, 0.5], "left");
for (let n = 0; n < words.length; n += 3) {
  k = n; own.push(dperm.answer(document, a));
  k = n; told.push(dperm.answer(document, a, () => words[k++]));
}
console.log(JSON.stringify([own, told]));
"""


@needs_node
def test_the_browser_draws_from_the_system_alone(logistic: Collection) -> None:
    """The random words of an answer are the system's, in their order."""
    words = np.random.default_rng(0).integers(0, WORDS, 300).tolist()
    own, told = _node(_DRAWS, {"script": bundle.script(), "document": logistic.document(), "words": words})
    assert own == told
    assert len({tuple(one) for one in own}) > 8


def test_python_draws_from_the_system_alone() -> None:
    """A generator with a state repeats itself when it is seeded again; the system's does not."""

    def drawn() -> list[int]:
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002
        return [random_word() for _ in range(4)]

    assert drawn() != drawn()
    assert all(0 <= one < WORDS for one in drawn())


def test_values_of_other_number_types_are_values(logistic: Collection, tmp_path: Path) -> None:
    task = parse_task(logistic.text)
    expected = record(task, [3.0, 1.0], "stayed")
    for x in (
        np.array([3.0, 1.0]),
        (3, 1),
        {"seconds": np.int64(3), "mood": np.float32(1)},
        {"seconds": 3, "mood": np.bool_(True)},
    ):
        assert record(task, x, "stayed") == expected
    for classes in ([0, 1], [False, True]):
        other = parse_task(Collection("x", {**logistic.model, "classes": classes}).text)
        assert record(other, [3, 1], np.array(classes)[1]) == expected
    # the wrong kind of label is no label
    assert np.isnan(record(parse_task(Collection("x", {**logistic.model, "classes": [0, 1]}).text), [3, 1], True)[0])
    with pytest.raises(RefusedTask, match="a value for each of seconds, mood and for no other name"):
        Device(tmp_path / "r.json").report(task, {"second": 3, "mood": 1}, "stayed")
    assert not (tmp_path / "r.json").exists()

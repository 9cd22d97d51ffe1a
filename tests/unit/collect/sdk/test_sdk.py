"""The clients: Python and JavaScript agree on every vector and with the task, and refuse bad descriptions."""

from __future__ import annotations

import copy
import gzip
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import find_node

from dperm.collect import Collection
from dperm.collect.sdk import bundle
from dperm.collect.sdk import python as python_client
from dperm.collect.sdk.python import Device, RefusedTask, answer, check, record
from dperm.collect.sdk.python.device import LENGTH, parse_task
from dperm.privacy.local.one_bit import OneBit

N_VECTORS = 100_000
_EDGES = [0, 1, 2**31, 2**32 - 1]
_ODD_VALUES = [None, 1e308, -1e308, 5e-324, 0, True, False, "7", -1.0]

NODE = find_node() or ""
needs_node = pytest.mark.skipif(not NODE, reason="neither node nor playwright is installed")


def _draw(words: list[int]) -> Callable[[], int]:
    return iter(words).__next__


def _person(one: Collection, rng: np.random.Generator) -> tuple[Any, Any]:
    columns, target = one.estimate_model.columns, one.estimate_model.target
    x: list[Any] = rng.normal(0.0, 3.0, len(columns)).tolist()
    if one.model["kind"] == "marginals":
        x = (rng.random(len(columns)) < 0.5).tolist()
    if rng.random() < 0.05:
        x[int(rng.integers(len(x)))] = _ODD_VALUES[int(rng.integers(len(_ODD_VALUES)))]
    if "classes" in target:
        labels = [*target["classes"], "unknown"] if rng.random() < 0.05 else target["classes"]
        return x, labels[int(rng.integers(len(labels)))]
    return x, float(rng.normal(20.0, 8.0)) if "range" in target else None


def _threshold(document: dict[str, Any], a: list[float], first: list[int]) -> int:
    """The number of third words that make the bit a 1."""
    low, high = 0, 2**32
    while low < high:
        middle = (low + high) // 2
        if answer(document, a, _draw([*first, middle]))[1]:
            low = middle + 1
        else:
            high = middle
    return low


def _vectors(one: Collection, n: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    document, out = one.document(), []
    for k in range(n):
        x, y = _person(one, rng)
        words = rng.integers(0, 2**32, 4).tolist()
        if k % 10 == 0:
            words[int(rng.integers(4))] = _EDGES[int(rng.integers(len(_EDGES)))]
        # on both sides of the very threshold, where arithmetic is the same to the last bit
        if k % 200 == 0 and one.task.n_levels == 2 and one.model["kind"] != "theta-grid":
            end = _threshold(document, record(document, x, y), words[:2])
            out.append({"x": x, "y": y, "words": [*words[:2], max(end - 1, 0), 0]})
            words[2] = min(end, 2**32 - 1)
        out.append({"x": x, "y": y, "words": words})
    return out


_PROGRAM = """
const { cases } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const out = cases.map(({ document, vectors }) => vectors.map(({ x, y, words }) => {
  let k = 0;
  return dperm.answer(document, dperm.record(document, x, y), () => words[k++]);
}));
console.log(JSON.stringify(out));
"""


def _node(program: str, given: Any = None, flags: tuple[str, ...] = ()) -> Any:
    text = None if given is None else json.dumps(given)
    done = subprocess.run([NODE, *flags, "-e", program], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_both_clients_agree_on_a_hundred_thousand_vectors(collections: dict[str, Collection]) -> None:
    rng = np.random.default_rng(8)
    cases = [
        {"document": one.document(), "vectors": _vectors(one, N_VECTORS // len(collections), rng)}
        for one in collections.values()
    ]
    assert sum(len(case["vectors"]) for case in cases) >= N_VECTORS
    by_script = _node(bundle.script() + _PROGRAM, {"cases": cases})
    for case, theirs in zip(cases, by_script, strict=True):
        document = case["document"]
        ours = [
            list(answer(document, record(document, one["x"], one["y"]), _draw(one["words"]))) for one in case["vectors"]
        ]
        assert ours == theirs, document["name"]


def test_a_client_reports_what_the_task_says(collections: dict[str, Collection]) -> None:
    """The client's threshold is that of the mechanism for the sketch's value of the same record."""
    rng = np.random.default_rng(3)
    for name, one in collections.items():
        bit, sketch, document = one.task.bit, one.task.sketch, one.document()
        if not isinstance(bit, OneBit):
            continue
        for _ in range(20):
            a = record(document, *_person(one, rng))
            first = rng.integers(0, 2**32, 2).tolist()
            j, _ = answer(document, a, _draw([*first, 0]))
            index = np.array([j])
            row = np.array([a if len(a) == sketch.n_columns else [math.nan] * sketch.n_columns])
            expected = int(bit.thresholds(sketch.values(row, index), sketch.low[index], sketch.high[index])[0])
            exact = one.model["kind"] in ("logistic", "linear", "marginals")
            assert abs(_threshold(document, a, first) - expected) <= (0 if exact else 4), name


def test_statistics_are_drawn_as_the_task_draws_them(collections: dict[str, Collection]) -> None:
    rng = np.random.default_rng(5)
    for one in collections.values():
        document = one.document()
        words = rng.integers(0, 2**32, (200, 4)).tolist()
        drawn = [answer(document, [math.nan], _draw(list(w)))[0] for w in words]
        ends, sizes = one.task.thresholds, one.task.sketch.sizes
        group = np.searchsorted(ends, [w[0] for w in words], side="right")
        starts = np.cumsum(sizes) - sizes
        inside = [w[1] * int(sizes[g]) >> 32 for w, g in zip(words, group, strict=True)]
        assert drawn == (starts[group] + inside).tolist()


def test_few_levels_are_drawn_with_their_probabilities(collections: dict[str, Collection]) -> None:
    one = collections["few-levels"]
    document, rng, n = one.document(), np.random.default_rng(2), 20_000
    a, first = record(document, [5.0, 0.3], 1), [0, 0]
    levels = [answer(document, a, _draw([*first, *rng.integers(0, 2**32, 2).tolist()]))[1] for _ in range(n)]
    j = answer(document, a, _draw([0, 0, 0, 0]))[0]
    value = one.task.sketch.values(np.array([a]), np.array([j]))[0]
    low, high = one.task.sketch.low[j], one.task.sketch.high[j]
    law = np.array(one.task.bit.law(2.0 * (value - low) / (high - low) - 1.0), np.float64)
    expected = law / law.sum()
    seen = np.bincount(levels, minlength=3) / n
    assert np.all(np.abs(seen - expected) < 5.0 * np.sqrt(expected / n))


@needs_node
def test_the_served_module_is_small_and_works_both_ways(logistic: Collection, tmp_path: Path) -> None:
    for text in (bundle.script(), bundle.module()):
        assert len(gzip.compress(text.encode(), 9)) <= 2000
    assert "Math.random" not in bundle.script()
    (tmp_path / "dperm.mjs").write_text(bundle.module())
    (tmp_path / "dperm.js").write_text(bundle.script())
    names = "JSON.stringify(Object.keys(dperm))"
    main = tmp_path / "main.mjs"
    main.write_text(f'import dperm from "./dperm.mjs"; console.log({names});')
    plain = f'require("vm").runInThisContext(require("fs").readFileSync("{tmp_path}/dperm.js")); console.log({names})'
    as_module = subprocess.run([NODE, str(main)], capture_output=True, text=True, check=True, timeout=60).stdout
    assert json.loads(as_module) == _node(plain) == ["load", "record", "answer", "report", "send"]


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("const r = /a b = [ /] clamp/.test( x );", "let r=/a b = [ /] clamp/.test(x);"),
        ("f(/, ;}/is, x / 2)", "f(/, ;}/is,x/2)"),
        ('f( !/" + "/.test(x), "a / b" + x)', 'f(!/" + "/.test(x),"a / b"+x)'),
        ("y = (a / b) / c[0] / d", "y=(a/b)/c[0]/d"),
        ('y = [true, 0.5, x0.5, 10.5, "true 0.5"]', 'y=[!0,.5,x0.5,10.5,"true 0.5"]'),
        (r"s = x.replace(/\/ +/g, y)", r"s=x.replace(/\/ +/g,y)"),
    ],
)
def test_regular_expressions_are_served_as_they_are_written(code: str, short: str) -> None:
    assert bundle.shortened(code) == short + "\n"


@pytest.mark.parametrize(
    "code", ["return /a  b/.test(x)", "if (x) {} /a  b/.test(x)", "y = x\n  / 2", "y = /a b/ in x", "y = 1; // two"]
)
def test_a_slash_that_may_be_either_is_refused(code: str) -> None:
    with pytest.raises(ValueError, match="a division or a regular expression"):
        bundle.shortened(code)


_BROWSER = """
const kept = {}, sent = [];
globalThis.localStorage = { getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = v; } };
const { texts, first, second } = JSON.parse(require("fs").readFileSync(0, "utf8"));
globalThis.fetch = async (url, options) => {
  if (options.method) { sent.push([url, options]); return { ok: true }; }
  return { text: async () => texts[url.split("/")[3]] };
};
(async () => {
  const d = await dperm.load("http://x/0", undefined), out = { hash: d.hash };
  out.first = await dperm.report(d, first[0], first[1]);
  out.again = await dperm.report(d, second[0], second[1]);
  out.sent = await dperm.send(d, out.first) && sent[0];
  const refused = async (what) => { try { await what(); return null; } catch (error) { return error.message; } };
  out.pin = await refused(() => dperm.load("http://x/0", "00"));
  out.bad = [];
  for (let k = 1; k < texts.length - 1; k++) out.bad.push(await refused(() => dperm.load("http://x/" + k)));
  const other = await dperm.load("http://x/" + (texts.length - 1));
  out.cap = await refused(() => dperm.report(other, first[0], first[1], { cap: 1.5 }));
  globalThis.localStorage.setItem = () => { throw Error("full"); };
  out.full = await refused(() => dperm.report(other, first[0], first[1]));
  console.log(JSON.stringify(out));
})();
"""


def _tampered(one: Collection) -> list[dict[str, Any]]:
    """Descriptions that a client must refuse; the second to the fourth would cost more than they state."""
    out = []
    for change in (
        lambda d: d["task"].update(epsilon=17.0),
        lambda d: d["task"].update(floor=d["task"]["floor"] - 8),
        lambda d: d["task"].update(floor=0),
        lambda d: d["task"].update(floor=d["task"]["floor"] + 0.5),
        lambda d: d["task"]["sketch"].update(kind="pixels"),
        lambda d: d.update(format="dperm collection 2"),
        lambda d: d["task"].update(format="dperm local task 2"),
        lambda d: d["task"].update(levels={"rows": [[1, 2**32 - 1], [2**32 - 1, 1]], "knots": [-1, 1]}),
        lambda d: d["task"].update(levels={"rows": [[2**31, 2**31], [2**31, 2**31 - 1]], "knots": [-1, 1]}),
        # rows of different lengths, more knots than rows, a text that passes for a number
        lambda d: d["task"].update(levels={"rows": [[2**32], [2**31, 2**31]], "knots": [-1, 1]}),
        lambda d: d["task"].update(levels={"rows": [[2**31, 2**31], [2**32]], "knots": [-1, 1]}),
        lambda d: d["task"].update(levels={"rows": [[2**31, 2**31]] * 2, "knots": [-1, -0.5, 0, 0.5, 1]}),
        lambda d: d["task"].update(levels={"rows": [[2**31, 2**31]] * 2, "knots": [-1, "x"]}),
        lambda d: d["task"].update(epsilon=str(d["task"]["epsilon"])),
        lambda d: d["task"].update(levels={"rows": [[str(2**32)]] * 2, "knots": [-1, 1]}),
    ):
        document = copy.deepcopy(one.document())
        change(document)
        out.append(document)
    return out


@needs_node
def test_the_browser_module_keeps_its_report_and_refuses(
    logistic: Collection, collections: dict[str, Collection]
) -> None:
    texts = [logistic.text, *map(json.dumps, _tampered(logistic)), collections["three-classes"].text]
    given = {"texts": texts, "first": [{"seconds": 3, "mood": 0.5}, "stayed"], "second": [[9, -1], "left"]}
    out = _node(bundle.script() + _BROWSER, given)
    assert out["hash"] == logistic.digest
    # never drawn again, whatever the person says later
    assert out["first"] == out["again"]
    assert len(out["first"]) == LENGTH
    sent = json.loads(out["first"])
    assert sent["task"] == logistic.digest
    assert len(sent["id"]) == 32
    url, options = out["sent"]
    assert url == "http://x/0/reports"
    assert options == {
        "method": "POST",
        "body": out["first"],
        "keepalive": True,
        "credentials": "omit",
        "referrerPolicy": "no-referrer",
    }
    assert out["pin"] == "dperm: unknown task"
    assert out["bad"] == ["dperm: unknown task"] * len(_tampered(logistic))
    assert out["cap"] == "dperm: epsilon cap"
    # what cannot be kept is not handed out
    assert out["full"] == "full"


def test_the_python_client_keeps_its_report_and_refuses(
    logistic: Collection, collections: dict[str, Collection], tmp_path: Path
) -> None:
    device = Device(tmp_path / "reports.json", cap=1.5)
    task = parse_task(logistic.text, logistic.digest)
    first = device.report(task, {"seconds": 3, "mood": 0.5}, "stayed")
    assert Device(tmp_path / "reports.json").report(task, [9, -1], "left") == first
    assert len(first) == LENGTH
    with pytest.raises(RefusedTask, match=r"epsilon cap of 1\.5"):
        device.report(parse_task(collections["three-classes"].text), [3, 0.5], 2)
    with pytest.raises(RefusedTask, match="has changed"):
        parse_task(logistic.text, "00")
    for document in _tampered(logistic):
        with pytest.raises(RefusedTask, match="does not support this task"):
            check(document)


def test_the_bytes_of_a_report_depend_on_its_number_and_answer_alone(logistic: Collection, tmp_path: Path) -> None:
    """Two unrelated people with the same draws send the same bytes, up to the answer's one digit."""
    task, seen = parse_task(logistic.text), {}
    for k in range(60):
        report = Device(tmp_path / f"{k}.json").report(task, [10.0 * (k % 2), 1.0], ["left", "stayed"][k % 2])
        parts = json.loads(report)
        assert list(parts) == ["task", "id", "j", "b"]
        masked = report.replace(parts["id"], "id").replace(f'"b":{parts["b"]}', '"b":')
        seen.setdefault(parts["j"], set()).add(masked)
    assert all(len(texts) == 1 for texts in seen.values())


_TOKENS = """
const { asked, open, token } = JSON.parse(require("fs").readFileSync(0, "utf8")), kept = {};
const store = { getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = v; } };
const tried = async (d, x, token) => {
  try { return JSON.parse(await dperm.report(d, x, "left", { store, token })); } catch (error) { return error.message; }
};
(async () => {
  const out = { refused: [] };
  const almost = token.slice(1);
  for (const bad of [undefined, "", "ab", token + "0", token.toUpperCase(), almost + "g", almost + "\\n"])
    out.refused.push(await tried({ ...asked, hash: "a" }, [1, 0], bad));
  out.refused.push(await tried({ ...open, hash: "o" }, [1, 0], token));
  out.kept = Object.keys(kept);
  out.made = await tried({ ...asked, hash: "a" }, [1, 0], token);
  out.again = await tried({ ...asked, hash: "a" }, [1, 0]);
  console.log(JSON.stringify(out));
})();
"""


@pytest.fixture
def asked(logistic: Collection) -> Collection:
    return Collection("asked", logistic.model, tokens=True)


@needs_node
def test_a_browser_stores_no_report_without_its_token(logistic: Collection, asked: Collection) -> None:
    """Such a report would be stored and refused for ever."""
    token = "0123456789abcdef" * 4
    out = _node(bundle.script() + _TOKENS, {"asked": asked.document(), "open": logistic.document(), "token": token})
    assert out["refused"] == ["dperm: token"] * 8
    assert out["kept"] == []
    assert (out["made"]["id"], out["made"]["token"]) == (token[:32], token[32:])
    assert out["again"] == out["made"]  # a retry needs no token


def test_a_device_stores_no_report_without_its_token(logistic: Collection, asked: Collection, tmp_path: Path) -> None:
    device, token = Device(tmp_path / "reports.json"), "0123456789abcdef" * 4
    for task, given, sentence in (
        (asked, "", "needs a one-time token"),
        (asked, "ab", "needs a one-time token"),
        (asked, token + "0", "needs a one-time token"),
        (asked, token.upper(), "lower-case hexadecimal digits"),
        (asked, token[1:] + "g", "hexadecimal digits"),
        (asked, token[1:] + "\n", "hexadecimal digits"),
        (logistic, token, "takes no tokens"),
    ):
        with pytest.raises(RefusedTask, match=sentence):
            device.report(parse_task(task.text), [1, 0], "left", token=given)
    assert not (tmp_path / "reports.json").exists()
    made = device.report(parse_task(asked.text), [1, 0], "left", token=token)
    assert json.loads(made)["token"] == token[32:]
    assert device.report(parse_task(asked.text), [1, 0], "left") == made


_GIVEN = """
const d = { ...JSON.parse(require("fs").readFileSync(0, "utf8")), hash: "h" };
const tried = async (x) => {
  const kept = {}, store = { getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = v; } };
  try { await dperm.report(d, x, "left", { store }); return "made"; } catch (error) { return error.message; }
};
(async () => {
  const out = { same: [], bad: [] }, one = JSON.stringify(dperm.record(d, [3, 0.5], "left"));
  class Person { seconds = 3; mood = 0.5; }
  const lists = [new Float64Array([3, 0.5]), new Float32Array([3, 0.5]), require("vm").runInNewContext("[3, 0.5]")];
  const known = { seconds: 3, mood: 0.5 };
  for (const x of [...lists, known, Object.assign(Object.create(null), known), new Person()])
    out.same.push([JSON.stringify(dperm.record(d, x, "left")) == one, await tried(x)]);
  out.nothing = [await tried(null), await tried(undefined), await tried({}), await tried([])];
  const map = new Map([["seconds", 3]]), set = new Set([3, 0.5]);
  class Names { get [Symbol.toStringTag]() { return "PersonNames"; } }
  for (const x of [map, set, new Date(), new WeakMap(), () => 3, new Names()]) out.bad.push(await tried(x));
  out.at = await tried({ at: 1, secs: 2 });
  console.log(JSON.stringify(out));
})();
"""


@needs_node
def test_values_are_accepted_in_every_form_or_refused(logistic: Collection) -> None:
    """Nothing that an application passes by mistake is reported as unknown silently."""
    out = _node(bundle.script() + _GIVEN, logistic.document())
    assert out["same"] == [[True, "made"]] * 6
    assert out["nothing"] == ["dperm: columns"] * 4
    assert out["bad"] == ["dperm: columns"] * 6
    assert out["at"] == "dperm: columns"
    document = logistic.document()
    known = record(document, {"seconds": 3, "mood": 0.5}, "left")
    assert record(document, np.array([3, 0.5], np.float32), "left") == known
    for bad in ({3, 0.5}, iter([3, 0.5]), "3", 3.0, None):
        with pytest.raises(RefusedTask, match="by name, or as a list"):
            record(document, bad, "left")


def test_the_python_client_can_be_copied_into_an_application(tmp_path):
    """It imports neither dperm nor numpy: devices run it as it is."""
    shutil.copytree(Path(python_client.__file__).parent, tmp_path / "client")
    code = "import sys, client; assert not {'dperm', 'numpy'} & set(sys.modules), 'it needs more than itself'"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

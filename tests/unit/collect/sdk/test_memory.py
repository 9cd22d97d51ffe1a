"""What a device remembers: without a store that keeps every finished report, there is no report at all."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from programs import find_node

from dperm.collect import Collection
from dperm.collect.sdk import bundle
from dperm.collect.sdk.python import Device, RefusedTask
from dperm.collect.sdk.python.device import LENGTH, parse_task

NODE = find_node() or ""
needs_node = pytest.mark.skipif(not NODE, reason="neither node nor playwright is installed")

#: what a browser's store, or a device's file, may hold instead of finished reports
DAMAGED = [
    "[]",
    "[[1, 2]]",
    "null",
    "0",
    "7",
    '""',
    '"{}"',
    "true",
    "{",
    "garbage",
    " {}x",
    '{"a": 5}',
    '{"a": null}',
    '{"a": []}',
    '{"a": [1]}',
    '{"a": [1, 2]}',
    '{"a": [1, "short"]}',
    '{"a": [0, "%s"]}' % (" " * LENGTH),
    '{"a": [-100, "%s"]}' % (" " * LENGTH),
    '{"a": [null, "%s"]}' % (" " * LENGTH),
    '{"a": ["x", "%s"]}' % (" " * LENGTH),
    '{"a": {"0": 1, "1": "%s"}}' % (" " * LENGTH),
]

_STORES = """
const { document, damaged } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const plain = (kept = {}) => ({ kept, getItem: (k) => kept[k] ?? null, setItem: (k, v) => { kept[k] = String(v); } });
const tried = async (store, calls = 30) => {
  const made = new Set();
  for (let k = 0; k < calls; k++)
    // a new collection each time: the cap of 4 allows four
    try { made.add(await dperm.report({ ...document, hash: "h" + k }, [1, 0], "left", { store })); }
    catch (error) { made.add("refused: " + error.message); }
  return [...made].map((one) => one.startsWith("refused") ? one : "report");
};
const bad = {
  "returns null": { getItem: () => null, setItem: () => {} },
  "returns nothing": { getItem: () => undefined, setItem: () => {} },
  "returns stale values": (() => { let old = null, now = null;
    return { getItem: () => old, setItem: (k, v) => { old = now; now = v; } }; })(),
  "changes values": (() => { let kept = null;
    return { getItem: () => kept, setItem: (k, v) => { kept = v + " "; } }; })(),
  "throws on set": { getItem: () => null, setItem: () => { throw Error("full"); } },
  "throws on get": { getItem: () => { throw Error("private"); }, setItem: () => {} },
  "returns an array": { getItem: () => [], setItem: () => {} },
  "returns an object": { getItem: () => Object.freeze({}), setItem: () => {} },
  "returns a number": { getItem: () => 7, setItem: () => {} },
  "is frozen": Object.freeze({ getItem() { return this.dperm ?? null; }, setItem(k, v) { this[k] = v; } }),
  "drops other reports": (() => { let kept = null; return { getItem: () => kept, setItem: (k, v) => {
    kept = JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(v)).slice(-1))); } }; })(),
  "shortens long values": (() => { let kept = null;
    return { getItem: () => kept, setItem: (k, v) => { kept = v.slice(0, 100); } }; })(),
};
(async () => {
  const out = { good: await tried(plain()), bad: {}, damaged: [] };
  for (const name in bad) out.bad[name] = await tried(bad[name]);
  for (const text of damaged) {
    const store = plain({ dperm: text });
    out.damaged.push([await tried(store), store.kept.dperm === text]);
  }
  // the same collection again and again: one report
  const store = plain(), same = new Set();
  for (let k = 0; k < 30; k++) same.add(await dperm.report({ ...document, hash: "h" }, [k, 0], "left", { store }));
  out.same = same.size;
  console.log(JSON.stringify(out));
})();
"""


def _node(program: str, given: Any) -> Any:
    done = subprocess.run([NODE, "-e", program], input=json.dumps(given), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_a_browser_makes_no_report_that_its_store_does_not_keep(logistic: Collection) -> None:
    """The cap of 4 stops the fifth report of 1; a store that keeps less stops the first, or the first it loses."""
    out = _node(bundle.script() + _STORES, {"document": logistic.document(), "damaged": DAMAGED})
    assert out["good"] == ["report"] * 4 + ["refused: dperm: epsilon cap"]
    assert out["same"] == 1
    for name, found in out["bad"].items():
        reports = [one for one in found if one == "report"]
        # only the store that drops other reports keeps the first one
        assert len(reports) == (name == "drops other reports"), (name, found)
        assert len(found) > len(reports), name
    assert out["bad"]["returns null"] == ["refused: dperm: store"]
    assert out["bad"]["returns stale values"][0] == "refused: dperm: store"
    assert out["bad"]["throws on set"] == ["refused: full"]
    assert out["damaged"] == [[["refused: dperm: store"], True]] * len(DAMAGED)


@pytest.mark.parametrize("text", DAMAGED)
def test_a_device_makes_no_report_over_a_damaged_file(text: str, logistic: Collection, tmp_path: Path) -> None:
    where = tmp_path / "reports.json"
    where.write_text(text)
    for _ in range(3):
        with pytest.raises(RefusedTask, match="is damaged"):
            Device(where).report(parse_task(logistic.text), [1, 0], "left")
    assert where.read_text() == text


@pytest.mark.parametrize("kept", [None, "{}", "[]", "old"])
def test_a_device_makes_no_report_that_its_file_does_not_keep(
    kept: str | None, logistic: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that loses what is written, or keeps an earlier state, gets no report."""
    where, replace = tmp_path / "reports.json", os.replace
    if kept == "old":
        Device(where).report(parse_task(Collection("other", logistic.model).text), [1, 0], "left")
        kept = where.read_text()

    def forget(draft: str, to: Path) -> None:
        replace(draft, to)
        if kept is None:
            Path(to).unlink()
        else:
            Path(to).write_text(kept)

    monkeypatch.setattr(os, "replace", forget)
    for _ in range(3):
        with pytest.raises(RefusedTask, match=r"does not keep|is damaged"):
            Device(where).report(parse_task(logistic.text), [1, 0], "left")


def test_a_device_keeps_its_cap_over_many_collections(logistic: Collection, tmp_path: Path) -> None:
    device, made = Device(tmp_path / "reports.json"), 0
    for k in range(8):
        try:
            device.report(parse_task(Collection(f"c{k}", logistic.model).text), [1, 0], "left")
            made += 1
        except RefusedTask as error:
            assert "epsilon cap" in str(error)  # noqa: PT017
    assert made == 4

"""The page in a real browser, against a running collector."""

from __future__ import annotations

import itertools
import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dperm.collect import Collection, simulate
from dperm.collect.service import wire
from dperm.privacy import RandomSource

playwright = pytest.importorskip("playwright.sync_api")

#: a folder for pictures of the page, to be looked at by a person
SHOTS = os.environ.get("DPERM_SHOTS")


@pytest.fixture
def browser(chromium: str) -> Iterator[Any]:
    with playwright.sync_playwright() as player:
        made = player.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP collector.example 127.0.0.1"],
        )
        yield made
        made.close()


def _send(to: Any, one: Collection, n: int, seed: int) -> None:
    sender = simulate.Sender(f"{to.url}/v1/{one.name}", to.batch_secret)
    for reports in simulate.report_batches(one, n, 20_000, np.random.default_rng(seed), RandomSource(seed)):
        assert sender.send(simulate.packed_body(one, reports))[0] == 201
    sender.close()


def _shot(page: Any, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def test_the_page_counts_estimates_and_lets_visitors_try(
    start: Callable[..., Any], speed: Collection, browser: Any
) -> None:
    collector, expect = start(), playwright.expect
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    sent: list[Any] = []
    page.on("request", lambda request: sent.append((request.method, request.url)))

    page.goto(f"{collector.url}/")
    page.get_by_text("Does waiting drive people away?").click()
    page.wait_for_selector("#form button")
    assert page.locator("h1").inner_text() == "Does waiting drive people away?"
    expect(page.locator("#state")).to_contain_text("people are too few")
    assert page.locator("#hash").inner_text() == speed.digest
    _shot(page, "empty")

    # the real module answers in the visitor's browser, and nothing is sent
    page.fill("input[name=seconds]", "3.5")
    page.select_option("select", label="stayed")
    seen = set()
    for _ in range(20):
        page.click("#form button")
        seen.add(page.locator("#report code").inner_text())
    assert len(seen) > 3
    assert all(0 <= json.loads(text)["j"] < 8 and json.loads(text)["b"] in (0, 1) for text in seen)
    assert all(method == "GET" and url.startswith(collector.url) for method, url in sent)

    # reports arrive: the count follows and the intervals shrink
    _send(collector, speed, 100_000, 1)
    expect(page.locator("#n")).to_have_text("100,000", timeout=20_000)
    page.wait_for_selector("#model tbody tr")
    width = (
        "[...document.querySelectorAll('#model tbody tr')].map(r => r.cells[3].textContent - r.cells[2].textContent)"
    )
    before = page.evaluate(width)
    _shot(page, "some")
    _send(collector, speed, 300_000, 2)
    expect(page.locator("#n")).to_have_text("400,000", timeout=20_000)
    after = page.evaluate(width)
    assert len(after) == 3
    assert 0 < sum(after) < 0.7 * sum(before)
    page.wait_for_selector("#history polyline")
    _shot(page, "many")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    _send(collector, speed, 1000, 3)  # the chart is drawn again, for a phone
    expect(page.locator("#n")).to_have_text("401,000", timeout=20_000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    bars = page.locator("td.bar svg")
    assert bars.count() == 3
    assert all(bars.nth(k).bounding_box()["width"] > 250 for k in range(3))
    assert (
        min(page.evaluate("[...document.querySelectorAll('#history text')].map(t => t.getBoundingClientRect().height)"))
        > 12
    )
    assert all(button["height"] >= 44 for button in [page.locator("#form button").bounding_box()])
    _shot(page, "dark-narrow")
    assert problems == []


def test_the_page_lists_the_questions_of_every_kind(start: Callable[..., Any], browser: Any, tmp_path: Path) -> None:
    """Original ranges, labels, and the questions by name; shares on a scale from 0 to 1."""
    pay = {
        "kind": "linear",
        "epsilon": 2.0,
        "names": ["pay", "dose"],
        "bounds": {"features": [[1000.0, 0.0], [2500.0, 1e-10]]},
        "target": [0.0, 5000.0],
    }
    kinds = {
        "kind": "logistic",
        "epsilon": 2.0,
        "names": ["age"],
        "bounds": {"features": [[0.0], [100.0]]},
        "classes": ["bus", "car", "train"],
        "degree": 2,
    }
    habits = {"kind": "marginals", "epsilon": 4.0, "columns": ["tea", "milk", "sugar"], "k": 2, "n_people": 100_000}
    ages = {"kind": "smooth", "epsilon": 4.0, "columns": ["age", "pay"], "low": [0.0, 0.0], "high": [100.0, 1e6],
            "n_degrees": 3, "decay": 0.5}  # fmt: skip
    grid = {"kind": "theta-grid", "epsilon": 1.0, "loss": "logistic", "n_parameters": 2, "bound": 2.0}
    models = {"pay": pay, "kinds": kinds, "habits": habits, "ages": ages, "grid": grid}
    made = {name: Collection(name, model) for name, model in models.items()}
    for name, one in made.items():
        one.write(tmp_path / f"{name}.json")
    collector = start(*(str(tmp_path / f"{name}.json") for name in made))
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))

    def opened(name: str) -> tuple[list[str], list[str]]:
        page.goto(f"{collector.url}/{name}")
        page.wait_for_selector("#form button")
        page.click("summary")
        page.click("#form button")
        said = page.locator("#report").inner_text()
        asked = page.locator("#questions li").all_text_contents()
        assert len(asked) == len(set(asked)) == made[name].task.sketch.size
        assert f"({asked[json.loads(page.locator('#report code').inner_text())['j']]})" in said
        _shot(page, f"asked-{name}")
        return page.locator("#columns li").all_inner_texts(), asked

    columns, asked = opened("pay")
    assert columns == ["pay: 1000 to 2500", "dose: 0 to 1e-10", "target: 0 to 5000"]
    assert "pay (1000 to 2500)" in page.locator("#form").inner_text()
    assert {"pay²", "pay × dose", "pay × target"} <= set(asked)
    columns, asked = opened("kinds")
    assert columns == ["age: 0 to 100", "target: bus or car or train"]
    assert {"age × [bus]", "age × [car]", "age × [train]"} <= set(asked)
    columns, asked = opened("habits")
    assert columns == ["tea: 0 or 1", "milk: 0 or 1", "sugar: 0 or 1"]
    assert asked[:3] == ["not tea", "not milk", "not sugar"]
    # what the texts say is what the real module answers, for every person
    for person in itertools.product((0, 1), repeat=3):
        held = {name for name, value in zip(("tea", "milk", "sugar"), person, strict=True) if value}
        for text, (n, ones) in zip(asked, page.evaluate(_DRAWN, [f"{collector.url}/v1/habits", person]), strict=True):
            names = text.removeprefix("not ").removeprefix("whether an even number of ").removesuffix(" holds")
            assert n > 20
            assert (ones > n / 2) == (len(held & set(names.split(", "))) % 2 == 0), (text, person)
    assert "whether an even number of tea, sugar holds" in asked
    _send(collector, made["habits"], 50_000, 1)
    # the last estimate: the rows do not change while they are compared
    playwright.expect(page.locator("#state")).to_contain_text("Estimated from 50,000 reports", timeout=20_000)
    rows = page.locator("#model tbody tr")
    for k in range(rows.count()):
        share = float(rows.nth(k).locator("td").nth(1).inner_text())
        assert abs(float(rows.nth(k).locator("circle").get_attribute("cx")) - 300 * share) < 0.1
    columns, asked = opened("ages")
    assert columns == ["age: 0 to 100", "pay: 0 to 1000000"]
    assert "T1(age) × T1(pay)" in asked
    assert opened("grid")[0] == ["a1", "a2"]
    assert problems == []


_DRAWN = """async ([url, person]) => {
  const task = await dperm.load(url), out = task.sizes.flatMap((n) => Array.from({ length: n }, () => [0, 0]));
  for (let k = 0; k < 1000; k++) {
    const [j, b] = dperm.answer(task, dperm.record(task, person));
    out[j][0]++;
    out[j][1] += b;
  }
  return out;
}"""


def test_the_page_without_https_shows_everything_but_the_form(
    start: Callable[..., Any], speed: Collection, browser: Any
) -> None:
    """Browsers have no crypto.subtle there, so the module cannot check the description."""
    collector, expect = start(), playwright.expect
    page = browser.new_page()
    page.goto(f"{collector.url.replace('127.0.0.1', 'collector.example')}/speed")
    expect(page.locator("#report")).to_have_text("The form and reports need a page over https.")
    assert page.evaluate("[isSecureContext, typeof crypto.subtle]") == [False, "undefined"]
    assert not page.locator("#form").is_visible()
    assert page.locator("h1").inner_text() == "Does waiting drive people away?"
    _send(collector, speed, 100_000, 1)
    expect(page.locator("#n")).to_have_text("100,000", timeout=20_000)
    expect(page.locator("#model tbody tr")).to_have_count(3)
    assert page.locator("#questions li").count() == 8


_MARKS = """() => [...document.querySelectorAll("#model tbody tr")].map((row) => {
  const [value, low, high] = [1, 2, 3].map((k) => Number(row.cells[k].textContent)), svg = row.querySelector("svg");
  const band = svg.querySelector(".band"), x = Number(band.getAttribute("x")), line = svg.querySelector(".shrunk");
  return {
    value, low, high, from: x, to: x + Number(band.getAttribute("width")),
    dot: Number(svg.querySelector(".dot").getAttribute("cx")), shrunk: Number(line.getAttribute("x1")),
  };
})"""


def test_an_estimate_outside_its_interval_is_explained(
    start: Callable[..., Any], speed: Collection, browser: Any
) -> None:
    """With few reports the shrunk estimate is far from the middle: the dot is the unshrunk value, inside its bar."""
    collector, expect = start(), playwright.expect
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    page.goto(f"{collector.url}/speed")
    _send(collector, speed, 40_000, 1)
    expect(page.locator("#shrinkage")).to_contain_text("the estimates are shrunk towards 0", timeout=20_000)
    marks = page.evaluate(_MARKS)
    assert len(marks) == 3
    for one in marks:
        assert one["dot"] == pytest.approx((one["from"] + one["to"]) / 2, abs=1.0)
        # two marks of one scale: where the line is follows from the numbers
        share = (one["value"] - one["low"]) / (one["high"] - one["low"])
        assert one["shrunk"] == pytest.approx(one["from"] + share * (one["to"] - one["from"]), abs=2.0)
    assert any(abs(one["dot"] - one["shrunk"]) > 3.0 for one in marks)
    _shot(page, "shrunk")


def test_an_attack_is_shown_with_what_is_left_without_it(
    start: Callable[..., Any], speed: Collection, browser: Any
) -> None:
    """The warning names the question, and the trimmed estimate stands beside the one that was turned around."""
    collector, expect = start(), playwright.expect
    page = browser.new_page(viewport={"width": 900, "height": 1000})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{collector.url}/speed")
    _send(collector, speed, 200_000, 1)
    expect(page.locator("#draws")).to_contain_text("answered as often as devices draw them", timeout=20_000)
    expect(page.locator("#model tbody tr")).to_have_count(3, timeout=20_000)
    assert not page.locator("#warning").is_visible()
    assert not page.get_by_text("trimmed", exact=True).is_visible()
    honest = float(page.locator("#model tbody tr").nth(0).locator("td").nth(1).inner_text())
    sender = simulate.Sender(f"{collector.url}/v1/speed", collector.batch_secret)
    forged = wire.pack(speed.digest, os.urandom(16 * 20_000), np.zeros(20_000), np.zeros(20_000))
    assert sender.send(forged)[0] == 201
    sender.close()
    expect(page.locator("#warning")).to_be_visible(timeout=20_000)
    expect(page.locator("#warning")).to_contain_text("do not rely on it")
    expect(page.locator("#surplus li")).to_have_count(1)
    expect(page.locator("#surplus")).to_contain_text("question 0 (target × seconds)")
    row = page.locator("#model tbody tr").nth(0).locator("td")
    assert page.get_by_text("trimmed", exact=True).is_visible()
    turned, (trimmed, low, high) = float(row.nth(1).inner_text()), _numbers(row.nth(4).inner_text())
    assert low <= 0.0 <= high  # the middle, up to chance
    expect(page.locator("#state")).to_contain_text("the counts contradict each other, as made-up reports can make them")
    assert "radius" not in page.locator("body").inner_text()
    _marks_are_inside(page)
    assert (honest > 0.2, turned < -0.3, trimmed > -0.02) == (True, True, True)
    for name, scheme, width in (("marked", "light", 900), ("marked-dark-narrow", "dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert _contrast(page, "#warning h3") >= 4.5
        assert _contrast(page, "#marked") >= 4.5
        _shot(page, name)
    assert problems == []
    page.goto(collector.url)
    expect(page.locator("#list p")).to_contain_text("The estimate is suspicious: do not rely on it.")


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[0-9.]+(?:e-?[0-9]+)?", text)]


def _marks_are_inside(page: Any) -> None:
    """Dots, lines and bands stay inside their picture."""
    outside = page.evaluate(
        "[...document.querySelectorAll('#model svg')].flatMap((svg) => { const a = svg.getBoundingClientRect();"
        " return [...svg.children].map((c) => c.getBoundingClientRect())"
        ".filter((b) => b.left < a.left - 1 || b.right > a.right + 1).map((b) => [a.left, b.left, b.right]); })"
    )
    assert outside == []


def _contrast(page: Any, selector: str) -> float:
    """Contrast of a text with the warning's paper, as WCAG defines it."""
    colours = page.evaluate(
        "(s) => [document.querySelector(s), document.querySelector('#warning')]"
        ".map((e, k) => getComputedStyle(e)[k ? 'backgroundColor' : 'color'].match(/[0-9]+/g).slice(0, 3).map(Number))",
        selector,
    )

    def light(colour: list[int]) -> float:
        parts = [v / 255 / 12.92 if v / 255 <= 0.04045 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted(map(light, colours))
    return (high + 0.05) / (low + 0.05)


_FOREIGN = """async ([url, hash]) => {
  const { default: dperm } = await import(url + "/sdk/dperm.mjs");
  const task = await dperm.load(url + "/v1/speed", hash);
  const first = await dperm.report(task, { seconds: 2, mobile: 1 }, "left");
  const again = await dperm.report(task, { seconds: 9, mobile: 0 }, "stayed");
  const sent = [await dperm.send(task, first), await dperm.send(task, again)];
  return { first, again, sent, cookies: document.cookie, kept: Object.keys(localStorage) };
}"""


def test_another_site_reports_once_without_a_preflight(
    start: Callable[..., Any], speed: Collection, browser: Any
) -> None:
    """An application on another origin imports the module, reports, and retries with the same bytes."""
    collector = start()
    page = browser.new_page()
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    page.goto(f"{collector.url.replace('127.0.0.1', 'localhost')}/health")  # another name is another origin
    out = page.evaluate(_FOREIGN, [collector.url, speed.digest])
    assert out["first"] == out["again"]
    assert out["sent"] == [True, True]
    assert (out["cookies"], out["kept"]) == ("", ["dperm"])
    reports = [request for request in asked if request.url.endswith("/reports")]
    assert [request.method for request in reports] == ["POST", "POST"]
    headers = [request.all_headers() for request in reports]  # as they went over the wire
    assert headers[0] == headers[1]
    assert not {"cookie", "referer", "authorization"} & set(headers[0]), headers[0]
    assert headers[0]["content-length"] == "224"
    with urllib.request.urlopen(f"{collector.url}/v1/speed/estimate") as answer:
        assert json.load(answer)["reports"] == 1
    log = collector.log.read_text()
    assert "127.0.0.1" not in log
    assert "Mozilla" not in log

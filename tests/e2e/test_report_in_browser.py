"""The report page in a real browser: on paper, on a narrow screen, and with column names that reverse text."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dperm
from dperm.cli.summary import page_of
from dperm.data.schema.schema import Column, Schema, Target
from dperm.estimators.central.base import prepare_fit
from dperm.estimators.central.scoring import paid_score, plans_of_fit_and_score, report_with_score

playwright = pytest.importorskip("playwright.sync_api")

#: a folder for screenshots of the page, for a person to look at
SHOTS = os.environ.get("DPERM_SHOTS")

REVERSED = "income\u202eyraey"


def schema_of(n_columns):
    """Return a confirmed schema: numbers, one category with long names, and a name that reverses text."""
    read = {"confirmed": ("kind", "low", "high")}
    numbers = [Column(f"measurement_number_{k}", "number", 0, 10 + k, **read) for k in range(n_columns - 3)]
    others = (
        Column("occupation", "category", categories=tuple(f"a rather long occupation {k}" for k in range(12))),
        Column("smoker", "boolean"),
        Column(REVERSED, "number", 0, 1e5, **read),
    )
    return Schema((*others, *numbers), Target("readmitted", "classes", ("no", "yes"), confirmed=("kind", "classes")))


@pytest.fixture(scope="module", params=[5, 100])
def written(request, tmp_path_factory):
    """Write the page of a model with this many columns, a cap, an earlier fit and a paid score."""
    schema, rng = schema_of(request.param), np.random.default_rng(0)
    width = len(schema.encoded_names)
    X = rng.random((600, width)) * [column.range[1] for column in schema.used for _ in column.encoded_names]
    y = np.where(X[:, -1] > np.median(X[:, -1]), "yes", "no")
    ledger = dperm.Ledger(dataset=f"people of {REVERSED.replace(chr(0x202E), '')}")
    ledger.set_cap(dperm.Budget(6.0, 1e-6))
    for _ in range(2):
        model = dperm.DPLogisticRegression(epsilon=1.0, bounds=schema.bounds(), ledger=ledger)
        plans = plans_of_fit_and_score(prepare_fit(model, 500, width, 2), held_out=100, epsilon=0.5)
        model.fit(X[:500], y[:500])
    saved = replace(model.saved_model(), feature_names_in_=np.array(schema.encoded_names, object), schema=schema)
    score = paid_score(saved, X[500:], y[500:], epsilon=0.5, ledger=ledger)
    saved = replace(saved, privacy_report_=report_with_score(saved.privacy_report_, score, plans))
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(page_of(saved), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(chromium):
    with playwright.sync_playwright() as player:
        made = player.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture
def page(browser, written):
    made = browser.new_page(viewport={"width": 900, "height": 1000})
    made.goto(written.as_uri())
    made.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    yield made
    made.close()


def shot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def test_the_page_prints_on_two_sheets_for_any_number_of_columns(page, written):
    pdf = page.pdf(prefer_css_page_size=True)
    if SHOTS:
        (Path(SHOTS) / f"{written.stem}.pdf").write_bytes(pdf)
    assert pdf.count(b"/Type /Page\n") == 2


_BROKEN = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll('.wide th[scope=row]')) {
    const text = cell.querySelector('bdi').firstChild, range = document.createRange();
    for (const word of text.data.matchAll(/[^\\s_]+/g)) {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (range.getClientRects().length > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_breaks_no_word_and_needs_no_sideways_scrolling(page, written, scheme):
    page.emulate_media(color_scheme=scheme)
    shot(page, f"{written.stem}-{scheme}")
    page.set_viewport_size({"width": 500, "height": 900})
    shot(page, f"{written.stem}-{scheme}-500")
    assert page.evaluate(_BROKEN) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_name_does_not_reverse_the_text_around_it(page):
    text = page.locator("main").inner_text()
    assert "\u202e" not in text
    assert "income\\u202eyraey" in text

"""The report page: all that a privacy officer needs, escaped, without scripts, well formed."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from dperm.errors import InvalidInput
from dperm.privacy.events import Composed, Gaussian, Repeat
from dperm.privacy.guarantee import Accounting, Guarantee
from dperm.privacy.report import PrivacyReport, ReleaseLine, write_whole
from dperm.privacy.report_figures import Part, Series, bar_of_parts, line_chart
from dperm.privacy.report_page import report_page

HOSTILE = '<script>alert("x")</script>&\'"'
EMPTY = {"meta", "line", "path", "rect", "circle", "br"}


def report_with(epsilon_noise=40.0, **changes):
    planned = Accounting.of(Composed((Repeat(Gaussian(epsilon_noise), 60),)), 1e-6)
    guarantee = Guarantee(planned.epsilon, 1e-6, "replace-one", assumptions=(f"names such as {HOSTILE} are public",))
    made = PrivacyReport(
        planned=planned,
        guarantee=guarantee,
        releases=(ReleaseLine(f"gradient {HOSTILE}", "gaussian", 60, 2, epsilon_noise, 1.0, epsilon_noise, 11),),
        public={"records": 3000, "features": 10, "solver": "gradient", "bounds": "declared", "classes": 2},
        arithmetic="exact",
        randomness="AES",
        ledger={
            "dataset": HOSTILE,
            "spent_before": 1.0,
            "spent_after": 1.4,
            "delta": 1e-6,
            "n_fits": 2,
            "cap": 5.0,
            "used_before": 0.1,
            "used_after": 0.2,
            "room_for_epsilon": 4.0,
            "head": "ab" * 32,
        },
        version="1",
    )
    return replace(made, **changes)


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what is asked for."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_names_are_escaped_and_nothing_is_loaded_or_run():
    page = Page(report_page(report_with(), title=HOSTILE, model=HOSTILE, weights=[(HOSTILE, 1.0)]))
    assert "script" not in page.tags
    assert not {"img", "iframe", "link", "object", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert HOSTILE in "".join(page.words)


def test_it_has_every_part_and_says_it_to_those_who_listen():
    text = report_page(report_with())
    page = Page(text)
    assert page.tags.count("h1") == 1
    for heading in (
        "What it means",
        "Epsilon and delta",
        "What was released",
        "assumed to be public",
        "Budget",
        "not cov",
    ):
        assert heading in text
    assert ("lang", "en") in page.attributes
    assert page.tags.count("svg") == page.tags.count("desc") == 2
    assert "2 unused" in text
    assert "20% of its cap of epsilon 5" in text
    assert "prefers-color-scheme:dark" in text
    assert text == report_page(report_with())  # the same report gives the same bytes


@pytest.mark.parametrize(("noise", "says"), [(80.0, "almost the same"), (20.0, "is limited."), (5.0, "but weakly")])
def test_the_verdict_does_not_praise_a_large_epsilon(noise, says):
    assert says in report_page(report_with(noise))


def test_without_a_guarantee_it_says_so_first():
    text = report_page(report_with(guarantee=None, reason="insecure_seed makes the noise reproducible."))
    assert "No guarantee." in text
    assert "What it means" not in text


def test_an_unbounded_ledger_and_one_without_a_cap():
    ledger = report_with().ledger
    assert "without a finite guarantee" in report_page(report_with(ledger={**ledger, "spent_after": math.inf}))
    assert "no cap is set" in report_page(report_with(ledger={**ledger, "cap": None}))
    assert "<h2>Budget" not in report_page(report_with(ledger={}))


def test_figures_stay_inside_their_frame():
    chart = line_chart(
        [Series("a", ((0.01, 1e-7), (10.0, 3.0))), Series("b", ((0.01, 1e-6), (10.0, 30.0)))],
        title="t",
        x_label="x",
        y_label="y",
        log_x=True,
        log_y=True,
        mark=(1.0, 1.0, "here"),
        alone=True,
    )
    page = Page(chart)
    numbers = [float(value) for name, value in page.attributes if name in ("x", "x1", "x2", "cx")]
    assert all(0 <= number <= 640 for number in numbers)
    Page(bar_of_parts([Part("a", 0.25), Part("b", 0.75, "rest")], title="t"))
    Page(line_chart([Series("flat", ((0.0, 0.0), (1.0, 0.0)))], title="t", x_label="x", y_label="y"))


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "taken").mkdir()
    with pytest.raises(InvalidInput, match="it is a folder; give the name of a file"):
        write_whole(tmp_path / "taken", "text")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("busy")))
    with pytest.raises(OSError, match="busy"):
        write_whole(tmp_path / "free", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("epsilon", [20.5, 699.0, 1e9])
def test_an_epsilon_that_protects_nobody_is_called_so(epsilon):
    guarantee = Guarantee(epsilon, 1e-6, "replace-one")
    assert f"Epsilon {epsilon:.4g}: in practice no protection." in guarantee.sentence()
    assert "at most" not in guarantee.sentence()
    page = report_page(replace(report_with(), guarantee=guarantee))
    assert "in practice not limited" in page
    assert "raise that suspicion" not in page
    assert "at most" in Guarantee(20.0, 1e-6, "replace-one").sentence()


def test_what_a_fit_warned_of_is_on_the_page_and_in_the_summary():
    report = report_with(public={"warnings": [f"noise rules {HOSTILE}"]})
    assert "What to expect" in report_page(report)
    assert HOSTILE not in report_page(report)
    assert "Warning: noise rules" in report.summary()
    assert "What to expect" not in report_page(report_with())

"""The report page: what a privacy officer needs comes first; names are escaped, nothing is loaded or run."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from scipy.special import ndtr

from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.events import Composed, Gaussian, Repeat
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.accounting.posterior import exceedance_of_gaussian
from dperm.reporting.figures import Series, line_chart
from dperm.reporting.labels import query_label
from dperm.reporting.page import report_page
from dperm.reporting.report import PrivacyReport, ReleaseLine

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
        ledger={"dataset": HOSTILE, "neighbours": "replace-one", "reservation": "ab" * 16},
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


def test_every_part_is_there_and_readable_by_a_screen_reader():
    text = report_page(report_with())
    page = Page(text)
    assert page.tags.count("h1") == 1
    for heading in (
        "What is protected",
        "How strongly",
        "What is not covered",
        "What the guarantee relies on",
        "Budget",
        "What was released",
        "Epsilon at other values of delta",
        "Public settings",
    ):
        assert heading in text
    assert ("lang", "en") in page.attributes
    assert page.tags.count("svg") == page.tags.count("desc") == 1
    assert "2 unused" in text
    assert "prefers-color-scheme:dark" in text
    assert text == report_page(report_with())  # the same report gives the same bytes


@pytest.mark.parametrize(
    ("noise", "says"),
    [(2000.0, "almost the same"), (80.0, "is limited."), (20.0, "is limited."), (5.0, "limited only weakly")],
)
def test_the_verdict_does_not_praise_a_large_epsilon(noise, says):
    assert says in report_page(report_with(noise))


def test_without_a_guarantee_the_page_says_so_first():
    text = report_page(report_with(guarantee=None, reason="insecure_seed makes the noise reproducible."))
    assert "No guarantee." in text
    assert "What is protected" not in text
    assert "How strongly" not in text


def test_the_budget_is_that_of_this_fit_alone():
    """A page of an earlier version's report, which holds balances, does not show them either."""
    balances = {"spent_after": 1.4321, "n_fits": 2, "cap": 5.4321, "used_after": 0.2, "head": "cd" * 32}
    report = report_with()
    page = report_page(report)
    assert report_page(report_with(ledger={**report.ledger, **balances})) == page
    assert f"epsilon {report.guarantee.epsilon:.4g} at delta 1e-06. The ledger shows the owner" in page
    assert "ab" * 16 in page
    scored = report_page(report_with(score=SCORE))
    assert "at delta 1e-06; with its score, epsilon 1.25. The ledger" in scored
    none = report_page(report_with(guarantee=None, reason="a seed."))
    assert "a plan without a finite guarantee" in none
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
    Page(line_chart([Series("flat", ((0.0, 0.0), (1.0, 0.0)))], title="t", x_label="x", y_label="y"))


@pytest.mark.parametrize("epsilon", [20.5, 699.0, 1e9])
def test_an_epsilon_that_protects_nobody_is_called_so(epsilon):
    guarantee = Guarantee(epsilon, 1e-6, "replace-one")
    assert f"Epsilon {epsilon:.4g}: in practice no protection." in guarantee.sentence()
    assert "at most" not in guarantee.sentence()
    page = report_page(replace(report_with(), guarantee=guarantee))
    assert "in practice not limited" in page
    assert "raise that belief" not in page
    assert "at most" in Guarantee(20.0, 1e-6, "replace-one").sentence()


def test_warnings_of_a_fit_are_on_the_page_and_in_the_summary():
    report = report_with(public={"warnings": [f"noise dominates {HOSTILE}"]})
    assert "What to expect" in report_page(report)
    assert HOSTILE not in report_page(report)
    assert "Warning: noise dominates" in report.summary()
    assert "What to expect" not in report_page(report_with())


def cells(page):
    """Texts of the table cells of a page, tags left out, by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_a_belief_grows_by_the_odds_and_exceeds_them_more_often_than_delta():
    report = report_with(1.0 / gdp.mu_of(1.0, 1e-6) * math.sqrt(60))  # epsilon 1 by Gaussian releases
    text = report_page(report)
    assert ["belief before", "1%", "10%", "50%"] in cells(text)
    assert ["belief after", "at most 2.7%", "at most 23.2%", "at most 73.1%"] in cells(text)
    (said,) = re.findall(r"The probability that the belief rises further is at most ([\d.e-]+)\.<", text)
    tail = ndtr(-report.guarantee.epsilon / report.planned.mu + report.planned.mu / 2.0)
    assert float(said) == pytest.approx(exceedance_of_gaussian(report.planned.mu, report.guarantee.epsilon), rel=0.05)
    assert float(said) > tail > 15 * report.guarantee.delta
    pure = replace(report, guarantee=replace(report.guarantee, delta=0.0))
    assert "rises further" not in report_page(pure)


def test_noise_is_a_multiple_of_what_one_person_can_change():
    line = ReleaseLine("gradient", "gaussian", 60, 0, 40.0, 2.5, 100.0, 11)
    other = replace(line, query="moment", count=240, noise_multiplier=80.0, noise_scale=None, size=None)
    rows = cells(report_page(report_with(releases=(line, other))))
    assert ["gradient of the lossgradient", "60", "11", "Gaussian", "40", "100", "50%"] in rows
    assert ["moment", "240", "", "Gaussian", "80", "", "50%"] in rows


SCORE = {
    "kind": "accuracy",
    "value": 0.815,
    "low": 0.79,
    "high": 0.84,
    "n": 600,
    "epsilon": 0.5,
    "delta": 1e-6,
    "epsilon_together": 1.25,
}


def test_a_paid_score_is_shown_with_its_cost():
    text = report_page(report_with())
    assert "Nothing else left the data" not in text
    assert "computed from these noisy numbers and from public facts, and from nothing else." in text
    assert "A score was released" not in text
    text = report_page(report_with(score=SCORE))
    assert "accuracy 81.5% on 600 held-out people, between 79.0% and 84.0% given its noise; it cost epsilon 0.5" in text
    assert "<dt>epsilon with its score</dt><dd>1.25</dd>" in text
    error = report_with(score={**SCORE, "kind": "root mean squared error"})
    assert "root mean squared error 0.815" in report_page(error)
    assert "In addition to the model: root mean squared error" in error.summary()


def test_names_that_turn_text_around_are_spelt_out():
    name = "good\u202edab\u2066\n\u0301"
    page = report_page(
        report_with(ledger={**report_with().ledger, "dataset": name}),
        title=name,
        model=name,
        weights=[(name, 1.0)],
        declared=[(name, name)],
    )
    assert not [one for one in page if unicodedata.category(one) in ("Cf", "Cc") and one != "\n"]
    assert page.count("<bdi>good\\u202edab\\u2066\\n\u0301</bdi>") == 4


def test_columns_are_counted_and_declared_ranges_are_shown():
    declared = [("state (target)", "ill, well"), *((f"x{k}", f"0 to {k}") for k in range(99))]
    page = report_page(report_with(), columns=5, declared=declared)
    assert "<dt>columns</dt><dd>5 (10 encoded)</dd>" in page
    assert "<dt>columns</dt><dd>10</dd>" in report_page(report_with(), columns=10)
    rows = cells(page)
    assert ["state (target)", "ill, well"] in rows
    assert ["x6", "0 to 6"] in rows
    assert ["x7", "0 to 7"] not in rows
    assert "And 92 more, in the model file." in page
    assert "declared; values outside" in page
    assert "bought with part" in report_page(report_with(public={"bounds": "bought"}), declared=declared[1:3])


def test_the_verdict_and_the_strength_name_the_same_view():
    report = report_with()
    assert "Seeing the model can raise that belief" in report_page(report)
    page = report_page(replace(report, guarantee=replace(report.guarantee, view="transcript")))
    assert "Seeing every message of the run can raise that belief" in page
    assert "Seeing the model" not in page


def test_what_officers_need_comes_before_what_folds_away():
    text = report_page(report_with(), weights=[("age", 1.0)], declared=[("age", "0 to 100")])
    order = [
        text.index(part)
        for part in ("What is protected", "How strongly", "What is not covered", "<details>", "noise<br>multiplier")
    ]
    assert order == sorted(order)
    shown = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    for jargon in ("multiplier", "neighbour", "hash", "lattice", "Gaussian", "gradient"):
        assert jargon not in shown.partition("<main>")[2]


def test_effects_are_explained_and_those_left_out_counted():
    weights = [(f"x{k}", 1.0 / (k + 1)) for k in range(12)]
    assert "The 10 largest of 12 effects. Change in the prediction" in report_page(report_with(), weights=weights)
    assert "largest of" not in report_page(report_with(), weights=weights[:10])


def test_the_summary_says_first_what_is_protected_and_what_is_not():
    report = report_with(not_covered=("the running time",))
    lines = report.summary().splitlines()
    assert lines[0] == report.guarantee.sentence()
    assert lines[1:5] == [f"Protected: {report.guarantee.unit}.", "Not covered:", "- the running time.", "Released:"]
    assert lines[5].endswith("(noise: Gaussian; noise multiplier 40; 2 of them planned but unused)")
    assert "sensitivities" not in report.summary()


def test_releases_have_plain_names_and_keep_that_of_the_ledger():
    line = ReleaseLine("mapped second moment", "gaussian", 1, 0, 40.0, 2.5, 100.0, 11)
    report = report_with(releases=(line,))
    assert "second moments of the columns, or of their scores</bdi><br><small><bdi>mapped second moment" in report_page(
        report
    )
    assert "- 1 x second moments of the columns, or of their scores (" in report.summary()
    assert query_label("something new") == "something new"
    assert query_label("atom choice of bank of north") == "choice of the next column, from bank of north"

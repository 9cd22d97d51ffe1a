"""What collections cost: charges, caps, reports."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Bounds, Budget, Ledger, LocalLinearRegression, LocalLogisticRegression, Marginals, SmoothQueries
from dperm.errors import BudgetRefused, InvalidData, InvalidInput, Unsupported
from dperm.privacy.events import RandomizedResponse
from dperm.solvers.local import Counts, Task

BOUNDS = Bounds(features=(-1, 1), classes=[False, True])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (5000, 1))
    return x, x[:, 0] > 0.1 * rng.normal(size=5000)


def fits(ledger):
    return ledger.spent().n_fits


def test_every_simulated_collection_is_charged(table):
    ledger = Ledger(dataset="people")
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger).fit(*table)
    once = ledger.spent().epsilon
    assert 0.0 < once <= 1.0
    report = model.privacy_report_
    assert report.ledger["dataset"] == "people"
    assert report.ledger["spent_before"] == 0.0
    assert report.ledger["spent_after"] == once
    assert report.ledger["head"] == ledger.head
    model.fit(*table)
    assert fits(ledger) == 2
    assert once < ledger.spent().epsilon <= 2.0
    assert model.privacy_report_.ledger["spent_before"] == once
    assert [e for e in ledger.entries() if "RandomizedResponse" in str(e) or "randomized" in str(e).lower()]


def test_what_is_charged_is_one_report_per_person(table, monkeypatch):
    """The event does not grow with the number of people or of statistics."""
    seen = []
    real = Ledger.reserve
    monkeypatch.setattr(Ledger, "reserve", lambda self, event, *rest: seen.append(event) or real(self, event, *rest))
    LocalLogisticRegression(2.0, bounds=BOUNDS, ledger=Ledger()).fit(*table)
    LocalLinearRegression(2.0, bounds=Bounds(features=(-1, 1), target=(0, 1)), ledger=Ledger()).fit(*table)
    assert seen == [RandomizedResponse(2.0, 2)] * 2


def test_a_cap_refuses_before_anything_is_drawn(table, monkeypatch):
    ledger = Ledger(dataset="people")
    ledger.set_cap(Budget(1.5, 1e-6))
    LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger).fit(*table)
    drawn = []
    monkeypatch.setattr(Task, "collect", lambda *_: drawn.append(1))
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger)
    with pytest.raises(BudgetRefused):
        model.fit(*table)
    assert drawn == []
    assert not hasattr(model, "coef_")
    assert fits(ledger) == 1


def test_a_collection_that_fails_stays_charged(table, monkeypatch):
    ledger = Ledger()

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Task, "collect", broken)
    with pytest.raises(KeyboardInterrupt):
        LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger).fit(*table)
    assert fits(ledger) == 1
    assert ledger.unsettled() == []
    assert ledger.spent().epsilon > 0.0


def test_bad_data_cost_nothing(table):
    ledger, (x, y) = Ledger(), table
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger)
    with pytest.raises(InvalidData):
        model.fit(np.where(x > 0.9, np.nan, x), y)
    with pytest.raises(InvalidData):
        model.fit(x, np.full(len(y), 7))
    with pytest.raises(Unsupported):
        model.fit(np.tile(x[:50], (1, 9)), y[:50])
    assert fits(ledger) == 0


def test_reports_that_people_sent_are_charged_once_per_task(table):
    counts = LocalLogisticRegression(1.0, bounds=BOUNDS, insecure_seed=0).fit(*table).counts_
    ledger = Ledger(dataset="people")
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger).fit_counts(counts, 1)
    spent = ledger.spent().epsilon
    assert fits(ledger) == 1
    assert model.privacy_report_.guarantee.epsilon == 1.0
    assert model.privacy_report_.ledger["spent_after"] == spent
    later = counts + Counts(counts.task, counts.n, counts.ones)
    again = LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger, confidence=0.5).fit_counts(later, 1)
    assert fits(ledger) == 1
    assert again.privacy_report_.ledger["spent_before"] == again.privacy_report_.ledger["spent_after"] == spent
    other = LocalLogisticRegression(2.0, bounds=BOUNDS, insecure_seed=0).fit(*table).counts_
    LocalLogisticRegression(2.0, bounds=BOUNDS, ledger=ledger).fit_counts(other, 1)
    assert fits(ledger) == 2
    elsewhere = ledger.for_dataset("others")
    LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=elsewhere).fit_counts(counts, 1)
    assert fits(elsewhere) == 1


def test_counts_of_another_task_cost_nothing(table):
    counts = LocalLogisticRegression(1.0, bounds=BOUNDS, insecure_seed=0).fit(*table).counts_
    ledger = Ledger()
    with pytest.raises(InvalidInput, match="another task"):
        LocalLogisticRegression(2.0, bounds=BOUNDS, ledger=ledger).fit_counts(counts, 1)
    assert fits(ledger) == 0


def test_a_seeded_collection_has_no_guarantee(table):
    ledger = Ledger()
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, insecure_seed=0, ledger=ledger).fit(*table)
    assert model.privacy_report_.guarantee is None
    assert ledger.spent().unbounded
    capped = Ledger(dataset="people")
    capped.set_cap(Budget(5.0, 1e-6))
    with pytest.raises(BudgetRefused):
        model.set_params(ledger=capped).fit(*table)


def test_queries_are_charged_and_reported():
    ledger, bits = Ledger(), np.ones((500, 3), bool)
    marginals = Marginals(1.0, n_bits=3, k=2, n_people=500, ledger=ledger).fit(bits)
    smooth = SmoothQueries(2.0, low=[0], high=[1], n_degrees=3, ledger=ledger).fit(np.full((500, 1), 0.5))
    assert fits(ledger) == 2
    assert (marginals.privacy_report_.guarantee.epsilon, smooth.privacy_report_.guarantee.epsilon) == (1.0, 2.0)
    assert smooth.privacy_report_.public["people"] == 500
    counted = Marginals(1.0, n_bits=3, k=2, n_people=500, ledger=Ledger())
    for _ in range(2):
        counted.fit_counts(marginals.counts_)
    assert fits(counted.ledger) == 1
    other = SmoothQueries(2.0, low=[0], high=[2], n_degrees=3, ledger=ledger)
    with pytest.raises(InvalidInput, match="another task"):
        other.fit_counts(smooth.counts_)
    with pytest.raises(InvalidInput, match="must be the Counts"):
        other.fit_counts([1, 2])
    assert fits(ledger) == 2


def test_the_report(table):
    free = Bounds(features=(-1, 1))
    report = LocalLogisticRegression(1.0, bounds=free).fit(*table).privacy_report_
    assert (report.guarantee.epsilon, report.guarantee.delta, report.guarantee.view) == (1.0, 0.0, "transcript")
    assert any("once" in text for text in report.guarantee.assumptions)
    assert any("label" in text for text in report.guarantee.assumptions)
    assert report.public["people"] == 5000
    assert report.public["degree"] in (2, 4)
    assert type(report).from_json(report.to_json()) == report
    assert "one per person" in report.summary()
    seeded = LocalLogisticRegression(1.0, bounds=free, insecure_seed=1).fit(*table).privacy_report_
    assert seeded.guarantee is None
    assert "insecure_seed" in seeded.reason
    counted = LocalLogisticRegression(1.0, bounds=BOUNDS, insecure_seed=1).fit(*table).counts_
    report = LocalLogisticRegression(1.0, bounds=BOUNDS).fit_counts(counted, 1).privacy_report_
    assert "devices" in report.randomness
    assert report.ledger == {}

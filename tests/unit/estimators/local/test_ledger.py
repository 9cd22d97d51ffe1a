"""Charges of collections, caps and reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dperm import Bounds, Budget, Ledger, LocalLinearRegression, LocalLogisticRegression, Marginals, SmoothQueries
from dperm.errors import BudgetRefused, InvalidData, InvalidInput, Unsupported
from dperm.estimators.local.report import charge_task
from dperm.privacy.accounting.events import Gaussian, RandomizedResponse
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Counts, Task

BOUNDS = Bounds(features=(-1, 1), classes=[False, True])


def fits(ledger):
    return ledger.spent().n_fits


def test_every_simulated_collection_is_charged(table):
    ledger = Ledger(dataset="people")
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger).fit(*table)
    once = ledger.spent().epsilon
    assert 0.0 < once <= 1.0
    report = model.privacy_report_
    assert report.ledger["dataset"] == "people"
    receipt = ledger.receipt(report.ledger)
    assert (receipt.dataset, receipt.spent.epsilon, receipt.head) == ("people", once, ledger.head)
    model.fit(*table)
    assert fits(ledger) == 2
    assert once < ledger.spent().epsilon <= 2.0
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


def counted(ledger, counts, n_people=5000, epsilon=1.0, **options):
    model = LocalLogisticRegression(epsilon, bounds=BOUNDS, ledger=ledger, **options)
    return model.fit_counts(counts, 1, n_people=n_people)


def test_reports_that_people_sent_are_charged_once_per_task(table):
    x, y = table
    counts = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(x[:3000], y[:3000]).counts_
    ledger = Ledger(dataset="people")
    model = counted(ledger, counts)
    spent = ledger.spent().epsilon
    assert fits(ledger) == 1
    assert model.privacy_report_.guarantee.epsilon == 1.0
    assert ledger.receipt(model.privacy_report_.ledger).spent.epsilon == spent
    assert (model.privacy_report_.public["people"], model.privacy_report_.public["reports"]) == (5000, 3000)
    later = counts + LocalLogisticRegression(1.0, bounds=BOUNDS).fit(x[3000:], y[3000:]).counts_
    again = counted(ledger, later, confidence=0.5)  # the others of the 5000 have answered since
    assert fits(ledger) == 1
    assert ledger.spent().epsilon == spent
    assert "reservation" not in again.privacy_report_.ledger  # charged before
    counted(ledger, LocalLogisticRegression(2.0, bounds=BOUNDS).fit(*table).counts_, epsilon=2.0)
    assert fits(ledger) == 2
    counted(ledger, later, n_people=6000)  # another statement, another charge
    assert fits(ledger) == 3
    elsewhere = ledger.for_dataset("others")
    counted(elsewhere, counts)
    assert fits(elsewhere) == 1


class TestTheSamePeopleAgain:
    def test_more_reports_than_people_are_refused(self, table):
        counts = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
        ledger = Ledger(dataset="people")
        counted(ledger, counts)
        with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
            counted(ledger, counts + counts)
        with pytest.raises(InvalidInput, match="say how many people"):
            counted(ledger, counts, n_people=None)
        for bad in (0, 2.5, True):
            with pytest.raises(InvalidInput, match="n_people must be"):
                counted(ledger, counts, n_people=bad)
        assert fits(ledger) == 1

    def test_repeated_collections_from_three_people_are_refused(self):
        ledger = Ledger(dataset="people")
        ledger.set_cap(Budget(1.0, 1e-6))
        model = Marginals(1.0, n_bits=1, k=1, n_people=100, ledger=ledger)
        total = model.task.collect(np.ones((3, 1), bool), RandomSource())
        model.fit_counts(total, n_people=3)
        with pytest.raises(InvalidInput, match="6 reports from 3 people"):
            model.fit_counts(total + model.task.collect(np.ones((3, 1), bool), RandomSource()), n_people=3)
        with pytest.raises(BudgetRefused):
            model.fit_counts(total, n_people=1200)

    @pytest.mark.parametrize("again", [{"version": 2}, {"window": "week 2"}])
    def test_another_version_or_window_is_another_task_with_its_own_charge(self, table, again):
        ledger = Ledger(dataset="people")
        first = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
        second = LocalLogisticRegression(1.0, bounds=BOUNDS, **again).fit(*table).counts_
        assert first.task != second.task
        counted(ledger, first)
        with pytest.raises(InvalidInput, match="another task"):
            counted(ledger, second)
        counted(ledger, second, **again)
        assert fits(ledger) == 2
        for make in (
            lambda **more: LocalLinearRegression(bounds=Bounds(features=(-1, 1), target=(0, 1)), **more).task(1),
            lambda **more: Marginals(n_bits=2, k=1, n_people=9, **more).task,
            lambda **more: SmoothQueries(low=[0], high=[1], **more).task,
        ):
            plain, other = make(), make(**again)
            assert plain.digest != other.digest
            assert Task.from_schema(other.schema()) == other
        with pytest.raises(InvalidInput, match="version must be"):
            LocalLogisticRegression(bounds=BOUNDS, version=0).task(1)
        with pytest.raises(InvalidInput, match="window must be"):
            Marginals(n_bits=2, k=1, n_people=9, window=7)


def test_a_charge_is_known_by_what_it_cost_not_by_its_words(table):
    counts = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
    plain = Ledger(dataset="people")
    counted(plain, counts)
    purpose = next(entry["purpose"] for entry in plain.entries() if "purpose" in entry)
    squatted = Ledger(dataset="people")
    squatted.reserve(Gaussian(1e9), "replace-one", purpose)
    counted(squatted, counts)
    assert squatted.spent().epsilon >= plain.spent().epsilon


class TestSeededCounts:
    """Counts made with a seed have no guarantee, whoever submits them."""

    def test_fits_of_seeded_counts_have_no_guarantee(self, table):
        seeded = LocalLogisticRegression(1.0, bounds=BOUNDS, insecure_seed=0).fit(*table).counts_
        good = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
        assert (seeded.secure, good.secure, (good + good).secure) == (False, True, True)
        for counts in (seeded, good + seeded, seeded + good, Counts.from_dict(seeded.to_dict())):
            ledger = Ledger(dataset="people")
            report = counted(ledger, counts, n_people=10_000).privacy_report_
            assert report.guarantee is None
            assert "insecure_seed" in report.reason
            assert "insecure" in report.randomness
            assert ledger.spent().unbounded
            capped = Ledger(dataset="people")
            capped.set_cap(Budget(5.0, 1e-6))
            with pytest.raises(BudgetRefused):
                counted(capped, counts, n_people=10_000)
        ledger = Ledger(dataset="people")
        counted(ledger, good, n_people=10_000)
        counted(ledger, seeded, n_people=10_000)  # not covered by the charge of good ones
        assert ledger.spent().unbounded

    def test_reports_remember_their_source(self):
        task = Task("t", 1.0, Marginals(n_bits=2, k=1, n_people=9).task.sketch)
        for source, secure in ((RandomSource(1), False), (RandomSource(), True)):
            reports = task.reports(np.ones((4, 2)), source)
            assert task.count(reports).secure is reports.secure is secure
        seeded = Marginals(n_bits=2, k=1, n_people=9, insecure_seed=3).fit(np.ones((9, 2)))
        assert Marginals(n_bits=2, k=1, n_people=9).fit_counts(seeded.counts_).privacy_report_.guarantee is None

    def test_counts_survive_json(self):
        task = Marginals(n_bits=2, k=1, n_people=9).task
        counts = task.collect(np.ones((40, 2)), RandomSource())
        again = Counts.from_dict(json.loads(json.dumps(counts.to_dict())))
        assert again.task == counts.task
        assert again.secure
        assert np.array_equal(again.by_answer, counts.by_answer)
        for change in ({"secure": None}, {"n": [1.5, 2]}, {"n": "x"}, {"task": 3}, {"ones": [[[1]]]}):
            with pytest.raises(InvalidInput, match="counts"):
                Counts.from_dict({**counts.to_dict(), **change})
        with pytest.raises(InvalidInput, match="missing"):
            Counts.from_dict({"task": "x"})


class TestRoundsThatPeopleAnswer:
    @staticmethod
    def rounds(table, ledger, source, **options):
        x, y = table
        options = {"bounds": BOUNDS, "solver": "sgd", "n_rounds": 5, "ledger": ledger} | options
        model = LocalLogisticRegression(2.0, **options)
        descent = model.descent(1)
        state = descent.start()
        records = np.column_stack([x, np.ones(len(x))]) / np.sqrt(2) * np.where(y, 1, -1)[:, None]
        for group in np.array_split(records, 5):
            state = descent.next_state(state, descent.task(state).collect(group, source))
        return model, descent, state

    def test_all_rounds_are_one_charge(self, table):
        ledger = Ledger(dataset="people")
        model, descent, state = self.rounds(table, ledger, RandomSource())
        charge_task(ledger, descent, 5000)  # before anybody is asked
        for _ in range(2):
            model.fit_rounds(state, 1, n_people=5000)
        assert fits(ledger) == 1
        assert ledger.spent().epsilon == pytest.approx(2.0, rel=1e-6)
        assert model.score(*table) > 0.8
        assert model.privacy_report_.guarantee.epsilon == 2.0
        assert any("one round only" in text for text in model.privacy_report_.guarantee.assumptions)
        assert "devices" in model.privacy_report_.randomness

    def test_refusals(self, table):
        ledger = Ledger(dataset="people")
        model, descent, state = self.rounds(table, ledger, RandomSource())
        with pytest.raises(InvalidInput, match="5000 reports from 4999 people"):
            model.fit_rounds(state, 1, n_people=4999)
        with pytest.raises(InvalidInput, match="not the state"):
            LocalLogisticRegression(2.0, bounds=BOUNDS, solver="sgd").fit_rounds(state, 1)
        with pytest.raises(InvalidInput, match="not the state"):
            model.fit_rounds({}, 1, n_people=5000)
        with pytest.raises(Unsupported, match="fit_counts"):
            LocalLogisticRegression(2.0, bounds=BOUNDS).descent(1)
        assert fits(ledger) == 0
        others = [
            self.rounds(table, None, RandomSource(), **more)[1].digest for more in ({"version": 2}, {"window": "w"})
        ]
        assert len({descent.digest, *others}) == 3

    def test_a_descent_that_is_run_again_is_more_reports_than_people(self, table):
        """States of one run continue one another; those of another run hold other reports."""
        ledger = Ledger(dataset="people")
        model, descent, state = self.rounds(table, ledger, RandomSource())
        early = descent.start()
        records = np.column_stack([table[0], np.ones(5000)]) / np.sqrt(2) * np.where(table[1], 1, -1)[:, None]
        groups, states = np.array_split(records, 5), []
        for group in groups:
            early = descent.next_state(early, descent.task(early).collect(group, RandomSource()))
            states.append(early)
        model.set_params(refuse_hopeless=False)
        for known in (descent.start(), states[1], states[4], states[2], states[4]):
            model.fit_rounds(known, 1, n_people=5000)
        for _ in range(2):
            with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
                model.fit_rounds(state, 1, n_people=5000)
        # the last round asked again, of the same run
        again = descent.next_state(states[3], descent.task(states[3]).collect(groups[4], RandomSource()))
        with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
            model.fit_rounds(again, 1, n_people=5000)
        assert fits(ledger) == 1
        model.fit_rounds(state, 1, n_people=10_000)
        assert fits(ledger) == 2

    def test_seeded_rounds_have_no_guarantee(self, table):
        ledger = Ledger(dataset="people")
        model, _, state = self.rounds(table, ledger, RandomSource(1))
        assert model.fit_rounds(state, 1, n_people=5000).privacy_report_.guarantee is None
        assert ledger.spent().unbounded


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
        counted.fit_counts(marginals.counts_, n_people=500)
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
    counted = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
    report = LocalLogisticRegression(1.0, bounds=BOUNDS).fit_counts(counted, 1).privacy_report_
    assert "devices" in report.randomness
    assert report.ledger == {}


def test_reports_that_are_out_are_charged_also_if_the_fit_is_refused(table):
    few = LocalLogisticRegression(1.0, bounds=BOUNDS, refuse_hopeless=False).fit(table[0][:50], table[1][:50]).counts_
    ledger = Ledger(dataset="people")
    with pytest.raises(Unsupported, match="too few"):
        LocalLogisticRegression(1.0, bounds=BOUNDS, ledger=ledger).fit_counts(few, 1, n_people=50)
    assert fits(ledger) == 1
    ledger = Ledger(dataset="people")
    model = LocalLogisticRegression(1.0, bounds=BOUNDS, solver="sgd", n_rounds=3, ledger=ledger)
    descent = model.descent(1)
    with pytest.raises(Unsupported, match="too few"):
        model.fit_rounds(descent.run(np.ones((50, 2)), RandomSource()), 1, n_people=50)
    assert fits(ledger) == 1


def test_counts_are_refused_where_people_are_asked_in_rounds():
    model = LocalLogisticRegression(2.0, bounds=Bounds(features=(-1, 1), classes=[0, 1]), solver="sgd")
    with pytest.raises(Unsupported, match="asks people in rounds"):
        model.fit_counts(None, 2)

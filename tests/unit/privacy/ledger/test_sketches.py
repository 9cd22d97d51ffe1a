"""Sketches: how many rows a table shares with one of another name, told to the owner and to nobody else."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, Budget, DPLogisticRegression, DPRidge
from dperm.errors import BudgetRefused, DataSetResembles
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.column_sketches import common_columns
from dperm.privacy.ledger.fingerprints import Fingerprint, opened_sketch
from dperm.privacy.ledger.sketches import SIZE, RowSketch, Share, TableSketch, likeness

KEY = bytes(range(32))


def sketch(tags):
    return RowSketch().with_rows(np.asarray(tags, np.uint64))


def table(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 4))


def rows_of(one, key=KEY):
    return opened_sketch(Fingerprint.of_table(one, None, key).sealed, key).rows


def alike(one, other):
    return likeness(rows_of(one), rows_of(other))


@pytest.mark.parametrize("n", [200, 5000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.97, 1.0])
def test_the_share_of_common_rows(n, share):
    same = round(share * n)
    other = np.vstack([table(n)[:same], table(n - same, seed=1)])
    found = alike(other[::-1], table(n))
    for one in (found.of_these, found.of_those):
        assert one.value == pytest.approx(share, abs=4.5 * 0.5 / np.sqrt(SIZE) if n > SIZE else 1e-12)
        assert one.complete == (n <= SIZE)
        assert (one.limits[0] == one.limits[1]) == one.complete
    assert found.notable == (share > 0.2)


def test_one_row_less_one_cell_changed_and_rows_added():
    whole = table(1000)
    less, changed = whole[1:], whole.copy()
    changed[3, 2] += 1.0
    assert alike(less, whole).of_these == Share(999, 999, True)
    assert alike(less, whole).of_those == alike(changed, whole).of_these == Share(999, 1000, True)
    more = alike(np.vstack([whole, table(9000, seed=1)]), whole)
    assert more.of_those.value == 1.0
    assert more.of_these.value == pytest.approx(0.1, abs=0.05)
    assert more.notable


def test_a_part_of_a_large_table_is_found_if_enough_of_it_is_sampled():
    whole = table(20_000)
    assert alike(whole[:5000], whole).of_these.value == 1.0
    assert alike(whole[:100], whole) is None  # about 5 of its rows are in the sample


def test_rows_that_are_there_several_times():
    whole = table(300)
    found = alike(np.vstack([whole, whole, whole]), whole)
    assert found.of_these == found.of_those == Share(300, 300, True)


def test_one_common_kind_of_row_is_no_likeness():
    """Two tables of other people in which 60% of the rows are zeros: under no key do they look alike."""
    one, other = table(3000, seed=1), table(3000, seed=2)
    one[:1800] = other[:1800] = 0.0
    for k in range(12):
        found = likeness(rows_of(one, bytes([k] * 32)), rows_of(other, bytes([k] * 32)))
        assert max(found.of_these.value, found.of_those.value) < 0.01
        assert not found.notable


def test_a_sample_never_says_all_or_nothing():
    sampled = Share(1024, 1024, complete=False)
    assert sampled.limits == (pytest.approx(0.025 ** (1 / 1024)), 1.0)
    assert str(sampled) == "at least 99.6%"
    assert Share(0, 1024, complete=False).limits == (0.0, pytest.approx(1.0 - 0.025 ** (1 / 1024)))
    assert str(Share(512, 1024, complete=False)) == "about 50.0% (46.8% to 53.2%)"
    assert [str(Share(k, 1000, complete=True)) for k in (1000, 999, 970)] == ["all", "about 99.9%", "about 97.0%"]


def test_blocks_give_the_sketch_of_the_whole():
    tags = np.random.default_rng(1).integers(0, 2**64, 20_000, np.uint64)
    tags = np.concatenate([tags, tags[:7000]])
    whole, parts = sketch(tags), RowSketch()
    for start in range(0, len(tags), 999):
        parts = parts.with_rows(tags[start : start + 999])
    assert np.array_equal(whole.tags, np.unique(tags)[:SIZE])
    assert np.array_equal(parts.tags, whole.tags)


@pytest.mark.parametrize("share", [0.02, 0.6, 0.995])
def test_estimates_are_right_on_average_and_within_their_limits(share):
    """500 pairs of random samples: the mean share is unbiased, and the limits miss it in 5% of the cases at most."""
    rng, n, found = np.random.default_rng(2), 3000, []
    for _ in range(500):
        tags = rng.integers(0, 2**64, 2 * n, np.uint64)
        common = likeness(sketch(tags[:n]), sketch(tags[round(n * (1 - share)) : round(n * (2 - share))]))
        found.append(common.of_these)
    shares = np.array([one.value for one in found])
    spread = shares.std()
    assert abs(shares.mean() - share) < 4.5 * spread / np.sqrt(len(shares))
    missed = sum(not one.limits[0] <= share <= one.limits[1] for one in found)
    assert missed <= 48  # binomial with 500 and 5%: more has probability 1e-5


def test_a_sealed_sketch_shows_nothing_but_its_length():
    many = sketch(np.random.default_rng(3).integers(0, 2**64, 5000, np.uint64))
    few, many = TableSketch(RowSketch(kinds=b"k" * 32), sketch(np.arange(40))), TableSketch(many, many)
    sealed = [few.sealed(KEY), few.sealed(KEY), many.sealed(KEY)]
    assert len(set(map(len, sealed))) == 1
    assert len(set(sealed)) == 3  # two seals of one sketch cannot be matched either
    opened = TableSketch.opened(sealed[0], KEY)
    for one, was in ((opened.rows, few.rows), (opened.features, few.features)):
        assert np.array_equal(one.tags, was.tags)
        assert one.kinds == was.kinds
    assert TableSketch.opened(sealed[0], bytes(32)) is None


# ------------------------------------------------------------------------------------------ in a ledger
def hospital(path, n=2000):
    ledger = Ledger(path, dataset="hosp")
    ledger.set_cap(Budget(5.0, 1e-6))
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(table(n)))
    return ledger


def test_the_owner_is_told_of_a_table_that_resembles_one_with_a_cap(tmp_path):
    ledger = hospital(tmp_path / "budget.db")
    changed = np.vstack([table(2000)[:1940], table(60, seed=1)])
    mark = ledger.fingerprint(changed)
    (found,) = ledger.for_dataset("census").resembling(mark)
    assert (found.dataset, found.capped) == ("hosp", True)
    assert found.likeness.of_these.value == pytest.approx(0.97, abs=0.03)
    ledger.check(Gaussian(50.0), "replace-one", mark)  # by the name that it resembles: nothing to say
    says = (
        r"^about 9\d\.\d% \(9\d\.\d% to 9\d\.\d%\) of the different rows .* 'census' are also in 'hosp', "
        "which has a cap: .*--dataset hosp"
    )
    with pytest.warns(DataSetResembles, match=says):
        made = ledger.for_dataset("census").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)
    assert made.dataset == "census"  # nothing is refused
    ledger.for_dataset("census").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)  # told once


def test_a_table_that_contains_a_known_one(tmp_path):
    ledger = hospital(tmp_path / "budget.db")
    grown = np.vstack([table(2000), table(8000, seed=1)])
    with pytest.warns(
        DataSetResembles,
        match=r"^the data given as 'census' contain at least 9\d\.\d% of the different rows of 'hosp', which has a cap",
    ):
        ledger.for_dataset("census").reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(grown))


def test_where_warnings_are_errors_nothing_is_charged(tmp_path):
    ledger = hospital(tmp_path / "budget.db")
    head = ledger.head
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mark = ledger.fingerprint(table(2000)[:-1])
        with pytest.raises(DataSetResembles):
            ledger.for_dataset("census").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)
    assert ledger.head == head


@pytest.mark.parametrize("n", [1, 300])
def test_tables_without_common_rows_are_charged_in_silence(tmp_path, n):
    ledger = hospital(tmp_path / "budget.db")
    mark = ledger.fingerprint(table(n, seed=2))
    ledger.for_dataset("census").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


def test_few_kinds_of_rows_in_other_numbers_resemble_nothing():
    ledger, bits = Ledger(dataset="a"), np.random.default_rng(3).integers(0, 2, (500, 2))
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(bits))
    other = np.random.default_rng(4).integers(0, 2, (500, 2))
    ledger.for_dataset("b").reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(other))


def test_few_kinds_of_rows_in_another_order_are_told_to_the_owner(tmp_path):
    """4 kinds of rows, shuffled: some tables of other people have as many of each, so they are charged apart."""
    rng = np.random.default_rng(4)
    X, y = rng.integers(0, 2, (400, 1)).astype(float), rng.integers(0, 2, 400)
    ledger, bounds = Ledger(tmp_path / "budget.db", dataset="A"), Bounds(features=(0, 1), classes=[0, 1])
    ledger.set_cap(Budget(1.0, 1e-5))
    DPLogisticRegression(1.0, 1e-5, bounds=bounds, ledger=ledger).fit(X, y)
    order = rng.permutation(400)
    says = (
        "^the data given as 'B' have the same number of each kind of row as 'A', which has a cap: if they are the same"
    )
    with pytest.warns(DataSetResembles, match=says):
        DPLogisticRegression(1.0, 1e-5, bounds=bounds, ledger=ledger.for_dataset("B")).fit(X[order], y[order])
    assert ledger.for_dataset("B").spent().n_fits == 1
    with pytest.warns(
        DataSetResembles, match="^without the target, the data given as 'C' have the same number of each"
    ):
        DPLogisticRegression(1.0, 1e-5, bounds=bounds, ledger=ledger.for_dataset("C")).fit(X[order], 1 - y)


def test_one_kind_of_row_says_nothing():
    ledger = Ledger(dataset="a")
    for name, target in (("a", np.arange(40.0)), ("b", np.arange(40.0) + 0.5)):
        mark = ledger.fingerprint(np.zeros((40, 2)), target)
        ledger.for_dataset(name).reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


@pytest.mark.parametrize("n", [20, 300, 2000])
@pytest.mark.parametrize("change", ["another target", "swapped classes", "a little more"])
def test_another_target_of_the_same_people_is_told_to_the_owner(n, change):
    ledger, X, y = Ledger(dataset="hosp"), table(n), (table(n)[:, 0] > 0.5).astype(float)
    other = {"another target": X[:, 1] ** 2, "swapped classes": 1.0 - y, "a little more": y + 1e-9}[change]
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(X, y))
    mark = ledger.fingerprint(X[::-1], other[::-1])
    with pytest.warns(
        DataSetResembles, match=r"^without the target, .* as 'study' .* 'hosp': if they are the same people"
    ):
        ledger.for_dataset("study").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


def test_a_table_without_its_target_is_told_to_the_owner():
    ledger, X = Ledger(dataset="hosp"), table(300)
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(X, X[:, 0]))
    with pytest.warns(
        DataSetResembles, match="^without the target, all of the different rows of the data given as 'x'"
    ):
        ledger.for_dataset("x").reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(X))


def test_few_kinds_of_rows_whose_numbers_are_rare_are_charged_together_in_any_order(tmp_path):
    rng = np.random.default_rng(4)
    X, y = rng.integers(0, 2, (5000, 3)).astype(float), rng.integers(0, 2, 5000)
    ledger, bounds = Ledger(tmp_path / "budget.db", dataset="A"), Bounds(features=(0, 1), classes=[0, 1])
    ledger.set_cap(Budget(1.0, 1e-5))
    DPLogisticRegression(1.0, 1e-5, bounds=bounds, ledger=ledger).fit(X, y)
    order = rng.permutation(5000)
    with pytest.raises(BudgetRefused, match="'A'"):
        DPLogisticRegression(1.0, 1e-5, bounds=bounds, ledger=ledger.for_dataset("B")).fit(X[order], y[order])


CHANGES = {
    "one column fewer": lambda X: X[:, :3],
    "columns in another order": lambda X: X[:, ::-1],
    "a column twice": lambda X: X[:, [0, 0, 1, 2, 3]],
    "a constant column more": lambda X: np.column_stack([np.ones(len(X)), X]),
    "other rows first, columns turned round": lambda X: X[::-1, ::-1],
    "sparse": lambda X: sp.csr_array(X[:, ::-1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_columns_with_the_same_numbers_are_told_to_the_owner(change):
    ledger, X, y = Ledger(dataset="hosp"), table(300), np.arange(300) % 2.0
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(X, y))
    mark = ledger.fingerprint(CHANGES[change](X), y)
    says = r"^\d of \d of the columns with many values of the data given as 'study' hold the same numbers as columns of"
    with pytest.warns(DataSetResembles, match=says):
        ledger.for_dataset("study").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


def test_columns_of_other_people_and_columns_with_few_values_are_not_told():
    rng, ledger = np.random.default_rng(8), Ledger(dataset="hosp")
    few = rng.integers(0, 8, (1000, 30)) * 1.0
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(few, rng.normal(size=1000)))
    others = rng.permuted(few, axis=0), rng.integers(20, 90, (1000, 5)) * 1.0, rng.integers(20, 90, (1000, 5)) * 1.0
    for k, other in enumerate(others):
        mark = ledger.fingerprint(other, rng.normal(size=1000))
        ledger.for_dataset(f"study {k}").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


def test_wide_tables_are_compared_by_a_sample_of_their_columns():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(200, 500))
    sums = [opened_sketch(Fingerprint.of_table(one, None, KEY).sealed, KEY) for one in (X, X[:, 250:], X[:, ::-1])]
    half, same = common_columns(sums[0].columns, sums[1].columns), common_columns(sums[0].columns, sums[2].columns)
    assert same.share == 1.0
    assert half.share == 1.0
    assert half.common == half.of_those < half.of_these


def test_what_the_proof_lists_as_not_recognised():
    """This passes in silence: if it is noticed some day, the proof and the guide must say so."""
    ledger, X, y = Ledger(dataset="hosp"), table(300), np.arange(300) % 2.0
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(X, y))
    mark = ledger.fingerprint(X + 1e-9, y)
    ledger.for_dataset("study").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


def test_a_small_part_of_a_table_is_told_to_the_owner():
    ledger, X, y = Ledger(dataset="hosp"), table(300), np.arange(300) % 2.0
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(X, y))
    mark = ledger.fingerprint(X[:20], y[:20])
    with pytest.warns(DataSetResembles, match="^all of the different rows of the data given as 'few'"):
        ledger.for_dataset("few").reserve(Gaussian(50.0), "replace-one", fingerprint=mark)


def leaks(folder) -> list[str]:
    """Fit with a ledger, and return every kind of output that contains a fingerprint or a sketch."""
    ledger = Ledger(folder / "budget.db", dataset="hosp")
    X = np.random.default_rng(5).uniform(size=(400, 2))
    model = DPRidge(1.0, bounds=Bounds(features=(0, 1), target=(0, 1)), ledger=ledger).fit(X, X[:, 0])
    (stored,) = ledger._journal.read(lambda state: state.sketches)
    mark = ledger.fingerprint(X, X[:, 0])
    assert ledger.known_as(mark) == "hosp"
    assert stored[1][:40].encode() in (folder / "budget.db").read_bytes()
    shown = {
        "export": json.dumps(ledger.export()),
        "entries": json.dumps(ledger.entries()),
        "report": model.privacy_report_.to_json(),
        "receipt": repr(ledger.receipt(model.privacy_report_.ledger)),
        "handle": repr(ledger),
        "pickle": repr(pickle.dumps(model)),
        "model": model.save(folder / "model.json").read_text(),
    }
    hidden = (stored[1][:40], stored[1][-40:], mark, '"sketch"', '"fingerprint"')
    return [name for name, text in shown.items() if any(one in text for one in hidden)]


def test_sketches_and_fingerprints_never_leave_the_ledger(tmp_path):
    assert leaks(tmp_path) == []


def test_rows_that_are_shown_as_they_are_stored_are_caught(tmp_path, monkeypatch):
    def all_of_it(self, dataset=None):
        return [{"seq": row.seq, "hash": row.digest, **row.data()} for row in self._journal.checked_rows()]

    monkeypatch.setattr(Ledger, "entries", all_of_it)
    assert leaks(tmp_path) == ["export", "entries"]


def test_a_handle_may_refuse_what_resembles_a_table_of_another_name(tmp_path):
    """Nothing is written; the setting is kept by other handles and by pickles."""
    ledger = Ledger(tmp_path / "budget.db", dataset="hosp", refuse_resembling=True)
    ledger.reserve(Gaussian(20.0), "replace-one", fingerprint=ledger.fingerprint(table(300)))
    rows, part = ledger.entries(), ledger.fingerprint(table(300)[:200])
    census = ledger.for_dataset("census")
    for handle in (census, pickle.loads(pickle.dumps(census)), census.recognising(part)):
        for act in (handle.reserve, handle.check):
            with pytest.raises(BudgetRefused, match="resemble one of another name are refused here") as refused:
                act(Gaussian(20.0), "replace-one", fingerprint=part)
            assert "are also in 'hosp'" in str(refused.value)
    assert ledger.entries() == rows
    ledger.reserve(Gaussian(20.0), "replace-one", fingerprint=part)  # by that name
    ledger.for_dataset("others").reserve(Gaussian(20.0), "replace-one", fingerprint=ledger.fingerprint(table(300, 1)))
    lenient = Ledger(tmp_path / "budget.db", dataset="census")
    with pytest.warns(DataSetResembles) as caught:
        lenient.reserve(Gaussian(20.0), "replace-one", fingerprint=lenient.fingerprint(table(300)[:250]))
    assert [one.message.dataset for one in caught] == ["hosp"]

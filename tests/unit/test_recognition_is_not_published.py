"""What a ledger recognises is told to the owner and to nobody else.

Each test fits one table twice, with equal noise: once with a ledger that has seen this table under another name, once
with a ledger that has seen a neighbour, in which one person's record differs. Whatever may be published must be equal.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

from dperm import (
    Bounds,
    Budget,
    DPLogisticRegression,
    DPRidge,
    DPTuner,
    Ledger,
    LocalLinearRegression,
    SmoothQueries,
    load,
)
from dperm.cli.summary import page_of
from dperm.errors import DataSetRenamed, OwnerWarning
from dperm.estimators.central.base import prepare_fit
from dperm.estimators.central.scoring import paid_score, plans_of_fit_and_score, report_with_score
from dperm.reporting.page import report_page
from dperm.testing.repeatable_noise import keys_named

N = 300
RNG = np.random.default_rng(5)
X = RNG.uniform(0, 1, (N, 3))
Y = X[:, 0]
NEIGHBOUR = np.where(np.arange(N) == 7, 1.0 - Y, Y)
BOUNDS = Bounds(features=(0, 1), target=(0, 1))


def equal_noise():
    return keys_named("equal noise")


def labels(y):
    return y > 0.5


def central(ledger, y):
    return DPRidge(1.0, bounds=BOUNDS, ledger=ledger).fit(X, y)


def bought(ledger, y):
    return DPRidge(4.0, bounds=None, ledger=ledger).fit(X, y)


def classes(ledger, y):
    return DPLogisticRegression(1.0, bounds=Bounds(features=(0, 1), classes=[False, True]), ledger=ledger).fit(
        X, labels(y)
    )


def tuned(ledger, y):
    return DPTuner(DPRidge(bounds=BOUNDS), {"strength": [1e-3, 1.0]}, epsilon=2.0, ledger=ledger).fit(X, y)


def local(ledger, y):
    return LocalLinearRegression(8.0, bounds=BOUNDS, ledger=ledger, refuse_hopeless=False).fit(X, y)


def queries(ledger, y):
    return SmoothQueries(2.0, low=[0], high=[1], n_degrees=3, ledger=ledger).fit(y[:, None])


def published(model, folder) -> dict[str, bytes]:
    """Everything that may leave the owner, apart from the random id of the reservation."""
    report = model.privacy_report_
    id_ = report.ledger["reservation"].encode()
    found = {
        "report": report.to_json().encode(),
        "page": report_page(report).encode(),
        "words": report.summary().encode(),
        "repr": repr(model).encode(),
        "pickle": pickle.dumps(model),
        "attributes": repr({k: v for k, v in sorted(vars(model).items()) if k.endswith("_")}).encode(),
    }
    if hasattr(model, "save"):
        path = model.save(folder / "model.json")
        found["file"] = path.read_bytes()
        found["page of the file"] = page_of(load(path)).encode()
    return {name: text.replace(id_, b"ID") for name, text in found.items()}


def twice(fit, folder, publish=published):
    """What is published by a fit whose table is recognised, and by one whose table is not; and both charged names."""
    told, charged = [], []
    for before in (Y, NEIGHBOUR):
        path = folder / "budget.db"
        path.unlink(missing_ok=True)
        hospital = Ledger(path, dataset="hosp")
        hospital.set_cap(Budget(50.0, 1e-5))
        census = hospital.for_dataset("census")
        with equal_noise(), warnings.catch_warnings():
            warnings.simplefilter("ignore", OwnerWarning)
            fit(hospital, before)
            model = fit(census, Y)
        told.append(publish(model, folder))
        charged.append(hospital.receipt(model.privacy_report_.ledger).dataset)
    return told, charged


FITS = [central, bought, tuned, local, queries]


@pytest.mark.parametrize("fit", FITS)
def test_nothing_published_depends_on_what_the_ledger_recognised(fit, tmp_path):
    (recognised, new), charged = twice(fit, tmp_path)
    assert charged == ["hosp", "census"]  # the two worlds really differ
    assert recognised == new
    for text in recognised.values():
        assert b"hosp" not in text


def test_labels_that_are_recognised(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "NEIGHBOUR", np.where(np.arange(N) == 7, 1.0 - labels(Y), Y))
    (recognised, new), charged = twice(classes, tmp_path)
    assert charged == ["hosp", "census"]
    assert recognised == new


def test_a_paid_score_adds_nothing_about_the_ledger(tmp_path):
    def scored(ledger, y):
        model = DPRidge(1.0, bounds=BOUNDS, ledger=ledger)
        plans = plans_of_fit_and_score(prepare_fit(model, 200, 3), held_out=100, epsilon=0.5)
        saved = model.fit(X[:200], y[:200]).saved_model()
        score = paid_score(saved, X[200:], y[200:], epsilon=0.5, ledger=ledger)
        model.privacy_report_ = report_with_score(saved.privacy_report_, score, plans)
        return model

    (recognised, new), charged = twice(scored, tmp_path)
    assert charged == ["hosp", "census"]
    assert recognised == new
    assert b"epsilon_together" in recognised["report"]


def naming_the_charged_account(self, reservation=None):
    return {"dataset": reservation.dataset, "neighbours": "replace-one", "reservation": reservation.id}


def with_the_balance(self, reservation=None):
    spent = self.for_dataset(reservation.dataset).spent()
    return {"dataset": self.given_as, "spent_after": spent.epsilon, "reservation": reservation.id}


def with_the_number_of_uses(self, reservation=None):
    return {"dataset": self.given_as, "n_fits": self.spent().n_fits, "reservation": reservation.id}


@pytest.mark.parametrize("bug", [naming_the_charged_account, with_the_balance, with_the_number_of_uses])
@pytest.mark.parametrize("fit", [central, tuned, local])
def test_a_report_that_says_what_was_recognised_is_caught(bug, fit, tmp_path, monkeypatch):
    monkeypatch.setattr(Ledger, "for_report", bug)
    (recognised, new), charged = twice(fit, tmp_path)
    assert charged == ["hosp", "census"]
    assert recognised["report"] != new["report"]
    assert recognised["pickle"] != new["pickle"]


def test_the_owner_is_told(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", dataset="hosp")
    central(ledger, Y)
    with pytest.warns(DataSetRenamed, match="known to the ledger as 'hosp', which is charged"):
        model = central(ledger.for_dataset("census"), Y)
    receipt = ledger.receipt(model.privacy_report_.ledger)
    assert (receipt.dataset, receipt.spent.n_fits, receipt.head) == ("hosp", 2, ledger.head)
    assert ledger.verify(receipt.head) == ledger.head

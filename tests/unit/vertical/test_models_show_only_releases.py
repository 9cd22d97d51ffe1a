"""A vertical run from configurations to files, with blind mechanisms: the models are the same for any tables."""

from __future__ import annotations

import json
from contextlib import contextmanager

import numpy as np
import pytest

from dperm.data.holding.holder import DataHolder
from dperm.testing import ContractViolation
from dperm.testing.whole_path import SharedValues, check_whole_path
from dperm.vertical.methods import training
from dperm.vertical.transport.base import InProcess

NAMES = ("org-a", "org-b", "lab")
PARTIES = NAMES[:2]
ROWS = 40


def tables():
    """Return the columns of both parties and the target; in the strange table every value lies at an end."""

    def usual(seed):
        rng = np.random.default_rng(seed)
        return {name: rng.uniform(0, 1, (ROWS, 1 if name == "lab" else 2)) for name in NAMES}

    strange = {
        name: np.where(np.arange(ROWS)[:, None] % 9 == 0, 2.0, 0.0) + 0.0 * one for name, one in usual(0).items()
    }
    return {"usual": usual(0), "other": usual(1), "strange": {**strange, "lab": np.zeros((ROWS, 1))}}


@contextmanager
def counted_shares():
    """Count the values that stay, without noise, inside a trusted domain."""
    share, count = DataHolder.share, []
    DataHolder.share = lambda self, *given: (count.append(1), share(self, *given))[1]
    try:
        yield count
    finally:
        DataHolder.share = share


@pytest.fixture
def training_by(organisations):
    """Return runs that train and show the published model and every party's part of it."""

    def training_by(method):
        return lambda table, folder: trained(organisations(method), table)

    return training_by


class InTurn(InProcess):
    """Parties answer one after the other, so that noise is drawn in one order in every run."""

    def send(self, party, envelope):
        self._answer(party, envelope.encode())
        return True


def trained(org, table):
    org.stop()
    for name, rows in table.items():
        path = org.root / name / "table.csv"
        header = path.read_text().partition("\n")[0]
        path.write_text("\n".join([header, *(",".join(map(repr, row)) for row in rows.tolist())]) + "\n")
    org.start()
    with counted_shares() as shared:
        result = org.coordinate(org.transport(InTurn))
    parts = {name: json.loads((org.root / name / "state" / "models" / "fit-1.json").read_text()) for name in PARTIES}
    model = json.loads((org.root / "lab" / "model.json").read_text())
    # of the ledgers their kinds of rows: a purpose holds the run's random ticket
    ledgers = {name: org.kinds(name) for name in NAMES}
    return SharedValues((model, parts, ledgers, result["report"].summary(), result["digest"]), len(shared))


@pytest.mark.parametrize("method", ["admm-sharing", "transcript-admm-sharing", "distributed-frank-wolfe"])
def test_models_and_parts_of_them_hold_nothing_but_releases(method, training_by):
    check_whole_path(training_by(method), tables(), fields_are_public=False)


@pytest.mark.parametrize(
    ("handler", "planted"),
    [
        (training.LabelHandler, lambda self: {"mean": float(self._table.target.mean())}),
        (training.TrainingHandler, lambda self: {"names": [str(self._table.X.mean())]}),
    ],
    ids=["target", "columns"],
)
def test_a_mean_in_a_stored_model_is_caught(handler, planted, training_by, monkeypatch):
    finish, write = handler.finish, training.write_atomically

    def leaking(self, *given):
        def written(path, text, **options):
            write(path, json.dumps(json.loads(text) | planted(self)), **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "write_atomically", written)
            return finish(self, *given)

    monkeypatch.setattr(handler, "finish", leaking)
    with pytest.raises(ContractViolation, match=r"on the tables .*result"):
        check_whole_path(training_by("admm-sharing"), tables(), fields_are_public=False)

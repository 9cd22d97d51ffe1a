"""Faults between real processes in a run with noise: it completes, and every participant is charged once."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from dperm.privacy.ledger import Ledger

PARTIES = ("org-a", "org-b", "org-c")
EVERYBODY = ("lab", *PARTIES)
ROUNDS = 40
_LEDGER = '[ledger]\nfile = "ledger.db"\ndataset = "people"\n{cap}\n'
_PARTY = """
[data]
file = "table.csv"
[allow]
methods = ["admm-sharing"]
epsilon = 1.0
parties = ["org-a", "org-b", "org-c"]
secure_sum = true
[columns.x]
kind = "number"
low = -1
high = 1
"""
_LAB = """
[data]
file = "table.csv"
[target]
column = "y"
kind = "classes"
classes = ["no", "yes"]
[run]
name = "trial"
method = "admm-sharing"
parties = ["org-a", "org-b", "org-c"]
secure_sum = true
out = "model.json"
[run.options]
epsilon = 1.0
delta = 1e-6
n_rounds = {rounds}
"""


@pytest.fixture
def charged(consortium):
    rng = np.random.default_rng(0)
    for name in EVERYBODY:
        verb = "listen" if name == "lab" else "coordinator"
        cap = "" if name == "lab" else "epsilon = 1.5\ndelta = 1e-6"
        rest = _LAB.format(rounds=ROUNDS) if name == "lab" else _PARTY
        consortium.write_config(
            name,
            [
                f'name = "{name}"',
                f'{verb} = "127.0.0.1:{consortium.port}"',
                "patience = 30",
                _LEDGER.format(cap=cap),
                rest,
            ],
        )
        values = ["no" if v < 0 else "yes" for v in rng.normal(size=200)] if name == "lab" else rng.uniform(-1, 1, 200)
        table = consortium.root / name / "table.csv"
        table.write_text(("y" if name == "lab" else "x") + "\n" + "".join(f"{value}\n" for value in values))
    return consortium


def _completes(consortium):
    assert consortium.wait("lab") == 0, consortium.log("lab")
    for name in PARTIES:
        assert consortium.wait(name) == 0, consortium.log(name)
    model = json.loads((consortium.root / "lab" / "model.json").read_text())
    for name in EVERYBODY:
        entries = Ledger(consortium.root / name / "ledger.db", dataset="people").entries()
        kinds = [entry["kind"] for entry in entries]
        assert kinds.count("reserve") == kinds.count("settle") == 1
        made = [(e["count"], e["forfeited"]) for e in entries if e["kind"] == "release"]
        assert sum(count for count, _ in made) == ROUNDS * len(PARTIES)
        assert not any(forfeited for _, forfeited in made)
    for name in PARTIES:
        own = json.loads((consortium.root / name / "state" / "models" / "trial.json").read_text())
        assert own["weights"] == model["weights"][name]


@pytest.mark.parametrize("killed", [(("org-b",), ("lab",)), (EVERYBODY, EVERYBODY)], ids=["two", "everybody"])
def test_a_run_completes_and_is_charged_once_whichever_process_is_killed(charged, killed):
    charged.start(*EVERYBODY)
    for step, names in zip((6, 20), killed, strict=True):
        charged.until_step(step)
        charged.kill(*names)
        charged.start(*names)
    _completes(charged)
    resumed = [line["step"] for line in charged.audit("lab") if line["event"] == "resumed"]
    assert len(resumed) == sum("lab" in names for names in killed)
    assert all(6 < step < 3 + ROUNDS for step in resumed)


def test_a_party_restored_from_a_copy_is_refused_and_nothing_is_released_again(charged):
    state, copy = charged.root / "org-b" / "state", charged.root / "copy"
    charged.start(*EVERYBODY)
    charged.until_step(6)
    charged.kill("org-b")
    shutil.copytree(state, copy)
    charged.start("org-b")
    charged.until_step(20)
    charged.kill("org-b")
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    charged.start("org-b")
    assert charged.wait("lab") == 1
    assert "the record of run 'trial' is older than the run" in charged.log("lab")
    assert charged.wait("org-b") == 1
    assert "restored from a copy" in charged.log("org-b")

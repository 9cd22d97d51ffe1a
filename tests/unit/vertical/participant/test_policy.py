"""Configurations, what a party agrees to, and training and prediction in one process."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dperm.errors import BudgetRefused, InvalidInput, PeerRefused
from dperm.privacy.ledger import Ledger
from dperm.solvers.vertical import TASKS
from dperm.vertical.methods.prediction import read_model
from dperm.vertical.methods.registry import coordinator_handler, spec_from_config
from dperm.vertical.participant.config import read_config
from dperm.vertical.participant.policy import PartyPolicy
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.session.simulate import simulate_in_folders, temporary_identities
from dperm.vertical.transport.base import InProcess

PARTY = """
name = "{name}"
coordinator = "localhost:1"
[data]
file = "table.csv"
[predict]
file = "table.csv"
[ledger]
file = "ledger.db"
dataset = "people"
epsilon = {cap}
delta = 1e-5
[allow]
methods = ["admm-sharing", "predict", "distributed-frank-wolfe"]
epsilon = 5.0
[columns.x]
kind = "number"
low = -2
high = 2
"""
LAB = """
name = "lab"
listen = "localhost:0"
[data]
file = "table.csv"
[target]
column = "y"
kind = "classes"
classes = ["no", "yes"]
[ledger]
file = "ledger.db"
dataset = "people"
[run]
name = "fit-1"
method = "admm-sharing"
parties = ["org-a", "org-b"]
secure_sum = true
out = "model.json"
[run.options]
epsilon = 4.0
delta = 1e-6
n_rounds = 15
rho = 0.1
strength = 1e-3
"""


@pytest.fixture
def folders(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.uniform(-2, 2, 600) for name in ("org-a", "org-b")}
    labels = np.where(2.0 * columns["org-a"] - columns["org-b"] + rng.logistic(size=600) * 0.3 > 0.0, "yes", "no")
    for name, column in columns.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "table.csv").write_text("x\n" + "".join(f"{value:.4f}\n" for value in column))
        (folder / "config.toml").write_text(PARTY.format(name=name, cap=5.0))
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "table.csv").write_text("y\n" + "".join(f"{label}\n" for label in labels))
    (tmp_path / "lab" / "config.toml").write_text(LAB)
    return tmp_path, labels


def _run(root, run=None, model=None, ids=None, wrap=None):
    config = read_config(root / "lab" / "config.toml")
    if run is not None:
        object.__setattr__(config, "run", run(config.run))
    spec, names = spec_from_config(config), ("org-a", "org-b")
    ids = ids or temporary_identities([*names, "lab"])
    configs = {name: read_config(root / name / "config.toml") for name in names}
    handlers = {name: PartyPolicy(configs[name], ids[name]) for name in names}
    roots = {name: configs[name].state / "runs" for name in names}
    handler = coordinator_handler(config, ids["lab"], model)
    if wrap is None:
        return simulate_in_folders(spec, handler, handlers, ids, config.state / "runs", roots)
    sessions = {name: PartySession(ids[name], roots[name], handlers[name]) for name in names}
    try:
        transport = InProcess({name: wrap(name, session.handle) for name, session in sessions.items()})
        return CoordinatorSession(spec, config.state / "runs", handler).run(transport)
    finally:
        for session in sessions.values():
            session.close()


def test_no_length_on_the_wire_depends_on_data(folders, tmp_path):
    """Model view: every request and reply of a real method has the same length on two unrelated data sets."""
    root, _ = folders
    ids = temporary_identities(["org-a", "org-b", "lab"])

    def lengths(where):
        seen = {}

        def wrap(name, handle):
            def record(data):
                answer = handle(data)
                seen.setdefault(name, []).append((len(data), len(answer)))
                return answer

            return record

        _run(where, ids=ids, wrap=wrap)
        return seen

    other = tmp_path / "other"
    for name in ("org-a", "org-b", "lab"):
        (other / name).mkdir(parents=True)
        (other / name / "config.toml").write_text((root / name / "config.toml").read_text())
        head, value = ("y", "no") if name == "lab" else ("x", "0")
        (other / name / "table.csv").write_text(f"{head}\n" + f"{value}\n" * 600)
    assert lengths(root) == lengths(other)


def test_train_and_predict(folders):
    from dataclasses import replace

    root, labels = folders
    result = _run(root)
    assert result["report"].guarantee.epsilon <= 4.0
    for name in ("org-a", "org-b", "lab"):
        ledger = Ledger(root / name / "ledger.db", dataset="people")
        kinds = [entry["kind"] for entry in ledger.entries()]
        assert kinds.count("reserve") == kinds.count("settle") == 1
        released = [e for e in ledger.entries() if e["kind"] == "release"]
        assert sum(e["count"] for e in released) == 30  # the whole run, not only this party's part
        assert ledger.spent(1e-6).epsilon <= (4.0 + 1e-9 if ledger.cap is None else 5.0)
    model = read_model(root / "lab" / "model.json")
    own = json.loads((root / "org-a" / "state" / "models" / "fit-1.json").read_text())
    assert own["columns"] == ["x"]
    assert own["weights"] == model["weights"]["org-a"]

    def predict(run):
        return replace(run, name="p-1", method="predict", options={"model": "fit-1"}, out=root / "p.csv")

    made = _run(root, predict, model)
    assert np.mean(np.array(made["prediction"]) == labels) > 0.8
    assert (root / "p.csv").read_text().startswith("common_row,prediction,probability\n0,")
    weights = np.concatenate([model["weights"][name] for name in ("org-a", "org-b")])
    assert np.isfinite(weights).all()


def test_every_task_can_be_built_from_a_configuration(folders):
    root, _ = folders
    from dataclasses import replace

    from dperm.vertical.methods.training import build_task

    facts = {"n": 600, "n_features": 1, "d": 1, "value_bound": 1.0, "row_bound": 1.0}
    config = read_config(root / "lab" / "config.toml")
    for name, cls in TASKS.items():
        options = {"epsilon": 1.0, "view": cls.views[0], "delta": 1e-6, "loss": "squared", "penalty": "none"}
        options["loss_options"] = {"residual_clip": 2.0}
        run = replace(config.run, method=name, options=options)
        spec = spec_from_config(replace(config, run=run)).with_facts({"org-a": facts, "org-b": facts})
        assert build_task(spec).name == name
    spec = spec_from_config(config).with_facts({"org-a": facts, "org-b": facts})
    with pytest.raises(InvalidInput, match="no option 'speed'"):
        build_task(replace(spec, options={**spec.options, "speed": 3}))
    with pytest.raises(InvalidInput, match="no method 'magic'"):
        build_task(replace(spec, method="magic"))


def test_a_party_agrees_to_no_more_than_its_configuration_says(folders):
    root, _ = folders
    from dataclasses import replace

    config = read_config(root / "org-a" / "config.toml")
    policy = PartyPolicy(config, temporary_identities(["org-a"])["org-a"])
    spec = spec_from_config(read_config(root / "lab" / "config.toml"))
    assert policy.join(spec)["n"] == 600
    with pytest.raises(PeerRefused, match="does not allow method"):
        policy.join(replace(spec, method="connection-test"))
    with pytest.raises(BudgetRefused, match="at most epsilon=5"):
        policy.join(replace(spec, options={**spec.options, "epsilon": 5.5}))
    with pytest.raises(PeerRefused, match="reproducible"):
        policy.join(replace(spec, options={**spec.options, "insecure_seed": 1}))


def test_the_cap_refuses_a_second_run(folders):
    from dataclasses import replace

    root, _ = folders
    _run(root)
    with pytest.raises(BudgetRefused, match=r"org-[ab] refused step 1"):
        _run(root, lambda run: replace(run, name="fit-2"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name = ", "nme = "), "unknown setting `nme`"),
        (('name = "lab"', ""), "lacks the setting `name`"),
        (('name = "lab"', "name = 3"), "`name` in config.toml must be a text"),
        (('name = "lab"', 'name = "a/b"'), "letters"),
        (("[data]", "[data"), "not valid TOML"),
        (("secure_sum = true", 'secure_sum = "yes"'), "true or false"),
        (('parties = ["org-a", "org-b"]', "parties = 3"), "list of texts"),
        (("[run.options]", "pause = 3\n[run.options]"), "unknown setting `pause`"),
    ],
)
def test_a_wrong_configuration_is_explained(tmp_path, change, sentence):
    path = tmp_path / "config.toml"
    path.write_text(LAB.replace(*change, 1))
    with pytest.raises(InvalidInput, match=sentence):
        read_config(path)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_config(tmp_path / "none.toml")

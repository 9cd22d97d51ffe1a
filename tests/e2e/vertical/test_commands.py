"""The commands of `dperm vertical` between real processes: several runs, parties that stay, the page, early errors."""

from __future__ import annotations

import json
import urllib.request

import pytest

from dperm.vertical.methods.connection_test import ConnectionTestHandler
from dperm.vertical.session.simulate import simulate
from dperm.vertical.session.spec import RunSpec

PARTIES = ("org-a", "org-b", "org-c")


@pytest.fixture(scope="module")
def undisturbed():
    spec = RunSpec("trial", "connection-test", PARTIES, {"rows": 50, "rounds": 12})
    return simulate(spec, ConnectionTestHandler(), {name: ConnectionTestHandler(name) for name in PARTIES})["digest"]


def _second_run(consortium, **changes):
    """Write another run of the same coordinator and return its configuration."""
    path = consortium.root / "lab" / "second.toml"
    text = (consortium.root / "lab" / "config.toml").read_text()
    for old, new in {'name = "trial"': 'name = "second"', **changes}.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def test_a_party_leaves_after_its_last_run(consortium, undisturbed):
    consortium.configure(rounds=12, pause=0.05)
    # the second run ends long before the first, and not everybody is in it
    alone = {"rounds = 12": "rounds = 2", json.dumps(list(PARTIES)): '["org-a", "org-b"]'}
    second = _second_run(consortium, **alone)
    consortium.start("lab", command=("coordinator", str(second), "--quiet"))
    consortium.start(*PARTIES)
    assert consortium.wait("lab") == 0, consortium.log("lab")
    assert f"trial: finished, digest {undisturbed}" in consortium.log("lab")
    assert "second: finished" in consortium.log("lab")
    for name in PARTIES:
        assert consortium.wait(name) == 0, consortium.log(name)
        assert "run trial is finished" in consortium.log(name)
        assert ("run second is finished" in consortium.log(name)) is (name != "org-c")


def test_two_configurations_of_one_run_are_refused(consortium):
    consortium.configure()
    again = _second_run(consortium, **{'name = "trial"': 'name = "trial"'})
    consortium.start("lab", command=("coordinator", str(again), "--quiet"))
    assert consortium.wait("lab") == 2
    assert "name the same run" in consortium.log("lab")


def test_a_party_with_stay_serves_the_next_run(consortium, undisturbed):
    consortium.configure()
    consortium.start("lab")
    consortium.start(*PARTIES, command=("party", "--stay"))
    assert consortium.wait("lab") == 0, consortium.log("lab")
    second = _second_run(consortium)
    second.rename(consortium.root / "lab" / "config.toml")
    consortium.start("lab")
    assert consortium.wait("lab") == 0, consortium.log("lab")
    assert f"second: finished, digest {undisturbed}" in consortium.log("lab")
    for name in PARTIES:
        consortium.until(lambda name=name: "run second is finished" in consortium.log(name))
        assert consortium.processes[name].is_alive()


def test_the_page_shows_progress_while_a_run_waits(consortium):
    consortium.configure(rounds=2)
    consortium.start("lab", command=("coordinator", "--quiet", "--page", "0"))
    consortium.until(lambda: "progress: http" in consortium.log("lab"))
    url = next(line.split()[-1] for line in consortium.log("lab").splitlines() if line.startswith("progress: "))
    status = json.loads(urllib.request.urlopen(url + "status.json").read())
    assert [(one["run"], set(one["parties"])) for one in status] == [("trial", set(PARTIES))]
    consortium.start(*PARTIES)
    assert consortium.wait("lab") == 0, consortium.log("lab")


def test_simulate_is_the_same_run_in_one_process(consortium, undisturbed):
    consortium.configure()
    others = [str(consortium.root / name / "config.toml") for name in PARTIES]
    consortium.start("lab", command=("simulate", *others))
    assert consortium.wait("lab") == 0, consortium.log("lab")
    assert consortium.digest() == undisturbed
    consortium.start("lab", command=("simulate", *others[:2]))
    assert consortium.wait("lab") == 2
    assert "the configuration of org-c is missing" in consortium.log("lab")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('method = "connection-test"', 'method = "conection-test"', "no method 'conection-test'"),
        ("rounds = 12", "round = 12", "a connection test has no option 'round'"),
        ("revoked.pem", "revokd.pem", "no revocation list"),
    ],
)
def test_wrong_settings_are_refused_before_the_coordinator_listens(consortium, old, new, sentence):
    consortium.configure()
    path = consortium.root / "lab" / "config.toml"
    path.write_text(path.read_text().replace(old, new))
    consortium.start("lab")
    assert consortium.wait("lab") == 2
    assert sentence in consortium.log("lab")
    assert "listening" not in consortium.log("lab")


def test_a_party_with_a_wrong_revocation_path_does_not_start(consortium):
    consortium.configure(org_a={"revoked": "../ca/revokd.pem"})
    consortium.start("org-a")
    assert consortium.wait("org-a") == 2
    assert "no revocation list" in consortium.log("org-a")

"""What a party agrees to, and what it refuses of a coordinator that departs from the protocol."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm.errors import BudgetRefused, PeerRefused
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Gaussian
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.keys import fingerprint
from dperm.vertical.transport.envelope import Envelope

RESIDUAL = Message("residual", {"residual": np.ones(40)}, {"round": 0})


def _with(spec, **options):
    return replace(spec, options={**spec.options, **options})


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        ({"delta": 0.5}, BudgetRefused, "at most delta=1e-06 per run, not 0.5"),
        ({"delta": "small"}, BudgetRefused, "at most delta"),
        ({"epsilon": True}, BudgetRefused, "at most epsilon=1 per run, not True"),
        ({"neighbours": "zero-out"}, PeerRefused, "does not allow neighbours 'zero-out'"),
        ({"view": "transcript"}, PeerRefused, "does not allow the view 'transcript'"),
    ],
)
def test_every_option_that_weakens_the_guarantee_has_a_limit(organisations, change, kind, sentence):
    org = organisations(allow='views = ["model"]')
    policy, spec = org.policy("org-a"), org.spec()
    assert policy.join(spec)["n"] == 40
    with pytest.raises(kind, match=sentence):
        policy.join(_with(spec, **change))


def test_a_default_delta_is_compared_with_the_limit_as_well(organisations):
    org = organisations()
    options = {name: value for name, value in org.spec().options.items() if name != "delta"}
    spec, cheat = replace(org.spec(), options=options, secure_sum=False), org.cheat()
    with pytest.raises(BudgetRefused, match=r"step 1 .*limits"):  # 1e-5 for forty people
        cheat.begin(spec)
    assert "delta=1e-05" in str(org.sessions["org-a"].refused["fit-1"])
    assert "reserve" not in org.kinds("org-a")


def test_a_party_refuses_participants_that_it_does_not_list(organisations):
    org = organisations(allow='parties = ["org-b", "lab"]')
    policy, spec = org.policy("org-a"), org.spec()
    assert policy.join(spec)["n"] == 40
    ghost = replace(spec, parties=("org-a", "ghost"))
    with pytest.raises(PeerRefused, match="not take part together with 'ghost'"):
        policy.join(ghost)
    align = replace(spec, method="align", options={"label_holder": "ghost"})
    with pytest.raises(PeerRefused, match="not take part together with 'ghost'"):
        policy.join(align)


def test_with_pins_an_unpinned_participant_is_refused(organisations):
    """A coordinator that holds the authority's key could otherwise add a party of its own and unmask the others."""
    org = organisations(allow="secure_sum = true")
    pins = (("org-b", fingerprint(org.identities["org-b"].certificate)),)
    policy, spec = org.policy("org-a", pins), org.spec()
    assert policy.join(spec)["n"] == 40
    with pytest.raises(PeerRefused, match="no pin for 'ghost'"):
        policy.join(replace(spec, parties=("org-a", "ghost")))
    for holder, sentence in (
        ("lab", "no pin for 'lab'"),
        ("org-b", "must not be one of its parties"),
        (3, "must not be"),
    ):
        with pytest.raises(PeerRefused, match=sentence):
            policy.join(replace(spec, method="align", options={"label_holder": holder}))


def test_a_party_trains_only_with_a_cap(organisations):
    org = organisations(caps={"org-a": "", "org-b": "epsilon = 2.0"})
    with pytest.raises(PeerRefused, match=r"org-a refused step 0 .*trains only with a cap"):
        org.coordinate()
    with pytest.raises(PeerRefused, match="only with a cap"):
        org.policy("org-a").open()
    assert all("reserve" not in org.kinds(name) for name in ("org-a", "org-b", "lab"))


def test_what_is_checked_is_what_will_be_charged(organisations):
    """A seeded run has no guarantee, so a ledger with a cap refuses it and no participant is charged."""
    org = organisations(allow="insecure = true", caps={"org-a": "", "org-b": "epsilon = 2.0"})
    path = org.root / "lab" / "config.toml"
    path.write_text(path.read_text() + 'insecure_seed = "1"\n')
    with pytest.raises(BudgetRefused, match="org-b refused step 1"):
        org.coordinate()
    assert all("reserve" not in org.kinds(name) for name in ("org-a", "org-b", "lab"))


def test_the_label_holder_is_checked_before_the_parties_reserve_and_charged_after_them(organisations):
    small = organisations(caps={"lab": "epsilon = 0.1", "org-a": "epsilon = 2.0", "org-b": "epsilon = 2.0"})
    with pytest.raises(BudgetRefused):
        small.coordinate()
    assert all("reserve" not in small.kinds(name) for name in ("org-a", "org-b", "lab"))

    late = organisations(caps={"org-a": "epsilon = 2.0", "org-b": "epsilon = 2.0"})

    def wrap(handle):
        def handled(data):
            if Envelope.decode(data).step == 2:  # another run of org-b is faster
                ledger = late.ledger("org-b")
                if ledger.spent().n_fits == 0:
                    ledger.reserve(Gaussian(2.8), "replace-one")
            return handle(data)

        return handled

    transport = late.transport()
    transport.handlers["org-b"] = wrap(transport.handlers["org-b"])
    with pytest.raises(BudgetRefused, match="org-b refused step 2"):
        late.coordinate(transport)
    assert "reserve" not in late.kinds("lab")


def test_a_renamed_copy_is_checked_under_its_first_name(organisations):
    org = organisations()
    ledger = org.ledger("org-a")
    table = org.policy("org-a").training_table
    first = ledger.for_dataset("first name")
    first.set_cap(Budget(0.5, 1e-6))
    first.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(table.X))
    with pytest.raises(BudgetRefused, match="org-a refused step 1"):
        org.coordinate()
    assert org.kinds("org-a").count("reserve") == 1


def test_a_coordinator_cannot_finish_early_nor_with_weights_of_its_own(organisations):
    org = organisations(secure_sum=False)
    cheat = org.cheat()
    cheat.begin(org.spec())
    finish = Message("finish", {"weights": np.zeros(2)})
    for _ in range(2):
        with pytest.raises(PeerRefused, match="before the last round"):
            cheat.ask(finish)
        cheat.ask(RESIDUAL)
    with pytest.raises(PeerRefused, match="after the last round"):
        cheat.ask(RESIDUAL)
    models = org.root / "org-a" / "state" / "models"
    for weights in (np.zeros(2), np.zeros(3), np.full(2, np.nan)):
        with pytest.raises(PeerRefused, match="do not follow from this party's answers"):
            cheat.ask(Message("finish", {"weights": weights}))
    assert not models.exists()
    assert "settle" not in org.kinds("org-a")
    assert cheat.ask(Message("finish")).kind == "finished"  # a coordinator that says nothing is believed nothing
    assert (models / "fit-1.json").exists()
    assert "settle" in org.kinds("org-a")


def test_a_party_sends_only_the_column_it_just_chose(organisations):
    org = organisations("distributed-frank-wolfe", secure_sum=False)
    cheat = org.cheat()
    cheat.begin(org.spec())
    choose = Message("choose", {"residual": np.linspace(-1, 1, 40)}, {"round": 0})
    chosen = int(cheat.ask(choose).arrays["place"][0]) % 3  # two columns and the intercept
    other = (chosen + 1) % 3
    wrong = [{"column": other, "moved": True}, {"column": chosen, "moved": False}, {"column": chosen}, {}]
    for facts in wrong:
        with pytest.raises(PeerRefused, match="step 4"):
            cheat.ask(Message("send", {}, facts))
    assert "just chosen" in _sentence(org, cheat, {"column": other, "moved": True})
    assert cheat.ask(Message("send", {}, {"column": chosen, "moved": True})).arrays["column"].shape == (40,)


def _sentence(org, cheat, facts):
    with pytest.raises(PeerRefused):
        cheat.ask(Message("send", {}, facts))
    return str(org.sessions["org-a"].refused["fit-1"])


@pytest.mark.parametrize("method", ["admm-sharing", "blocks-over-parties", "distributed-frank-wolfe"])
def test_a_run_with_too_many_rounds_is_refused_at_once(organisations, method):
    org = organisations(method, secure_sum=False)
    rounds = "n_steps" if "frank" in method else "n_rounds"
    cheat = org.cheat()
    with pytest.raises(PeerRefused):
        cheat.begin(_with(org.spec(), **{rounds: 3 * 10**7}))
    assert f"{rounds} must be at most 1000000" in str(org.sessions["org-a"].refused["fit-1"])

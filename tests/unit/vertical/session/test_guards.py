"""One test for every guard against a participant that departs from the protocol: none may be removed unnoticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm.errors import PeerRefused, ProtocolError
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.transport.envelope import REPLY, Envelope
from dperm.vertical.views.secure_sum import MaskKey, SignedMaskKey, mask_key_arrays

RESIDUAL = Message("residual", {"residual": np.ones(40)}, {"round": 0})


def _joined(org, cheat, spec):
    """Join, and return the description with all facts and the mask key that the party sent."""
    said = cheat.ask(Message("join", {"spec": spec.to_array()}))
    key = SignedMaskKey("org-a", *(said.arrays[what].tobytes() for what in ("mask key", "signature", "certificate")))
    return spec.with_facts(dict.fromkeys(spec.parties, said.facts)), key


def _check(spec, *keys):
    arrays = {"spec": spec.to_array()}
    for key in keys:
        arrays |= mask_key_arrays(key, f"{key.party} ")
    return Message("check", arrays)


def test_a_coordinator_cannot_replace_mask_keys(organisations):
    org = organisations()
    cheat = org.cheat()
    spec, own = _joined(org, cheat, org.spec())
    honest, middle = MaskKey().signed("fit-1", org.identities["org-b"]), MaskKey()
    swapped = replace(honest, public=middle.signed("fit-1", org.identities["lab"]).public)
    of_another_run = MaskKey().signed("fit-0", org.identities["org-b"])
    its_own = replace(middle.signed("fit-1", org.identities["lab"]), party="org-b")
    for key in (swapped, of_another_run, its_own):
        with pytest.raises(PeerRefused, match="org-a refused step 1"):
            cheat.ask(_check(spec, own, key))
    with pytest.raises(PeerRefused, match="mask key of org-b is missing"):
        cheat.ask(_check(spec, own))
    assert "reserve" not in org.kinds("org-a")
    assert cheat.ask(_check(spec, own, honest)).kind == "checked"


def test_a_party_that_insists_on_a_secure_sum_gets_one(organisations):
    org = organisations(secure_sum=False, allow="secure_sum = true")
    with pytest.raises(PeerRefused, match=r"org-a refused step 0.*only in runs with a secure sum"):
        org.cheat().begin(org.spec())
    policy = org.policy("org-a")
    assert policy.join(replace(org.spec(), secure_sum=True))["n"] == 40


@pytest.mark.parametrize("change", [{"n": 4000}, {"row_bound": 0.1}, {"value_bound": 0.5}])
def test_the_facts_of_the_run_are_those_that_the_party_declared(organisations, change):
    """More people or smaller bounds would mean less noise for the same epsilon."""
    org = organisations(secure_sum=False)
    cheat = org.cheat()
    spec, _ = _joined(org, cheat, org.spec())
    wrong = {name: {**facts, **change} for name, facts in spec.facts.items()}
    with pytest.raises(PeerRefused, match="other facts of this party than it declared"):
        cheat.ask(_check(spec.with_facts(wrong)))
    assert cheat.ask(_check(spec)).kind == "checked"


@pytest.mark.parametrize("change", [{"epsilon": 0.5}, {"epsilon": 100.0}, {"n_rounds": 3}, {"limit": 50.0}])
def test_the_run_that_is_checked_is_the_run_that_was_joined(organisations, change):
    org = organisations(secure_sum=False)
    cheat = org.cheat()
    spec, _ = _joined(org, cheat, org.spec())
    with pytest.raises(PeerRefused, match="not the run this party joined"):
        cheat.ask(_check(replace(spec, options={**spec.options, **change})))
    assert cheat.ask(_check(spec)).kind == "checked"


def test_an_older_attempt_is_not_answered_after_a_newer_one(organisations):
    """A restarted coordinator asks with a higher attempt; earlier requests still in transit are stale."""
    org = organisations(secure_sum=False)
    cheat = org.cheat()
    cheat.begin(org.spec())
    before = (cheat.state, cheat.step)
    first = cheat.ask(RESIDUAL, attempt=2)
    cheat.state, cheat.step = before
    with pytest.raises(PeerRefused, match="older request for step 3 of run 'fit-1' was replayed"):
        cheat.ask(RESIDUAL, attempt=1)
    for attempt in (2, 3):
        cheat.state, cheat.step = before
        again = cheat.ask(RESIDUAL, attempt=attempt)
        assert np.array_equal(again.arrays["weights"], first.arrays["weights"])


def test_a_reply_in_another_state_stops_the_run(simulation):
    s = simulation()

    def wrap(name, handler):
        def handle(data):
            said = Envelope.decode(handler(data))
            if name == "org-b" and said.kind == REPLY and said.step == 4:
                said = replace(said, state=bytes(32))
            return said.encode()

        return handle

    with pytest.raises(ProtocolError, match="org-b answered from a state that does not match"):
        s.coordinate(s.transport(wrap))

"""Masks: exact totals, fresh masks, and keys that only their owners can have signed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm.errors import ProtocolError
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.keys import Trust, fingerprint
from dperm.vertical.session.simulate import temporary_identities
from dperm.vertical.views.secure_sum import Masker, MaskKey, sum_replies

NAMES = ["a", "b", "c", "d"]
NONCES = {name: bytes([i]) * 16 for i, name in enumerate(NAMES)}


def _maskers(run="r"):
    keys = {name: MaskKey() for name in NAMES}
    ids = temporary_identities(NAMES)
    public = {name: keys[name].signed(run, ids[name]).public for name in NAMES}
    return {name: Masker(run, name, keys[name], public) for name in NAMES}


def _reply(rng, n=1000):
    values = rng.integers(-(2**62), 2**62, n)
    return Message("s", {"u": values, "v": rng.integers(-5, 5, (3, 2)), "w": np.ones(2)}, {}, frozenset({"u", "v"}))


def test_totals_are_exact_and_summands_hidden():
    rng = np.random.default_rng(0)
    maskers, replies = _maskers(), {name: _reply(rng) for name in NAMES}
    masked = {name: maskers[name].mask(replies[name], 3, 0, NONCES) for name in NAMES}
    plain, hidden = sum_replies(replies.values()), sum_replies(masked.values())
    for name in ("u", "v"):
        assert plain[name].dtype == np.int64
        np.testing.assert_array_equal(plain[name], hidden[name])
        exact = sum(reply.arrays[name].astype(object) for reply in replies.values()) % 2**64
        np.testing.assert_array_equal(hidden[name].view(np.uint64).astype(object), exact)
    for name in NAMES:
        assert np.mean(masked[name].arrays["u"] == replies[name].arrays["u"]) == 0.0
        assert masked[name].arrays["v"].shape == (3, 2)
        np.testing.assert_array_equal(masked[name].arrays["w"], np.ones(2))
        # uniform words: every bit is set about half the time, whatever the value
        bits = np.unpackbits(masked[name].arrays["u"].view(np.uint8))
        assert abs(bits.mean() - 0.5) < 0.01


def test_masks_differ_by_step_attempt_and_nonces():
    rng = np.random.default_rng(1)
    maskers, reply = _maskers(), _reply(rng)
    mine, theirs = {**NONCES, "a": bytes(16)[:-1] + b"x"}, {**NONCES, "b": bytes(16)[:-1] + b"x"}
    cases = ((1, 0, NONCES), (1, 1, NONCES), (2, 0, NONCES), (1, 0, mine), (1, 0, theirs))
    sent = [maskers["a"].mask(reply, *case).arrays["u"] for case in cases]
    assert all((sent[i] != sent[j]).all() for i in range(len(cases)) for j in range(i))
    np.testing.assert_array_equal(maskers["a"].mask(reply, 1, 0, NONCES).arrays["u"], sent[0])


def test_a_mix_of_attempts_does_not_cancel():
    rng = np.random.default_rng(2)
    maskers, replies = _maskers(), {name: _reply(rng) for name in NAMES}
    mixed = [maskers[name].mask(replies[name], 1, int(name == "a"), NONCES) for name in NAMES]
    assert (sum_replies(mixed)["u"] != sum_replies(replies.values())["u"]).any()


def test_replies_that_do_not_fit_are_refused():
    one, other = Message("s", {"u": np.zeros(3, np.int64)}, {}, frozenset({"u"})), Message("s")
    with pytest.raises(ProtocolError, match="same arrays"):
        sum_replies([one, other])
    with pytest.raises(ProtocolError, match="shape"):
        sum_replies([one, Message("s", {"u": np.zeros(4, np.int64)}, {}, frozenset({"u"}))])


def test_only_the_owner_can_sign_a_mask_key():
    ids = temporary_identities(["a", "b"])
    mine = MaskKey().signed("r", ids["a"])
    mine.check("r", ids["b"].trust)
    with pytest.raises(ProtocolError, match="certified key"):
        mine.check("another run", ids["b"].trust)
    with pytest.raises(ProtocolError, match="certified key"):
        replace(mine, public=MaskKey().signed("r", ids["b"]).public).check("r", ids["b"].trust)
    with pytest.raises(ProtocolError, match="another participant"):
        replace(mine, certificate=ids["b"].certificate_der).check("r", ids["b"].trust)
    # a coordinator in the middle, with an authority of its own
    forged = temporary_identities(["a"])["a"]
    with pytest.raises(ProtocolError, match="authority"):
        MaskKey().signed("r", forged).check("r", ids["b"].trust)


def test_a_pin_holds_against_the_authority_itself():
    ids = temporary_identities(["a", "b"])
    pinned = Trust(ids["a"].trust.authority, (("a", fingerprint(ids["a"].certificate)),))
    MaskKey().signed("r", ids["a"]).check("r", pinned)
    wrong = Trust(ids["a"].trust.authority, (("a", fingerprint(ids["b"].certificate)),))
    with pytest.raises(ProtocolError, match="pinned"):
        MaskKey().signed("r", ids["a"]).check("r", wrong)


def test_a_degenerate_key_is_refused():
    with pytest.raises(ProtocolError, match="mask key"):
        MaskKey().agree(bytes(32))

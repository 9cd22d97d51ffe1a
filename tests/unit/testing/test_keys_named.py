"""Noise by name: it repeats, stays marked as secure, differs between processes, and ends with its block."""

from __future__ import annotations

import os

import pytest

from dperm.privacy.ledger import fingerprints
from dperm.privacy.randomness import RandomSource
from dperm.testing.repeatable_noise import keys_named


def words():
    """The first words of a new source, which stand for its key."""
    return RandomSource().words(4).tobytes()


def test_noise_repeats_and_stays_secure():
    drawn = []
    for name in ("a", "a", "b"):
        with keys_named(name):
            source = RandomSource()
            assert source.secure
            drawn.append((source.words(4).tolist(), RandomSource().words(4).tolist()))
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    assert RandomSource().words(4).tolist() != drawn[0][0]


def test_fingerprints_have_keys_of_their_own():
    """Whether a fingerprint key had to be made changes no noise."""
    with keys_named("a"):
        noise = [words() for _ in range(3)]
    with keys_named("a"):
        made = [(words(), fingerprints.new_key()) for _ in range(3)]
    assert [key for key, _ in made] == noise
    assert len({*noise, *(key for _, key in made)}) == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_draws_other_noise():
    receive, send = os.pipe()
    with keys_named("a"):
        child = os.fork()
        if child == 0:
            os.write(send, words())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(receive, 100) != words()  # the first key of each
    os.close(receive)
    os.close(send)


def test_the_usual_keys_are_back_after_an_error():
    before = fingerprints.new_key
    with pytest.raises(ValueError, match="stop"), keys_named("a"):
        raise ValueError("stop")
    assert fingerprints.new_key is before
    with keys_named("a"):
        named = words()
    assert words() != named  # the operating system's again, or those of this test

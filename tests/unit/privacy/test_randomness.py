"""The keystream: right cipher, never shared, never repeated."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from dperm.errors import InsecureSeedWarning, InvalidInput
from dperm.privacy import randomness
from dperm.privacy.randomness import RandomSource

pytestmark = pytest.mark.fresh_noise


def counter_mode(seed: str, n_words: int) -> np.ndarray:
    """AES-256 of the counters 0, 1, 2, ... block by block: written without the library's counter mode."""
    key = hashlib.sha256(b"dperm insecure seed:" + seed.encode()).digest()
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    counters = b"".join(i.to_bytes(16, "big") for i in range((n_words + 1) // 2))
    return np.frombuffer(block.update(counters), "<u8")[:n_words]


@pytest.mark.parametrize("seed", [0, 7, "text", np.int64(7)])
def test_the_stream_is_aes_in_counter_mode(seed: int | str) -> None:
    assert np.array_equal(RandomSource(seed).words(1001), counter_mode(str(seed), 1001))


def test_requests_of_any_size_continue_one_stream() -> None:
    source = RandomSource(3)
    sizes = [1, 0, 5, 131_071, 131_072, 131_073, 7]
    drawn = np.concatenate([source.words(n) for n in sizes])
    assert np.array_equal(drawn, counter_mode("3", sum(sizes)))
    assert source.word() == int(counter_mode("3", sum(sizes) + 1)[-1])


def test_secure_sources_differ_and_are_uniform() -> None:
    one, two = RandomSource().words(100_000), RandomSource().words(100_000)
    assert not np.intersect1d(one, two).size
    for shift in (0, 28, 56):
        counts = np.bincount(((one >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-9


FORK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
from dperm.privacy.randomness import RandomSource
source = RandomSource({seed})
source.words(10)
held = threading.Event()
if {lock}:
    def hold():
        with source._lock:
            held.set()
            threading.Event().wait(1)
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, source.words(4).tobytes())
    os._exit(0)
os.wait()
child = os.read(reader, 64)
assert len(child) == 32
sys.stdout.write(child.hex() + " " + source.words(4).tobytes().hex())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("lock", [False, True])
def test_a_forked_child_has_its_own_stream(lock: bool) -> None:
    script = FORK.format(seed="", lock=lock)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    child, parent = out.split()
    assert child != parent
    if not lock:  # a seeded source shows what a shared stream looks like
        script = FORK.format(seed="5", lock=lock)
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
        child, parent = run.stdout.split()
        assert child == parent


def test_a_changed_process_id_renews_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    source = RandomSource()
    before = source._stream
    monkeypatch.setattr(os, "getpid", lambda: -1)
    source.words(1)
    assert source._stream is not before


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_source_cannot_be_copied(copier: Callable[[object], object], seed: int | None) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copier(RandomSource(seed))


def test_threads_get_disjoint_words() -> None:
    source = RandomSource(11)
    parts: list[list[np.ndarray]] = [[] for _ in range(6)]
    ready = threading.Barrier(6)

    def draw(k: int) -> None:
        ready.wait()
        for i in range(60):
            parts[k].append(source.words(1 + (7 * i + k) % 50))

    threads = [threading.Thread(target=draw, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = np.concatenate([words for part in parts for words in part])
    assert np.array_equal(np.sort(drawn), np.sort(counter_mode("11", drawn.size)))


def test_the_key_is_renewed_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert randomness._REKEY_AFTER == 2**30
    monkeypatch.setattr(randomness, "_REKEY_AFTER", 800)
    keys: list[bytes] = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: keys.append(real(n)) or keys[-1])
    source = RandomSource()
    words = [source.words(100) for _ in range(5)]  # 800 bytes each
    assert len(keys) == 5
    assert len(set(keys)) == 5
    assert all(len(key) == 32 for key in keys)
    assert np.unique(np.concatenate(words)).size == 500
    seeded = RandomSource(2)
    drawn = np.concatenate([seeded.words(100) for _ in range(5)])
    assert np.array_equal(drawn, counter_mode("2", 500))


def test_a_seed_warns_and_marks() -> None:
    with pytest.warns(InsecureSeedWarning, match="no privacy guarantee"):
        source = RandomSource(4)
    assert not source.secure
    assert RandomSource().secure
    assert "4" not in repr(source)
    for bad in (True, 1.5, b"x"):
        with pytest.raises(InvalidInput):
            RandomSource(bad)  # type: ignore[arg-type]


def top_heavy(draw: Callable[[int], int]) -> bool:
    """Whether numbers below 3 2^62 fall unevenly into three thirds, as they do when words are merely reduced."""
    counts = np.bincount([draw(3 << 62) >> 62 for _ in range(3000)], minlength=3)
    return bool(stats.chisquare(counts).pvalue < 1e-9)


def test_below_is_unbiased() -> None:
    source = RandomSource(6)
    assert not top_heavy(source.below)
    assert top_heavy(lambda n: source.word() % n)
    for n in (2, 3, 10, 255):
        counts = np.bincount([source.below(n) for _ in range(4000)], minlength=n)
        assert counts.size == n
        assert stats.chisquare(counts).pvalue > 1e-6
    assert source.below(1) == 0
    for n in (2**64, 2**64 - 1, 2**64 + 1, 10**60):
        drawn = [source.below(n) for _ in range(300)]
        assert max(drawn) < n
        assert stats.kstest(np.array([float(d / n) for d in drawn]), "uniform").pvalue > 1e-6
    with pytest.raises(InvalidInput):
        source.below(0)


def test_a_labelled_stream_of_a_seeded_source_repeats_and_is_not_secure() -> None:
    source = RandomSource(7)
    one, again, other = source.stream("round 1"), RandomSource(7).stream("round 1"), source.stream("round 2")
    assert not one.secure
    assert not one.stream("deeper").secure
    drawn = one.words(8).tolist()
    assert drawn == again.words(8).tolist()
    assert drawn != other.words(8).tolist()
    assert drawn != RandomSource(7).words(8).tolist()


def test_a_secure_source_is_its_own_stream() -> None:
    source = RandomSource()
    assert source.stream("round 1") is source


def test_single_words_and_arrays_continue_one_stream() -> None:
    source, drawn = RandomSource(9), []
    for i in range(700):  # more than one block of single words
        drawn.append(source.word())
        drawn.extend(source.words(i % 3).tolist())
    drawn.extend(source.words(2000).tolist())
    drawn.append(source.word())
    assert drawn == counter_mode("9", len(drawn)).tolist()


def test_words_left_from_another_process_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    source = RandomSource()
    source.word()
    left = source._ready[source._used :].copy()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    after = [source.word() for _ in range(600)]
    assert not set(after) & set(left.tolist())


def test_threads_get_disjoint_single_words() -> None:
    source, parts = RandomSource(12), [[] for _ in range(4)]  # type: ignore[var-annotated]

    def draw(k: int) -> None:
        parts[k].extend(source.word() for _ in range(900))

    threads = [threading.Thread(target=draw, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(w for part in parts for w in part) == sorted(counter_mode("12", 3600).tolist())

"""The random source: the only randomness on which a guarantee may rest.

AES-256 in counter mode, keyed by the operating system. The key is renewed after a fork, so that parent and child
never share a keystream, and after every gigabyte, so that a captured state reveals little of the past. A source
cannot be pickled or copied: a second copy would repeat the noise of the first.

``insecure_seed`` keys the same code path for tests. Anyone who knows the seed can remove the noise. Therefore a seeded
source is marked and warns, and its results carry no guarantee.
"""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dperm.errors import InsecureSeedWarning, InvalidInput

__all__ = ["KeyedWords", "RandomSource", "keys_from"]

_BLOCK = 1 << 20  # bytes encrypted at a time, to keep the buffer of zeros small
_REKEY_AFTER = 1 << 30  # bytes
_ZEROS = memoryview(bytes(_BLOCK))
_READY = 512  # words drawn ahead for single draws
_NOTHING = np.zeros(0, np.uint64)


def _fresh_key() -> bytes:
    return os.urandom(32)


@contextmanager
def keys_from(make: Callable[[], bytes]) -> Iterator[None]:
    """Let the sources of this process take their keys of 32 bytes from ``make``, for checks that draw noise twice.

    Sources stay marked as secure: whoever calls this has no guarantee. Nothing but ``dperm.testing`` and the tests do.
    """
    global _fresh_key
    usual, _fresh_key = _fresh_key, make
    try:
        yield
    finally:
        _fresh_key = usual


class KeyedWords:
    """A sequence of random 64-bit words of which any piece can be drawn: AES-256 in counter mode under a secret key.

    Unlike a source it may be copied, because every copy gives the same words; whoever has it must use each word once.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def words(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the words from number ``start`` up to ``stop``, the same wherever they are drawn."""
        first = start // 2  # a block of the cipher holds two words
        stream = Cipher(algorithms.AES(self._key), modes.CTR(first.to_bytes(16, "big"))).encryptor()
        out = np.empty(max(stop - 2 * first, 0), np.uint64)
        view = out.data.cast("B")
        for begin in range(0, len(view), _BLOCK):
            end = min(begin + _BLOCK, len(view))
            view[begin:end] = stream.update(_ZEROS[: end - begin])
        return out[start - 2 * first :]

    def __repr__(self) -> str:
        return "KeyedWords()"  # the key is secret


class RandomSource:
    """A stream of random 64-bit words.

    Parameters
    ----------
    insecure_seed : int or str, optional
        Makes the stream reproducible, for tests only.

    Attributes
    ----------
    secure : bool
        False if the stream can be reproduced.
    """

    def __init__(self, insecure_seed: int | str | None = None) -> None:
        if isinstance(insecure_seed, bool) or not isinstance(insecure_seed, int | np.integer | str | None):
            raise InvalidInput(f"insecure_seed must be a whole number or None, not {type(insecure_seed).__name__}.")
        self.secure = insecure_seed is None
        self._seed = None if insecure_seed is None else str(insecure_seed)
        if not self.secure:
            warnings.warn(
                "insecure_seed makes the noise reproducible: the result has no privacy guarantee.",
                InsecureSeedWarning,
                stacklevel=3,
            )
        self._start()
        _LIVE.add(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        if self._seed is None:
            self._rekey(_fresh_key())
        else:
            self._rekey(hashlib.sha256(b"dperm insecure seed:" + self._seed.encode()).digest())

    def _rekey(self, key: bytes) -> None:
        self._pid = os.getpid()
        self._drawn = 0
        self._ready, self._used = _NOTHING, 0
        # a fresh key with a zero counter: no counter block is ever used twice under one key
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def stream(self, label: str) -> RandomSource:
        """Return the draws for one labelled purpose, such as a round.

        A secure source returns itself: its draws are always independent. With ``insecure_seed`` each label has a stream
        of its own, so that two programs with the same seed draw the same noise for the same label, in any order.
        """
        if self._seed is None:
            return self
        out = object.__new__(type(self))  # the warning was issued when this source was made
        out.secure, out._seed = False, f"{self._seed}/{label}"
        out._start()
        _LIVE.add(out)
        return out

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return ``n`` independent uniform 64-bit words."""
        with self._lock:
            self._renew()
            left = self._ready[self._used : self._used + n]
            self._used += left.size
            return np.concatenate([left, self._fresh(n - left.size)]) if left.size else self._fresh(n)

    def keyed_words(self) -> KeyedWords:
        """Return words under a fresh key, which can be drawn piece by piece on several machines."""
        return KeyedWords(self.words(4).tobytes())

    def word(self) -> int:
        """Return one uniform 64-bit word as an integer."""
        with self._lock:
            self._renew()
            if self._used == self._ready.size:  # single words are cut from a small block, in the order of the stream
                self._ready, self._used = self._fresh(_READY), 0
            self._used += 1
            return int(self._ready[self._used - 1])

    def _renew(self) -> None:
        """Take a new key in another process or after a gigabyte; the rest of the old stream is discarded."""
        if self.secure and (self._drawn >= _REKEY_AFTER or os.getpid() != self._pid):
            self._rekey(_fresh_key())

    def _fresh(self, n: int) -> NDArray[np.uint64]:
        out = np.empty(n, np.uint64)
        if n:
            view = out.data.cast("B")
            self._drawn += 8 * n
            for start in range(0, 8 * n, _BLOCK):
                stop = min(start + _BLOCK, 8 * n)
                view[start:stop] = self._stream.update(_ZEROS[: stop - start])
        return out

    def below(self, n: int) -> int:
        """Return a uniform integer in ``[0, n)`` without bias, for any ``n >= 1``."""
        if n < 1:
            raise InvalidInput(f"below needs a whole number >= 1, not {n!r}.")
        n_words = (n.bit_length() + 63) // 64
        limit = (1 << (64 * n_words)) - (1 << (64 * n_words)) % n
        while True:
            value = self.word() if n_words == 1 else int.from_bytes(self.words(n_words).tobytes(), "little")
            if value < limit:
                return value % n

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a RandomSource cannot be pickled or copied: a copy would repeat the same noise.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse

    def __repr__(self) -> str:
        return "RandomSource()" if self.secure else "RandomSource(insecure_seed=...)"


_LIVE: weakref.WeakSet[RandomSource] = weakref.WeakSet()


def _after_fork() -> None:
    for source in list(_LIVE):
        if source.secure:
            source._start()  # new key, and a lock that no vanished thread holds
        else:
            source._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Secure sum: the coordinator learns the total of the parties' whole numbers, not the summands.

Every pair of parties agrees on a secret by X25519. For each step and attempt, HKDF-SHA256 derives an AES-256 key from
the secret and a nonce of each of the two, and AES in counter mode derives one 64-bit word per number. The party whose
name comes first adds the word, the other subtracts it, modulo 2^64. All masks cancel in the total, which is exact. A
party draws a new nonce whenever it loads the run from its disk, so no mask covers two values, even after a restore from
a backup. See ``secure_sum.proof.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from numpy.typing import NDArray

from dperm.errors import ProtocolError
from dperm.solvers.vertical.protocol import Message
from dperm.types import IntArray
from dperm.vertical.identity.keys import Identity, Trust

__all__ = ["MaskKey", "Masker", "SignedMaskKey", "mask_key_arrays", "read_mask_keys", "sum_replies"]

_ZEROS = memoryview(bytes(1 << 20))


@dataclass(frozen=True)
class SignedMaskKey:
    """A party's public mask key of one run, signed by its certified key."""

    party: str
    public: bytes
    signature: bytes
    certificate: bytes

    def check(self, run: str, trust: Trust) -> None:
        """Refuse a key that is not the party's own."""
        trust.check_signature(self.certificate, self.party, self.signature, _statement(run, self.party, self.public))


def _statement(run: str, party: str, public: bytes) -> bytes:
    return b"dperm mask key|" + run.encode() + b"|" + party.encode() + b"|" + public


def mask_key_arrays(key: SignedMaskKey, prefix: str = "") -> dict[str, np.ndarray]:
    """Return a signed mask key as arrays of a message."""
    return {
        f"{prefix}mask key": np.frombuffer(key.public, np.uint8),
        f"{prefix}signature": np.frombuffer(key.signature, np.uint8),
        f"{prefix}certificate": np.frombuffer(key.certificate, np.uint8),
    }


def read_mask_keys(arrays: Mapping[str, np.ndarray], parties: Iterable[str]) -> list[SignedMaskKey]:
    """Read the mask keys of all parties of a run."""
    return [_key_of(arrays, party, f"{party} ") for party in parties]


def _key_of(arrays: Mapping[str, np.ndarray], party: str, prefix: str) -> SignedMaskKey:
    try:
        parts = [arrays[prefix + what].tobytes() for what in ("mask key", "signature", "certificate")]
    except KeyError:
        raise ProtocolError(f"the mask key of {party} is missing.") from None
    return SignedMaskKey(party, *parts)


class MaskKey:
    """A party's own mask key of one run."""

    def __init__(self, private: bytes | None = None) -> None:
        self._key = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)

    @property
    def private(self) -> bytes:
        """The private key, for the party's own disk only."""
        return self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def signed(self, run: str, identity: Identity) -> SignedMaskKey:
        """Return the public key with a signature."""
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        signature = identity.sign(_statement(run, identity.name, public))
        return SignedMaskKey(identity.name, public, signature, identity.certificate_der)

    def agree(self, public: bytes) -> bytes:
        """Return the secret shared with the owner of a public key."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise ProtocolError("a mask key is not a point of the curve, so nothing was masked with it.") from None


class Masker:
    """Masks one party's replies of one run.

    Parameters
    ----------
    run, party : str
        The run, and the party whose replies are masked.
    key : MaskKey
        The party's own mask key.
    others : mapping of str to bytes
        Public mask keys of all other parties, already checked.
    """

    def __init__(self, run: str, party: str, key: MaskKey, others: Mapping[str, bytes]) -> None:
        self._run, self._party = run.encode(), party
        self._secrets = {other: key.agree(public) for other, public in others.items() if other != party}

    def mask(self, reply: Message, step: int, attempt: int, nonces: Mapping[str, bytes]) -> Message:
        """Return the reply with its summed arrays masked; ``nonces`` are those of all parties, by name."""
        if not reply.summed or not self._secrets:
            return reply
        names = sorted(reply.summed)
        lengths = [np.asarray(reply.arrays[name]).size for name in names]
        words = np.concatenate([np.ascontiguousarray(reply.arrays[name], np.int64).reshape(-1) for name in names])
        masked = words.view(np.uint64)
        for other, secret in self._secrets.items():
            mask = self._stream(secret, other, step, attempt, nonces, masked.size)
            if self._party < other:
                np.add(masked, mask, out=masked)  # wraps modulo 2^64
            else:
                np.subtract(masked, mask, out=masked)
        arrays = dict(reply.arrays)
        for name, part in zip(names, np.split(words, np.cumsum(lengths)[:-1]), strict=True):
            arrays[name] = part.reshape(np.shape(reply.arrays[name]))
        return Message(reply.kind, arrays, reply.facts, reply.summed)

    def _stream(
        self, secret: bytes, other: str, step: int, attempt: int, nonces: Mapping[str, bytes], n: int
    ) -> NDArray[np.uint64]:
        pair = sorted((self._party, other))
        info = b"dperm mask|" + "|".join(pair).encode() + b"|" + struct.pack("<II", step, attempt)
        info += b"".join(nonces[name] for name in pair)
        key = HKDF(hashes.SHA256(), 32, salt=self._run, info=info).derive(secret)
        # the key differs for every pair, step, attempt and nonce, so a counter that starts at zero repeats no block
        out = np.empty(n + 2, np.uint64)  # the library requires room for one more block
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        view = out.view(np.uint8).data
        for start in range(0, 8 * n, len(_ZEROS)):
            cipher.update_into(_ZEROS[: 8 * n - start], view[start:])
        return out[:n]


def sum_replies(replies: Iterable[Message]) -> dict[str, IntArray]:
    """Add up the summed arrays of all parties, modulo 2^64."""
    sums: dict[str, IntArray] = {}
    own_copy: set[str] = set()
    names: frozenset[str] | None = None
    for reply in replies:
        if names not in (None, reply.summed):
            raise ProtocolError("the parties' replies do not sum the same arrays.")
        names = reply.summed
        for name in reply.summed:
            array = np.asarray(reply.arrays[name], np.int64)
            if name not in sums:
                sums[name] = array
            elif sums[name].shape != array.shape:
                raise ProtocolError(f"the parties' arrays {name!r} differ in shape, so they have no sum.")
            elif name not in own_copy:  # integers wrap around; this first sum is a new array, later ones reuse it
                sums[name] = sums[name] + array
                own_copy.add(name)
            else:
                np.add(sums[name], array, out=sums[name])
    return sums

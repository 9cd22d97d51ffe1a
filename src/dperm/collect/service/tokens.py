"""One-time tokens: an application's own server decides who may report, and the collector checks.

A token is an id, spent with the report like any other id, and a code that only a holder of the key can make. The server
that mints tokens knows which id it gave to whom. A report is no less private for that, because the local model trusts
nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
from pathlib import Path

from dperm.errors import InvalidInput

__all__ = ["CODE_BYTES", "code", "mint", "read_key", "read_secret", "valid"]

CODE_BYTES = 16
_LEAST_KEY = 32


def code(key: bytes, digest: str, id16: bytes) -> bytes:
    """Return the code that makes an id a token for the collection with this digest."""
    return hmac.digest(key, b"dperm token 1" + bytes.fromhex(digest) + id16, hashlib.sha256)[:CODE_BYTES]


def mint(key: bytes, digest: str) -> str:
    """Return a fresh token as text."""
    id16 = secrets.token_bytes(16)
    return (id16 + code(key, digest, id16)).hex()


def valid(key: bytes, digest: str, id16: bytes, given: bytes) -> bool:
    """Whether a code belongs to an id; the time it takes reveals nothing about the code."""
    return hmac.compare_digest(code(key, digest, id16), given)


def read_key(path: str | os.PathLike[str], *, create: bool = False) -> bytes:
    """Read the key from a file of 32 bytes or more; ``create`` makes a new one that only its owner can read."""
    where = Path(path)
    try:
        if create and not where.exists():
            with os.fdopen(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_LEAST_KEY))
        key = where.read_bytes()
    except OSError as error:
        raise InvalidInput(f"the token key {str(where)!r} cannot be read: {error.strerror}.") from None
    if len(key) < _LEAST_KEY:
        raise InvalidInput(f"the token key {str(where)!r} is shorter than {_LEAST_KEY} bytes: make another one.")
    return key


def _make(where: Path) -> str:
    """The command that makes a secret."""
    command = 'python -c "import secrets; print(secrets.token_hex(32))"'
    return f"Make one: {command} > {shlex.quote(str(where))}"


def read_secret(path: str | os.PathLike[str], *, create: bool = False) -> str:
    """Read an operator's secret, 32 letters and digits or more; ``create`` makes one that only its owner can read."""
    where = Path(path)
    try:
        if create and not where.exists():
            with os.fdopen(os.open(where, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(secrets.token_hex(_LEAST_KEY) + "\n")
        secret = where.read_bytes().strip()
    except OSError as error:
        raise InvalidInput(f"the secret {str(where)!r} cannot be read: {error.strerror}. {_make(where)}") from None
    if len(secret) < _LEAST_KEY or not secret.isalnum():
        raise InvalidInput(
            f"the secret {str(where)!r} must have {_LEAST_KEY} letters and digits or more. {_make(where)}"
        )
    return secret.decode("ascii")

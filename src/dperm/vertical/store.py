"""A run's folder: one record, replaced whole, and a lock so that one process alone works with it."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from dperm.errors import InvalidInput, ProtocolError, StateLost
from dperm.solvers.vertical.programs import Fact, Message
from dperm.vertical.envelope import checked_name
from dperm.vertical.wire import checksum, decode, encoded_parts, encoded_size

__all__ = ["Record", "RunFolder"]

_SLOTS = ("record.0", "record.1")
_MOST = 1 << 33
_MAGIC = b"dpvrec01"
_HEAD = struct.Struct("<8sQQ16s")


class Record:
    """What a participant needs to go on: public facts and byte strings."""

    def __init__(self, facts: Mapping[str, Fact], blobs: Mapping[str, bytes]) -> None:
        self.facts = dict(facts)
        self.blobs = dict(blobs)


class RunFolder:
    """Keeps the newest record of one run on disk.

    Parameters
    ----------
    root : path
        The participant's folder of runs.
    run : str
        Name of the run.
    """

    def __init__(self, root: str | os.PathLike[str], run: str) -> None:
        self.path = Path(root) / checked_name(run, "the name of a run")
        self._lock: IO[Any] | None = None
        self._newest: int | None = None

    @property
    def exists(self) -> bool:
        """Whether the run was ever stored here."""
        return any((self.path / name).exists() for name in _SLOTS)

    def open(self) -> Self:
        """Make the folder and lock it."""
        if self._lock is not None:
            return self
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = open(self.path / "lock", "w")  # noqa: SIM115 (held for the life of the process)
        except OSError as error:
            raise InvalidInput(f"the folder {self.path} cannot be used ({error.strerror}): choose another.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            raise InvalidInput(f"another process works with {self.path}: stop it first.") from None
        self._lock = handle
        return self

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def save(self, record: Record) -> None:
        """Store a record; on disk when this returns, and the one before stays whole until then.

        Two files take turns and are written in place, which costs a fraction of a new file. A record that was cut off
        by a crash does not match its checksum, and the one before counts: nothing was sent because of the cut one.
        """
        arrays = {name: np.frombuffer(blob, np.uint8) for name, blob in record.blobs.items()}
        message = Message("record", arrays, record.facts)
        if self._newest is None:
            self._newest = max((number for number, _ in self._slots()), default=0)
        number = self._newest + 1
        head = _HEAD.pack(_MAGIC, number, encoded_size(message), _checksum(number, message))
        path = self.path / _SLOTS[number % 2]
        fresh = not path.exists()
        target = self.path / (path.name + ".new") if fresh else path
        handle = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for part in (head, *encoded_parts(message)):
                left = memoryview(part)
                while left:
                    left = left[os.write(handle, left) :]
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if fresh:
            os.replace(target, path)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)  # the new name itself survives a loss of power
            finally:
                os.close(folder)
        self._newest = number

    def _slots(self) -> list[tuple[int, Message]]:
        """Numbers and contents of the records that are whole."""
        found = []
        for name in _SLOTS:
            try:
                data = memoryview((self.path / name).read_bytes())
            except FileNotFoundError:
                continue
            if len(data) < _HEAD.size:
                continue
            magic, number, length, said = _HEAD.unpack(data[: _HEAD.size])
            try:
                message = decode(data[_HEAD.size : _HEAD.size + length], _MOST)
            except ProtocolError:
                continue
            if magic == _MAGIC and number > 0 and _checksum(number, message) == said:
                found.append((number, message))
        return found

    def load(self) -> Record | None:
        """Return the newest record, None if there never was one."""
        if not self.exists:
            return None
        slots = self._slots()
        if not slots:
            raise StateLost(
                f"the record of run {self.path.name!r} in {self.path} is damaged: restore the folder, or end the run."
            )
        self._newest, message = max(slots, key=lambda slot: slot[0])
        return Record(message.facts, {name: array.tobytes() for name, array in message.arrays.items()})


def _checksum(number: int, message: Message) -> bytes:
    """Checksum of a record: of the checksums of its encoded parts, which need not be joined for it."""
    tags = [checksum(part) for part in encoded_parts(message)]
    return checksum(struct.pack("<QQ", number, len(tags)) + b"".join(tags))

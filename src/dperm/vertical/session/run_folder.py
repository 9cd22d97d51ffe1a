"""A run's folder: the newest record of the run, replaced atomically, and a lock that admits one process only.

A record counter is also kept elsewhere, beside the participant's ledger. It reveals a folder that was restored from an
older copy.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from dperm.atomic_files import sync_folder
from dperm.errors import InvalidInput, ProtocolError, StateLost
from dperm.solvers.vertical.protocol import Fact, Message
from dperm.vertical.identity.names import require_safe_name
from dperm.vertical.transport.wire import checksum, decode, encoded_parts, encoded_size

__all__ = ["Record", "RunFolder"]

_SLOTS = ("record.0", "record.1")
_MOST_BYTES = 1 << 33
_MAGIC = b"dpvrec02"
_HEAD = struct.Struct("<8sQQ16s")


class Record:
    """What a participant needs to resume a run: public facts and byte strings."""

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
    counters : path, optional
        Folder outside ``root`` that also holds the number of the newest record. It reveals a folder that was restored
        from an older copy: continuing from it would repeat the releases made since.
    """

    def __init__(self, root: str | os.PathLike[str], run: str, counters: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(root) / require_safe_name(run, "the name of a run")
        self._slots = _Slots(self.path)
        self._counter = None if counters is None else _Slots(Path(counters) / run)

    @property
    def exists(self) -> bool:
        """Whether the run was ever stored here."""
        return self._slots.exist

    def open(self) -> Self:
        """Create the folder and lock it."""
        self._slots.open()
        if self._counter is not None:
            try:  # this lock also stops a second copy of the folder in another place
                self._counter.open(
                    f"run {self.path.name!r} is in progress in another folder, or at another participant that uses the "
                    "same ledger: stop it first, or give each participant a ledger of its own."
                )
            except BaseException:
                self._slots.close()
                raise
        return self

    def close(self) -> None:
        """Release the lock."""
        self._slots.close()
        if self._counter is not None:
            self._counter.close()

    def save(self, record: Record, last: bool = False) -> None:
        """Store a record; it is on disk when this returns, and the previous one stays intact until then.

        The counter is written after the record. A crash between the two leaves a counter that is one behind, and
        nothing that depends on the record has been sent. The ``last`` record of a run removes the earlier ones from the
        disk.
        """
        arrays = {name: np.frombuffer(blob, np.uint8) for name, blob in record.blobs.items()}
        number = self._slots.newest + 1
        self._slots.write(number, Message("record", arrays, record.facts))
        if self._counter is not None:
            self._counter.write(number, Message("counter"))
        if last:
            self._slots.keep_newest_only()

    def load(self) -> Record | None:
        """Return the newest record, or None if there never was one.

        Raises
        ------
        StateLost
            The record is damaged, or older than the counter shows the run to be.
        """
        number, message = self._slots.read()
        run = self.path.name
        if message is None and self.exists:
            raise StateLost(f"the record of run {run!r} in {self.path} is damaged: restore the folder, or end the run.")
        if self._counter is not None:
            count, _ = self._counter.read()
            if message is None:
                self._slots.newest = count  # the run starts over, if the ledger admits it; the counter never decreases
                return None
            if not number - 1 <= count <= number:
                older = "the record" if number < count else "the record counter beside the ledger"
                raise StateLost(
                    f"{older} of run {run!r} is older than the run (record {number}, counter {count}): it was restored "
                    "from a copy, and continuing would repeat releases made since then; start a run under another name."
                )
            if count < number:
                # the crash came between the two writes: the answer in this record is sent next, and from then on a
                # copy from before it must be recognised
                self._counter.write(number, Message("counter"))
        if message is None:
            return None
        return Record(message.facts, {name: array.tobytes() for name, array in message.arrays.items()})


class _Slots:
    """Two files written in turn, and a lock.

    They are overwritten in place, which costs a fraction of creating a file. A write that a crash interrupted does not
    match its checksum; the other file then holds the newest intact content.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[Any] | None = None
        self._newest: int | None = None

    @property
    def exist(self) -> bool:
        return any((self.path / name).exists() for name in _SLOTS)

    @property
    def newest(self) -> int:
        """Number of the newest intact slot, 0 if there is none."""
        if self._newest is None:
            self.read()
        assert self._newest is not None
        return self._newest

    @newest.setter
    def newest(self, number: int) -> None:
        self._newest = number

    def open(self, busy: str | None = None) -> None:
        """Lock the folder; ``busy`` is the error message if another process has it locked."""
        if self._lock is not None:
            return
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = open(self.path / "lock", "w")  # noqa: SIM115 (held for the life of the process)
        except OSError as error:
            raise InvalidInput(f"the folder {self.path} cannot be used ({error.strerror}): choose another.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            raise InvalidInput(busy or f"another process is using {self.path}: stop it first.") from None
        self._lock = handle

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, number: int, message: Message) -> None:
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
            sync_folder(self.path)  # so that the new name survives a power failure
        self._newest = number

    def keep_newest_only(self) -> None:
        """Remove the older slot, and the bytes that a longer record left after the newest one in its file."""
        assert self._newest is not None
        kept = self.path / _SLOTS[self._newest % 2]
        with open(kept, "r+b") as handle:
            *_, length, _ = _HEAD.unpack(handle.read(_HEAD.size))
            handle.truncate(_HEAD.size + length)
            os.fsync(handle.fileno())
        (self.path / _SLOTS[(self._newest + 1) % 2]).unlink(missing_ok=True)
        sync_folder(self.path)

    def read(self) -> tuple[int, Message | None]:
        """Return number and content of the newest intact slot; 0 and None if there is none."""
        newest: tuple[int, Message | None] = (0, None)
        for name in _SLOTS:
            try:
                data = memoryview((self.path / name).read_bytes())
            except FileNotFoundError:
                continue
            if len(data) < _HEAD.size:
                continue
            magic, number, length, stored_checksum = _HEAD.unpack(data[: _HEAD.size])
            try:
                message = decode(data[_HEAD.size : _HEAD.size + length], _MOST_BYTES)
            except ProtocolError:
                continue
            if magic == _MAGIC and number > newest[0] and _checksum(number, message) == stored_checksum:
                newest = (number, message)
        self._newest = newest[0]
        return newest


def _checksum(number: int, message: Message) -> bytes:
    """Return the checksum of a record: of the checksums of its encoded parts, so that they need not be joined."""
    tags = [checksum(part) for part in encoded_parts(message)]
    return checksum(struct.pack("<QQ", number, len(tags)) + b"".join(tags))

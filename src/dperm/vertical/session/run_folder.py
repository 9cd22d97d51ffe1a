"""A run's folder: one record, replaced whole, and a lock so that one process alone works with it.

The number of the newest record is also kept elsewhere, beside the participant's ledger, so that a folder that was
restored from an older copy is noticed.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from dperm.errors import InvalidInput, ProtocolError, StateLost
from dperm.solvers.vertical.protocol import Fact, Message
from dperm.vertical.transport.envelope import checked_name
from dperm.vertical.transport.wire import checksum, decode, encoded_parts, encoded_size

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
    marks : path, optional
        Folder outside ``root`` in which the number of the newest record is kept too, so that a folder that was restored
        from an older copy is recognised: what was released since then would be released again.
    """

    def __init__(self, root: str | os.PathLike[str], run: str, marks: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(root) / checked_name(run, "the name of a run")
        self._slots = _Slots(self.path)
        self._marks = None if marks is None else _Slots(Path(marks) / run)

    @property
    def exists(self) -> bool:
        """Whether the run was ever stored here."""
        return self._slots.exist

    def open(self) -> Self:
        """Make the folder and lock it."""
        self._slots.open()
        if self._marks is not None:
            try:  # a second copy of the folder, elsewhere, meets this lock
                self._marks.open(
                    f"run {self.path.name!r} is under way in another folder, or at another participant that has the "
                    "same ledger: stop it first, or give each participant a ledger of its own."
                )
            except BaseException:
                self._slots.close()
                raise
        return self

    def close(self) -> None:
        """Let go of the lock."""
        self._slots.close()
        if self._marks is not None:
            self._marks.close()

    def save(self, record: Record, last: bool = False) -> None:
        """Store a record; on disk when this returns, and the one before stays whole until then.

        The mark is written after the record: a crash between the two leaves a mark that is one behind, and nothing was
        sent because of the record. The ``last`` record of a run leaves nothing of those before on the disk.
        """
        arrays = {name: np.frombuffer(blob, np.uint8) for name, blob in record.blobs.items()}
        number = self._slots.newest + 1
        self._slots.write(number, Message("record", arrays, record.facts))
        if self._marks is not None:
            self._marks.write(number, Message("mark"))
        if last:
            self._slots.keep_newest_only()

    def load(self) -> Record | None:
        """Return the newest record, None if there never was one.

        Raises
        ------
        StateLost
            The record is damaged, or older than the mark says that the run is.
        """
        number, message = self._slots.read()
        run = self.path.name
        if message is None and self.exists:
            raise StateLost(f"the record of run {run!r} in {self.path} is damaged: restore the folder, or end the run.")
        if self._marks is not None:
            mark, _ = self._marks.read()
            if message is None:
                self._slots.newest = mark  # the run begins anew, if the ledger admits it; the mark only ever grows
                return None
            if not number - 1 <= mark <= number:
                older = "the record" if number < mark else "the mark beside the ledger"
                raise StateLost(
                    f"{older} of run {run!r} is older than the run ({number} records, marked {mark}): it was restored "
                    "from a copy, and going on would release again what was released since; start a run under another "
                    "name."
                )
            if mark < number:
                # the crash came between the two: what this record says leaves next, and a copy from before it must
                # be recognised from then on
                self._marks.write(number, Message("mark"))
        if message is None:
            return None
        return Record(message.facts, {name: array.tobytes() for name, array in message.arrays.items()})


class _Slots:
    """Two files that take turns, and a lock.

    They are written in place, which costs a fraction of a new file. What was cut off by a crash does not match its
    checksum, and the one before counts.
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
        """Number of the newest one that is whole, 0 if there is none."""
        if self._newest is None:
            self.read()
        assert self._newest is not None
        return self._newest

    @newest.setter
    def newest(self, number: int) -> None:
        self._newest = number

    def open(self, busy: str | None = None) -> None:
        """Lock the folder; ``busy`` is said if another process has it."""
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
            raise InvalidInput(busy or f"another process works with {self.path}: stop it first.") from None
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
            self._sync_names()  # the new name itself survives a loss of power
        self._newest = number

    def keep_newest_only(self) -> None:
        """Remove the one before the newest, and what a longer one left behind the newest in its file."""
        assert self._newest is not None
        kept = self.path / _SLOTS[self._newest % 2]
        with open(kept, "r+b") as handle:
            *_, length, _ = _HEAD.unpack(handle.read(_HEAD.size))
            handle.truncate(_HEAD.size + length)
            os.fsync(handle.fileno())
        (self.path / _SLOTS[(self._newest + 1) % 2]).unlink(missing_ok=True)
        self._sync_names()

    def _sync_names(self) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self) -> tuple[int, Message | None]:
        """Return number and content of the newest one that is whole; 0 and None if there is none."""
        found: tuple[int, Message | None] = (0, None)
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
            if magic == _MAGIC and number > found[0] and _checksum(number, message) == said:
                found = (number, message)
        self._newest = found[0]
        return found


def _checksum(number: int, message: Message) -> bytes:
    """Checksum of a record: of the checksums of its encoded parts, which need not be joined for it."""
    tags = [checksum(part) for part in encoded_parts(message)]
    return checksum(struct.pack("<QQ", number, len(tags)) + b"".join(tags))

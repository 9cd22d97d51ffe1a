"""Alignment: find the people that all participants have, without revealing identifiers that a participant lacks.

Every participant multiplies its hashed identifiers by a secret factor and sends them in a secret order. Each list then
passes through every other participant, which multiplies it by its own factor. Entries that carry all factors are equal
if the identifiers are equal. So the coordinator, which carries the lists, finds the common entries and sends each
participant their positions in its own list. ``alignment.proof.md`` states what each participant learns.
"""

from __future__ import annotations

import math
import struct
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dperm.errors import DpermWarning, InvalidData, InvalidInput, ProtocolError, StateLost
from dperm.privacy.ledger.scope import InnerScope
from dperm.privacy.randomness import RandomSource
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message, PartyProgram
from dperm.types import IntArray
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.blinding import POINT_BYTES, Blinding
from dperm.vertical.session.spec import PreparedRun, RunSpec
from dperm.vertical.transport.wire import digest

__all__ = ["ALIGN", "AlignCoordinator", "AlignParty", "AlignmentHandler", "IdentifierColumn", "clean_identifiers"]

ALIGN = "align"
#: identifiers with fewer bits than this can be guessed by trying all of them
_GUESSABLE_BITS = 40.0


def clean_identifiers(values: Sequence[Any], what: str = "the identifier column") -> list[bytes]:
    """Return identifiers in a uniform form, or refuse them; the error contains no identifier.

    Warns if there are so few possible identifiers that a participant could try all of them.
    """
    texts = [unicodedata.normalize("NFC", str(value)).strip() for value in values]
    if not texts:
        raise InvalidData(f"{what} is empty: there are no people to align.")
    missing = sum(text in ("", "nan", "None") for text in texts)
    if missing:
        raise InvalidData(f"{what} is missing for {missing} rows: remove these rows, or give them identifiers.")
    repeated = len(texts) - len(set(texts))
    if repeated:
        raise InvalidData(f"{what} has {repeated} repeated identifiers: keep one row per person.")
    if _bits(texts) < _GUESSABLE_BITS:
        warnings.warn(
            f"{what} has few possible values (about 2^{_bits(texts):.0f}): a participant that departs from the "
            "protocol could try them all and learn who is in this table; prefer long random identifiers.",
            DpermWarning,
            stacklevel=2,
        )
    return [text.encode() for text in texts]


def _bits(texts: Sequence[str]) -> float:
    """Return a rough upper bound on the bits in an identifier, from the characters seen at each position.

    A prefix or suffix that all identifiers share (such as a time zone) is not counted: it makes no guess harder.
    """
    rests = _without_prefix([text[::-1] for text in _without_prefix(texts)])
    longest = max(map(len, rests))
    return math.fsum(math.log2(len({rest[i : i + 1] for rest in rests})) for i in range(longest))


def _without_prefix(texts: Sequence[str]) -> list[str]:
    first, last = min(texts), max(texts)  # a prefix that these two share is shared by all texts between them
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return [text[shared:] for text in texts]


def _statement(run: str, owner: str, hop: int, points: NDArray[np.uint8]) -> bytes:
    content = digest(np.ascontiguousarray(points, np.uint8).tobytes())
    return b"|".join((b"dperm alignment", run.encode(), owner.encode(), struct.pack("<I", hop), content))


@dataclass(frozen=True)
class IdentifierColumn:
    """A participant's identifiers in a uniform form, and the digest of the column as it was read, row by row."""

    identifiers: Sequence[bytes]
    digest: str


class AlignParty:
    """One participant's program: blind its list, multiply every other list once, receive the common positions."""

    calibrated: Any = None

    def __init__(self, run: str, members: Sequence[str], identity: Identity, column: IdentifierColumn) -> None:
        self._run, self._members, self._identity = run, tuple(members), identity
        self.n_rounds = len(self._members) + 1
        self._identifiers = list(column.identifiers)
        #: digest of the table to whose rows the positions refer; the order is stored for this table only
        self.table = column.digest
        self._blinding = Blinding()
        # a secret order: positions in the list reveal nothing about positions in the table
        self._shuffled = np.argsort(RandomSource().words(len(self._identifiers)), kind="stable")
        self._round = 0
        self.order: IntArray | None = None

    def answer(self, request: Message) -> Message:
        me, m = self._members.index(self._identity.name), len(self._members)
        if self._round == m:
            return self._receive_positions(request)
        owner = self._members[(me - self._round) % m]
        if request.kind != "multiply" or request.facts.get("owner") != owner:
            raise ProtocolError("this list is not the next one to multiply; it was not answered.")
        if self._round == 0:
            points = self._blinding.blind(self._identifiers[i] for i in self._shuffled)
        else:
            points = self._blinding.multiply(self._checked(request, owner))
        self._round += 1
        signature = self._identity.sign(_statement(self._run, owner, self._round, points))
        return Message(
            "multiplied",
            {
                "points": points,
                "signature": np.frombuffer(signature, np.uint8),
                "certificate": np.frombuffer(self._identity.certificate_der, np.uint8),
            },
        )

    def _checked(self, request: Message, owner: str) -> NDArray[np.uint8]:
        """Return a list only if the preceding participant signed it: the coordinator cannot insert guesses."""
        try:
            points, signature, certificate = (request.arrays[k] for k in ("points", "signature", "certificate"))
        except KeyError:
            raise ProtocolError("a list of blinded identifiers arrived without its signature.") from None
        if points.dtype != np.uint8 or points.ndim != 2 or points.shape[1] != POINT_BYTES:
            raise ProtocolError("a list of blinded identifiers has the wrong type or shape.")
        before = self._members[(self._members.index(self._identity.name) - 1) % len(self._members)]
        statement = _statement(self._run, owner, self._round, points)
        self._identity.trust.check_signature(certificate.tobytes(), before, signature.tobytes(), statement)
        return points

    def _receive_positions(self, request: Message) -> Message:
        places = request.arrays.get("places")
        if request.kind != "common" or places is None or places.dtype != np.int64 or places.ndim != 1:
            raise ProtocolError("the positions of the common people are missing.")
        if len(np.unique(places)) < len(places) or (places < 0).any() or (places >= len(self._shuffled)).any():
            raise ProtocolError("the positions of the common people are not positions in this party's list.")
        self.order = self._shuffled[places].astype(np.int64)
        self._round += 1
        return Message("learnt")

    def state(self) -> Message:
        table = np.frombuffer(self.table.encode(), np.uint8)
        if self.order is not None:  # the secret is no longer needed and is not stored
            return Message("state", {"order": self.order, "table": table}, {"round": self._round})
        arrays: dict[str, NDArray[Any]] = {
            "table": table,
            "secret": np.frombuffer(self._blinding.secret, np.uint8),
            "shuffled": self._shuffled.astype(np.int64),
        }
        return Message("state", arrays, {"round": self._round})

    def restore(self, state: Message) -> None:
        if state.arrays["table"].tobytes().decode() != self.table:
            raise StateLost(
                f"the identifier column changed since alignment {self._run!r} began: restore the table, or start "
                "another alignment; nothing was answered."
            )
        self.order = state.arrays.get("order")
        self._round = int(state.facts["round"] or 0)
        if self.order is not None:
            return
        self._blinding = Blinding(state.arrays["secret"].tobytes())
        self._shuffled = state.arrays["shuffled"].copy()


class AlignCoordinator:
    """The coordinator's program: carries and compares the lists; takes part itself if it has identifiers."""

    calibrated: Any = None

    def __init__(self, run: str, parties: Sequence[str], local: AlignParty | None, local_name: str = "") -> None:
        self._parties = tuple(parties)
        self._members = (*parties, local_name) if local is not None else self._parties
        if len(self._members) < 2:
            raise InvalidInput("alignment needs at least two participants with identifiers.")
        self.local, self._local_name = local, local_name
        self.n_rounds = len(self._members) + 1
        self.round = 0
        #: by owner: the current list, and the signature of the participant that multiplied it last
        self._lists: dict[str, dict[str, NDArray[Any]]] = {}
        self.n_common = 0

    def requests(self) -> Mapping[str, Message]:
        return {party: self._request(party) for party in self._parties}

    def _request(self, member: str) -> Message:
        if self.round == len(self._members):
            return Message("common", {"places": self._places()[member]})
        owner = self._members[(self._members.index(member) - self.round) % len(self._members)]
        return Message("multiply", self._lists.get(owner, {}), {"owner": owner})

    def _places(self) -> dict[str, IntArray]:
        """Return the positions of the common people in every owner's list, in an order that no participant chose."""
        where = {
            owner: {row.tobytes(): i for i, row in enumerate(parts["points"])} for owner, parts in self._lists.items()
        }
        common = sorted(set.intersection(*(set(places) for places in where.values())))
        if not common:
            raise InvalidInput(
                "the participants have no people in common: check that all write identifiers in the same form."
            )
        self.n_common = len(common)
        return {
            owner: np.fromiter((places[x] for x in common), np.int64, len(common)) for owner, places in where.items()
        }

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        answers = dict(replies)
        if self.local is not None:
            answers[self._local_name] = self.local.answer(self._request(self._local_name))
        if self.round < len(self._members):
            fresh = {}
            for member, answer in answers.items():
                owner = self._members[(self._members.index(member) - self.round) % len(self._members)]
                points = answer.arrays.get("points")
                before = self._lists.get(owner, {}).get("points")
                if points is None or (before is not None and points.shape != before.shape):
                    raise ProtocolError(f"{member} returned a list with a different length from the one it received.")
                fresh[owner] = dict(answer.arrays)
            self._lists = fresh
        self.round += 1

    def state(self) -> Message:
        lists = {} if self.round >= self.n_rounds else self._lists
        arrays = {f"{owner} {what}": array for owner, parts in lists.items() for what, array in parts.items()}
        if self.local is not None:
            arrays |= {f" {name}": array for name, array in self.local.state().arrays.items()}
        return Message("state", arrays, {"round": self.round, "common": self.n_common})

    def restore(self, state: Message) -> None:
        self.round, self.n_common = int(state.facts["round"] or 0), int(state.facts["common"] or 0)
        self._lists = {}
        for name, array in state.arrays.items():
            owner, _, what = name.rpartition(" ")
            if owner:
                self._lists.setdefault(owner, {})[what] = array
        if self.local is not None:
            mine = {name[1:]: array for name, array in state.arrays.items() if name.startswith(" ")}
            self.local.restore(Message("state", mine, {"round": self.round}))

    def result(self) -> IntArray | None:
        """Return the label holder's own order, if it takes part."""
        return None if self.local is None else self.local.order


class AlignmentHandler:
    """Handler of an alignment, for a party or the coordinator.

    Parameters
    ----------
    identity : Identity
        The participant that signs the lists.
    column : IdentifierColumn, optional
        The participant's own identifiers; a coordinator without any only carries the lists.
    keep : callable
        Stores the order (rows of the participant's own table in the common order) with the digest of that table.
    party : bool
        Whether this is a party rather than the coordinator.
    """

    def __init__(
        self,
        identity: Identity,
        column: IdentifierColumn | None,
        keep: Callable[[IntArray, str], Any],
        party: bool,
    ) -> None:
        self._identity, self._column, self._keep, self._party = identity, column, keep, party

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        if self._column is None:
            raise InvalidInput("this party's configuration has no identifier column: add `id` under [data].")
        return {"n": len(self._column.identifiers)}

    def check(self, spec: RunSpec) -> None:
        """Accept any numbers of rows: they need not agree before an alignment."""

    def prepare(self, spec: RunSpec) -> PreparedRun:
        return PreparedRun()

    def _own(self, spec: RunSpec) -> AlignParty | None:
        if self._column is None:
            return None
        label_holder = spec.options.get("label_holder")
        members = (*spec.parties, str(label_holder)) if label_holder else spec.parties
        return AlignParty(spec.run, members, self._identity, self._column)

    def program(self, spec: RunSpec, scope: InnerScope | None) -> Any:
        if self._party:
            return self._own(spec)
        return AlignCoordinator(spec.run, spec.parties, self._own(spec), self._identity.name)

    def finish_messages(self, spec: RunSpec, program: CoordinatorProgram) -> Mapping[str, Message]:
        return dict.fromkeys(spec.parties, Message("finish"))

    def finish(self, spec: RunSpec, program: PartyProgram | CoordinatorProgram, message: Message | None = None) -> Any:
        own = program if isinstance(program, AlignParty) else cast(AlignCoordinator, program).local
        if own is not None and own.order is not None:
            self._keep(own.order, own.table)
        return {"common": program.n_common} if isinstance(program, AlignCoordinator) else None

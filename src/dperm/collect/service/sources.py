"""A limit on reports per source that stores nothing about who sent them.

A source is the address that a connection comes from: whole for IPv4, its first 64 bits for IPv6, of which one
subscriber has all others. Whoever has a whole IPv6 site (the first 48 bits) has many such sources, so a site has a
limit too. A source is hashed with a random key, and the hash chooses one of a fixed number of places. A place
holds one moment, and neither it nor the key is ever written or logged. Key and places are replaced every few minutes;
new ones count for a while before they decide, so that a replacement gives nobody a second burst.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import secrets
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from dperm.errors import InvalidInput

__all__ = ["BURST", "PER_MINUTE", "SourceLimit"]

#: A device needs one request in its life; several people may share an address.
PER_MINUTE = 20.0
BURST = 100
#: sources that an IPv6 site counts as: as many homes or offices may report from one site at once
SITE = 16
#: how long a key lives; longer only if a burst needs more than half of it to come back
KEY_SECONDS = 600.0
#: places of 8 bytes, in two tables: a megabyte, whatever happens. Two sources that share one share its limit.
PLACES = 1 << 16


class _SourceTable:
    """A key and its places: the moment, after the table's start, at which a source has its whole burst again."""

    def __init__(self, started: float, first: float) -> None:
        self.started, self.key, self.places = started, secrets.token_bytes(32), array("d", [first]) * PLACES

    def place(self, source: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(source, digest_size=8, key=self.key).digest(), "big") % PLACES


class SourceLimit:
    """Lets every source send ``burst`` reports at once, and ``per_minute`` on average.

    Parameters
    ----------
    per_minute : float
        Reports per minute that a source may send for long; 0 sets no limit.
    burst : int
        Reports that a source may send at once.
    forwarded : bool
        Whether a proxy of the operator is in front, which writes the sender's address at the end of
        ``X-Forwarded-For``. Anybody else could write any address there.
    clock : callable
        Seconds, from any beginning.
    """

    def __init__(
        self,
        per_minute: float = PER_MINUTE,
        burst: int = BURST,
        *,
        forwarded: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (0.0 <= per_minute < math.inf and burst >= 1):
            raise InvalidInput("the limit per source must be 0 or more reports per minute, and 1 or more at once.")
        self.per_minute, self.burst, self.forwarded = per_minute, burst, forwarded
        self._clock = clock
        # from nothing to a whole burst
        self._refill = burst * 60.0 / per_minute if per_minute else 0.0
        self._turn = max(KEY_SECONDS / 2.0, self._refill)
        self._restart(clock())

    def _restart(self, now: float) -> None:
        """Forget everything: every source has its whole burst."""
        self._tables = [_SourceTable(now - self._turn, 0.0), _SourceTable(now, self._refill)]

    def _renew(self, now: float) -> None:
        """Forget the older table when its time is over: nobody can tell any more which places belonged to a source.

        A table counts for one turn and decides in the next. In a new table nobody has anything left: it is never more
        generous than the one before, and after its first turn a source that was quiet has its whole burst in it.
        """
        newer = self._tables[1]
        if now - newer.started >= 2.0 * self._turn:
            self._restart(now)  # no request for a whole turn
        elif now - newer.started >= self._turn:
            self._tables = [newer, _SourceTable(newer.started + self._turn, self._refill)]

    def wait(self, scope: Mapping[str, Any]) -> int:
        """Count a request; returns 0 if it is within the limit, else in how many seconds the next one is.

        A place holds the moment at which its source has its whole burst again. A request moves it by the time between
        two requests, at most to where nothing is left.
        """
        if self.per_minute == 0.0:
            return 0
        now, gap = self._clock(), 60.0 / self.per_minute
        self._renew(now)
        moved, wait = [], 0.0
        for source, n_sources in self._sources(scope):
            for older, table in ((True, self._tables[0]), (False, self._tables[1])):
                place, age = table.place(source), now - table.started
                full, latest = max(age, table.places[place]) + gap / n_sources, age + self._refill
                moved.append((table, place, min(full, latest)))
                if older:  # it decides
                    wait = max(wait, full - latest)
        if wait > 1e-9:
            return max(1, math.ceil(wait))
        for table, place, until in moved:
            table.places[place] = until
        return 0

    def _sources(self, scope: Mapping[str, Any]) -> list[tuple[bytes, int]]:
        """Return what a request counts for, and as how many sources."""
        source = self._source(scope)
        # an IPv6 network has 8 bytes, an IPv4 address 4: a site, of 6, is never taken for one of them
        return [(source, 1), (source[:6], SITE)] if len(source) == 8 else [(source, 1)]

    def _source(self, scope: Mapping[str, Any]) -> bytes:
        client = scope.get("client")
        text = client[0] if client else ""
        if self.forwarded:
            given = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            if given:
                text = given[-1].rpartition(b",")[2].strip().decode("latin-1")
        for form in (text, text.rpartition(":")[0].strip("[]")):  # some proxies add a port
            try:
                address = ipaddress.ip_address(form.partition("%")[0])
                break
            except ValueError:
                continue
        else:
            return b""
        if isinstance(address, ipaddress.IPv6Address):
            return address.ipv4_mapped.packed if address.ipv4_mapped else address.packed[:8]
        return address.packed

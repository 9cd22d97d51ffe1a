"""The limit per source: how many reports pass, and that nothing about a source stays."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

from dperm.collect.service import sources
from dperm.collect.service.sources import KEY_SECONDS, PLACES, SourceLimit
from dperm.errors import InvalidInput


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _from(address: str | None, **headers: str) -> dict[str, Any]:
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"client": None if address is None else (address, 1234), "headers": given}


def test_a_source_may_send_a_burst_and_then_at_its_rate(clock: Clock) -> None:
    limit = SourceLimit(6.0, 5, clock=clock)
    scope = _from("192.0.2.1")
    assert [limit.wait(scope) for _ in range(5)] == [0] * 5
    assert limit.wait(scope) == 10
    clock.now += 4.0
    assert limit.wait(scope) == 6  # a refused request costs nothing
    clock.now += 6.0
    assert (limit.wait(scope), limit.wait(scope)) == (0, 10)
    clock.now += 50.0
    assert [limit.wait(scope) > 0 for _ in range(6)] == [False] * 5 + [True]


@pytest.mark.parametrize(("rate", "burst"), [(20.0, 100), (60.0, 10), (1.0, 30)])
def test_a_long_attack_gets_the_stated_rate(rate: float, burst: int, clock: Clock) -> None:
    """One burst and then the rate, however often the key is renewed; nothing of the rate is lost either."""
    limit, passed = SourceLimit(rate, burst, clock=clock), 0
    hours = 2 if rate > 1.0 else 10
    for _ in range(hours * 3600 // 2):
        while limit.wait(_from("192.0.2.1")) == 0:
            passed += 1
        clock.now += 2.0
    assert hours * 60 * rate + burst - 1 - rate / 30.0 <= passed <= hours * 60 * rate + burst


def test_no_pattern_of_requests_gets_more_than_a_burst_and_the_rate(clock: Clock) -> None:
    """Quiet times and bursts at random, also around renewals: any stretch of time has a burst and the rate at most."""
    limit, random, passed = SourceLimit(20.0, 100, clock=clock), Random(3), [0.0] * 0
    for _ in range(400):
        clock.now += random.choice([0.1, 3.0, 60.0, 299.0, 300.0, 301.0, 650.0])
        passed += [clock.now for _ in range(random.choice([1, 20, 150])) if limit.wait(_from("192.0.2.1")) == 0]
    # how far the count is ahead of the rate; the largest rise of it is what a stretch of time has beyond its rate
    least, most = float("inf"), 0.0
    for n, now in enumerate(passed):
        least = min(least, n - now / 3.0)
        most = max(most, n + 1 - now / 3.0 - least)
    assert 99.0 <= most <= 100.0 + 1e-6


@pytest.mark.parametrize("since_start", [0.0, 1.0, 299.0, 300.0, 301.0, 599.0, 600.0, 899.0, 5000.0])
def test_a_quiet_source_has_its_whole_burst_at_any_age_of_the_key(since_start: float, clock: Clock) -> None:
    limit = SourceLimit(20.0, 100, clock=clock)
    clock.now += since_start
    for _ in range(4):
        assert [limit.wait(_from("192.0.2.1")) > 0 for _ in range(101)] == [False] * 100 + [True]
        clock.now += 300.0


def test_no_limit(clock: Clock) -> None:
    limit = SourceLimit(0.0, 1, clock=clock)
    assert [limit.wait(_from("192.0.2.1")) for _ in range(1000)] == [0] * 1000
    for rate, burst in ((-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)):
        with pytest.raises(InvalidInput, match="limit per source"):
            SourceLimit(rate, burst)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),  # one subscriber has all of these
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        (None, None, True),
        ("testclient", "another", True),  # no address at all: one source together
    ],
)
def test_what_a_source_is(first: str | None, second: str | None, same: bool, clock: Clock) -> None:
    limit = SourceLimit(1.0, 1, clock=clock)
    assert limit.wait(_from(first)) == 0
    assert (limit.wait(_from(second)) > 0) == same


def test_forwarded_addresses_count_only_if_the_operator_says_so(clock: Clock) -> None:
    """Without it, anybody could write a new address into every request."""
    limit = SourceLimit(1.0, 1, clock=clock)
    assert limit.wait(_from("192.0.2.1", x_forwarded_for="198.51.100.1")) == 0
    assert limit.wait(_from("192.0.2.1", x_forwarded_for="198.51.100.2")) > 0
    behind = SourceLimit(1.0, 1, forwarded=True, clock=clock)
    for first in ("198.51.100.1", "6.6.6.6, 198.51.100.2", "2001:db8::1", "198.51.100.3:8080", "[2001:db8:5::1]:80"):
        assert behind.wait(_from("192.0.2.1", x_forwarded_for=first)) == 0
    # the proxy's own entry is the last one: what the sender wrote before it changes nothing, nor does a port
    for again in ("9.9.9.9, 198.51.100.1", "198.51.100.2", "2001:db8::2", "198.51.100.3:9", "[2001:db8:5::2]:81"):
        assert behind.wait(_from("192.0.2.1", x_forwarded_for=again)) > 0
    assert behind.wait(_from("192.0.2.7")) == 0  # a request past the proxy


def test_memory_is_bounded_and_holds_no_address(clock: Clock) -> None:
    limit = SourceLimit(1.0, 1, clock=clock)
    before = [sys.getsizeof(table.places) for table in limit._tables]
    for k in range(20_000):
        limit.wait(_from(f"10.{k >> 16}.{k >> 8 & 255}.{k & 255}"))
        clock.now += 0.1
    assert [sys.getsizeof(table.places) for table in limit._tables] == before
    assert sum(before) <= 17 * PLACES
    assert set(vars(limit)) == {"per_minute", "burst", "forwarded", "_clock", "_refill", "_turn", "_tables"}
    for table in limit._tables:
        assert set(vars(table)) == {"started", "key", "places"}
        assert table.places.typecode == "d"  # moments, and nothing else, stay


@pytest.mark.fresh_noise
def test_keys_are_random_and_replaced(clock: Clock) -> None:
    """Two services, and one service a few minutes later, put the same source into different places."""
    limits = [SourceLimit(1.0, 1, clock=clock) for _ in range(40)]
    for k in (0, 1):
        assert len({one._tables[k].place(b"\xc0\x00\x02\x01") for one in limits}) > 35
    one, first = limits[0], {table.key: clock.now for table in limits[0]._tables}
    for _ in range(300):
        clock.now += 7.0
        one.wait(_from("192.0.2.1"))
        for table in one._tables:
            assert clock.now - first.setdefault(table.key, clock.now) <= KEY_SECONDS
    assert len(first) == 2 + 300 * 7 // 300  # one more every five minutes
    clock.now += 2 * KEY_SECONDS  # a quiet time ends both
    assert one.wait(_from("192.0.2.2")) == 0
    assert not {table.key for table in one._tables} & set(first)


def test_sources_share_places_rarely(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    limit = SourceLimit(1.0, 1, clock=clock)
    refused = sum(limit.wait(_from(f"10.0.{k >> 8}.{k & 255}")) > 0 for k in range(1000))
    assert refused < 30  # about 1000^2 / 2 / 65,536
    monkeypatch.setattr(sources, "PLACES", 2)
    crowded = SourceLimit(1.0, 1, clock=clock)
    assert sum(crowded.wait(_from(f"10.0.0.{k}")) > 0 for k in range(100)) == 98


def test_a_site_of_many_networks_has_a_limit_too(clock: Clock) -> None:
    limit = SourceLimit(6.0, 5, clock=clock)
    passed = sum(limit.wait(_from(f"2001:db8:7:{k:x}::1")) == 0 for k in range(400))
    assert passed == 5 * sources.SITE
    assert limit.wait(_from("2001:db8:8:1::1")) == 0  # another site
    assert limit.wait(_from("192.0.2.1")) == 0
    clock.now += 60.0
    passed = sum(limit.wait(_from(f"2001:db8:7:{k:x}::1")) == 0 for k in range(400))
    assert passed == 5 * sources.SITE  # a burst at most

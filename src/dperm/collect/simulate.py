"""Simulated people, to try a collection out: random records, the reports they would send, and a way to send them."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.service.wire import PACKED, pack
from dperm.collect.store.store import Entry
from dperm.errors import RunError
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Reports
from dperm.types import FloatArray

__all__ = ["Sender", "device_records", "draw_people", "packed_body", "report_batches", "store_entry"]


def draw_people(collection: Collection, n: int, rng: np.random.Generator) -> tuple[FloatArray, Any]:
    """Draw people: columns spread over their ranges, and targets that depend on them with weights 1.2, -0.6, ...

    Returns their values, a row for each person, and their targets (None if the collection has none).
    """
    document, d = collection.document(), len(collection.estimate_model.columns)
    how = document["record"]
    if collection.model["kind"] == "marginals":
        return (rng.random((n, d)) < np.linspace(0.2, 0.8, d)).astype(np.float64), None
    if how is None:  # the record is a point of the unit ball times the label
        rows = rng.normal(size=(n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        pull = np.where(np.arange(d) % 2, -1.0, 1.5)
        return rows * np.where(rng.random(n) < _share(rows @ pull), 1.0, -1.0)[:, None], None
    unit = rng.uniform(-how["clip"], how["clip"], (n, d))
    X = np.asarray(how["centre"]) + np.asarray(how["scale"]) * unit
    pull = np.where(np.arange(d) % 2, -0.6, 1.2)
    if "target" in how:
        centre, half = how["target"]
        return X, centre + half * np.clip((unit @ pull) / (2.0 * d) + rng.normal(0.0, 0.2, n), -1.0, 1.0)
    if "classes" in how:
        k = len(how["classes"])
        noisy = unit @ pull + rng.logistic(size=n)
        ends = np.linspace(-1.0, 1.0, k + 1)[1:-1] * (k > 2)
        labels = np.array(how["classes"], dtype=object)
        return X, labels[np.searchsorted(ends, noisy)]
    return X, None


def _share(margin: FloatArray) -> FloatArray:
    share: FloatArray = 1.0 / (1.0 + np.exp(-margin))
    return share


def device_records(collection: Collection, X: FloatArray, y: Any = None) -> FloatArray:
    """Return every person's record, as their device would compute it."""
    how = collection.document()["record"]
    if how is None:
        return np.asarray(X, np.float64)
    rows: FloatArray = np.clip((X - np.asarray(how["centre"])) / np.asarray(how["scale"]), -how["clip"], how["clip"])
    length = np.maximum(np.sqrt((rows**2).sum(axis=1)), 1e-300)
    rows = rows * np.minimum(1.0, how["row_norm"] / length)[:, None]
    rows = np.column_stack([rows, *(np.full(len(rows), c) for c in how["constant"])]) / how["divide_by"]
    if "target" in how:
        centre, half = how["target"]
        rows = np.column_stack([rows, np.clip((np.asarray(y, np.float64) - centre) / half, -1.0, 1.0)])
    if "classes" in how:
        members = np.column_stack([np.array([label == c for label in y]) for c in how["classes"]])
        signs = np.where(members, 1.0, -1.0)
        rows = rows * signs[:, 1:] if len(how["classes"]) == 2 else np.column_stack([rows, signs])
    return rows


def report_batches(
    collection: Collection, n: int, size: int, rng: np.random.Generator, source: RandomSource
) -> Iterator[Reports]:
    """Draw ``n`` people and their reports, ``size`` at a time."""
    for start in range(0, n, size):
        X, y = draw_people(collection, min(size, n - start), rng)
        yield collection.task.reports(device_records(collection, X, y), source)


def store_entry(collection: Collection, reports: Reports) -> Entry:
    """Return reports with fresh random ids, as a store takes them."""
    halves = np.frombuffer(os.urandom(16 * len(reports.index)), [("key", "<i8"), ("secret", "<u8")])
    cells = reports.index * collection.task.n_levels + reports.bit.astype(np.int64)
    return Entry(collection.digest, halves["key"].copy(), halves["secret"].copy(), cells)


def packed_body(collection: Collection, reports: Reports) -> bytes:
    """Return reports with fresh random ids as one packed body."""
    return pack(collection.digest, os.urandom(16 * len(reports.index)), reports.index, reports.bit.astype(np.uint8))


class Sender:
    """A connection to a collection's address, kept open between requests; batches need the operator's secret."""

    def __init__(self, url: str, batch_secret: str | None = None) -> None:
        self._parts = urlsplit(url)
        self._headers = {"Content-Type": PACKED}
        if batch_secret is not None:
            self._headers["Authorization"] = f"Bearer {batch_secret}"
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(self._parts.netloc, timeout=60)

    def send(self, body: bytes) -> tuple[int, bytes]:
        """Send packed reports; returns the status and the answer."""
        path = f"{self._parts.path}/reports"
        try:
            self._connection.request("POST", path, body, self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RunError(f"the collector at {self._parts.netloc} cannot be reached ({error}).") from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

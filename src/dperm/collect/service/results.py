"""The published estimate: means with their errors, the model with intervals, and the privacy cost of a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.errors import TooFewPeople, Unsupported
from dperm.solvers.local import Counts

__all__ = ["MOST_LISTED", "estimate_document"]

#: statistics up to which an estimate lists every mean
MOST_LISTED = 4096


def estimate_document(collection: Collection, counts: Counts) -> dict[str, Any]:
    """Return the estimate from counts as plain data for JSON."""
    task = collection.task
    model, reason = None, None
    try:
        model = collection.estimate_model.fit(counts)
    except TooFewPeople as error:
        error.option = None  # an option of estimators in Python, which a collection does not have
        reason = str(error)
    except Unsupported as error:
        reason = str(error)
    return {
        "name": collection.name,
        "version": collection.version,
        "hash": collection.digest,
        "n": counts.n_people,
        "model": model,
        "reason": reason,
        "statistics": _statistics(collection, counts),
        "privacy": {
            "epsilon": task.epsilon,
            "epsilon_realised": task.bit.epsilon_realised,
            "delta": 0.0,
            "unit": "one person, who reports once for this collection",
            "view": "everyone, the collector included",
            "statement": (
                f"for any two records of a person, every report is at most e^{task.epsilon:g} times as likely under "
                "one as under the other; reports about the same facts in other collections add their epsilon."
            ),
        },
        "poisoning": _poisoning(collection, counts),
    }


def _statistics(collection: Collection, counts: Counts) -> dict[str, Any]:
    task = collection.task
    out: dict[str, Any] = {
        "size": task.sketch.size,
        "covariance": "diagonal: every person answers one statistic, so the errors of different means are independent",
    }
    if task.sketch.size > MOST_LISTED:
        return {**out, "left_out": f"more than {MOST_LISTED} statistics are not listed; the counts hold all of them"}
    means, variances = task.means(counts)
    asked = counts.n > 0
    return {
        **out,
        "n": counts.n.tolist(),
        "mean": [float(m) if yes else None for m, yes in zip(means, asked, strict=True)],
        "variance": [float(v) if yes else None for v, yes in zip(variances, asked, strict=True)],
    }


def _poisoning(collection: Collection, counts: Counts) -> dict[str, Any]:
    """How far one forged report can move a mean. The noise weakens honest reports, but not forged ones."""
    task = collection.task
    asked = counts.n > 0
    width = np.asarray(task.sketch.high - task.sketch.low)[asked]
    moves = width * float(task.bit.decoded[-1]) / np.maximum(counts.n[asked], 1)
    return {
        "one_fake_moves_a_mean_by_at_most": float(moves.max()) if moves.size else None,
        "statement": (
            "m forged reports move the mean of a statistic that n people answered by at most (m / n) times its width "
            f"times {float(task.bit.decoded[-1]):.4g}; one-time tokens limit m to the number of tokens issued."
        ),
    }

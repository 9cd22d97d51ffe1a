"""The published estimate: means with their errors, the model with intervals, and the privacy cost of a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.collect.description import Collection
from dperm.collect.draws import DrawTest, forged_weight, trimmed_counts, unmarked_weight
from dperm.collect.questions import question_text
from dperm.errors import TooFewPeople, Unsupported
from dperm.solvers.local import Counts
from dperm.solvers.local.quadratic import FLAT, OUTSIDE

__all__ = ["MOST_LISTED", "estimate_document"]

#: statistics up to which an estimate lists every mean
MOST_LISTED = 4096
_TOO_LARGE = "the weights that fit the counts best are larger than the description allows"


def estimate_document(collection: Collection, counts: Counts) -> dict[str, Any]:
    """Return the estimate from counts as plain data for JSON."""
    task = collection.task
    draws = DrawTest(task, counts)
    model, reason = _fitted(collection, counts, draws.suspicious)
    tested = draws.to_dict()
    for one in tested["most_drawn"]:
        one["question"] = question_text(collection, one["statistic"])
    return {
        "name": collection.name,
        "version": collection.version,
        "hash": collection.digest,
        "n": counts.n_people,
        "model": model,
        "reason": reason,
        "suspicious": draws.suspicious,
        "draws": tested,
        "trimmed": _trimmed(collection, counts, {"model": model, "reason": reason}),
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


def _for_readers(model: dict[str, Any], marked: bool) -> dict[str, Any]:
    """The model with a reason against intervals that says something to people who did not set the collection up."""
    reason = model.get("intervals_reason")
    if reason not in (FLAT, OUTSIDE) or (reason == FLAT and not marked):
        return model
    said = "the counts contradict each other, as made-up reports can make them" if marked else _TOO_LARGE
    return {**model, "intervals_reason": said}


def _fitted(collection: Collection, counts: Counts, marked: bool) -> tuple[dict[str, Any] | None, str | None]:
    """The model, or the reason why there is none."""
    try:
        return _for_readers(collection.estimate(counts), marked), None
    except TooFewPeople as error:
        error.option = None  # an option of estimators in Python, which a collection does not have
        return None, str(error)
    except Unsupported as error:
        return None, str(error)


def _trimmed(collection: Collection, counts: Counts, plain: dict[str, Any]) -> dict[str, Any]:
    """The estimate without the surplus of questions that were answered too often."""
    kept = trimmed_counts(collection.task, counts)
    removed = counts.n - kept.n
    if not removed.any():
        return {"removed": 0, **plain, "statement": "nothing was left out: this is the estimate itself."}
    model, reason = _fitted(collection, kept, marked=True)
    return {
        "removed": int(removed.sum()),
        "model": model,
        "reason": reason,
        "statement": (
            f"{int(removed.sum()):,} reports are left out, which {int((removed > 0).sum())} of the questions had "
            "beyond what their public probability explains. Intervals cover random errors, not made-up reports."
        ),
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
    gain = float(task.bit.decoded[-1])
    moves = width * gain / np.maximum(counts.n[asked], 1)
    half = np.asarray(task.sketch.high - task.sketch.low) / 2.0
    percent = forged_weight(0.01, task.probabilities) * half * (gain + 1.0)
    unmarked = unmarked_weight(counts.n_people, task.probabilities) * half * (gain + 1.0)
    return {
        "one_fake_moves_a_mean_by_at_most": float(moves.max()) if moves.size else None,
        "one_percent_on_one_statistic_moves_its_mean_by_at_most": float(percent.max()),
        "unmarked_on_one_statistic_moves_its_mean_by_about": float(unmarked.max()) if counts.n_people else None,
        "statement": (
            "m forged reports move the mean of a statistic that n people answered by at most (m / n) times its width "
            f"times {gain:.4g}; one-time tokens limit m to the number of tokens issued. "
            "A few forged reports on one statistic are not told from chance, and are not in the intervals."
        ),
    }

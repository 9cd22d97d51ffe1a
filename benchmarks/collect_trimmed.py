"""How far made-up reports on one question move the estimate and the trimmed one; prints the table of docs/collect.md.

python benchmarks/collect_trimmed.py

Collection k of 20 has people and noise of seed k (insecure, so that everybody gets the same table). Reports are made up
on question 0, the product of target and ``seconds``, whose honest mean is positive: answer 1 pulls it away from the
middle of its range, answer 0 towards the middle and beyond.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from dperm.collect import Collection, simulate
from dperm.collect.draws import DrawTest
from dperm.errors import InsecureSeedWarning
from dperm.privacy import RandomSource
from dperm.solvers.local import Counts

#: the collection of docs/collect.md
SPEED = {
    "kind": "logistic",
    "epsilon": 1.0,
    "names": ["seconds", "mobile"],
    "bounds": {"features": [[0.0, 0.0], [10.0, 1.0]]},
    "classes": ["left", "stayed"],
    "degree": 2,
}
#: made-up reports as a share of all reports
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.5)
_BATCH = 50_000


def honest_counts(one: Collection, people: int, seed: int) -> Counts:
    """Counts of simulated honest people."""
    counts = one.task.no_counts()
    for made in simulate.report_batches(one, people, _BATCH, np.random.default_rng(seed), RandomSource(seed)):
        counts += one.task.count(made)
    return counts


def with_made_up(counts: Counts, question: int, answer: int, share: float) -> Counts:
    """The counts with made-up reports that are this share of all reports, on one question with one answer."""
    answers = counts.by_answer.copy()
    answers[question, answer] += round(counts.n_people * share / (1.0 - share))
    return Counts(counts.task, answers.sum(axis=1), np.ascontiguousarray(answers[:, 1]), counts.secure)


def scaled(one: Collection, counts: Counts, trimmed: bool) -> np.ndarray:
    """Coefficients and intercept of columns scaled to [-1, 1], so that their errors can be compared and added."""
    found, half = one.estimate(counts, trimmed=trimmed), np.array([5.0, 0.5])
    coef = np.array(found["coef"][0])
    return np.array([*(coef * half), found["intercept"][0] + coef @ half])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--collections", type=int, default=20)
    parser.add_argument("--people", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--question", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", InsecureSeedWarning)
    one = Collection("speed", SPEED)
    print("| people | answer | share | marked | seconds: estimate | trimmed | moved: estimate | trimmed |")
    print("|---|---|---|---|---|---|---|---|")
    for people in given.people:
        honest = [honest_counts(one, people, seed) for seed in range(given.collections)]
        truth = np.array([scaled(one, counts, False) for counts in honest])
        for share in SHARES:
            for answer in (0, 1) if share else (None,):
                forged = [with_made_up(counts, given.question, answer or 0, share) for counts in honest]
                marked = sum(DrawTest(one.task, counts).suspicious for counts in forged)
                found = [np.array([scaled(one, counts, yes) for counts in forged]) for yes in (False, True)]
                seconds = [np.median(values[:, 0]) / 5.0 for values in found]
                moved = [np.median(np.linalg.norm(values - truth, axis=1)) for values in found]
                print(
                    f"| {people:,} | {'' if answer is None else answer} | {100 * share:g} % | "
                    f"{marked} of {len(honest)} | {seconds[0]:z.2f} | {seconds[1]:z.2f} | {moved[0]:.2f} | "
                    f"{moved[1]:.2f} |"
                )


if __name__ == "__main__":
    main()

"""Determinism: does the same table give the same result, and does noise repeat between processes?"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.exact_repeats import epsilon_of_constants, p_value_of_repeats, runs_for_constants
from dperm.audit.result import CONSTANT, AttackResult, Verdict
from dperm.types import FloatArray

__all__ = ["DeterminismAttack"]

#: runs in forked processes and after seeding: disjoint pairs enough beside the other runs
_N_AGAIN = 16
#: runs that show whether results differ: where they do, nothing repeats and the other runs are not made
_LOOK = 2
#: fewest runs on each table once a repetition was seen, if there is little time
_FEWEST_AGAIN = 40
#: tests that share the confidence: constants, new processes, forked processes, seeded generators
_N_TESTS = 4
_SEED = 12345


class DeterminismAttack(Attack):
    """Looks for results that repeat exactly: in one process, in new ones, in forked ones, after seeding."""

    name: ClassVar[str] = "determinism"
    about: ClassVar[str] = "the same result twice; the same noise in new or forked processes, or after seeding"
    share: ClassVar[float] = 0.5
    fewest: ClassVar[int] = 8
    advice: ClassVar[str] = (
        "The noise repeats, so that it can be taken off again. Draw fresh noise in every run, from a generator "
        "that is not seeded with a fixed number."
    )

    def run(self, context: AttackContext) -> AttackResult:
        """Compare results bit for bit."""
        pool, (epsilon, delta) = context.pool, context.claim.tested
        each = 1.0 - (1.0 - context.confidence) / _N_TESTS
        pair = context.pairs[0]
        n_runs = min(runs_for_constants(epsilon, delta, each), max(context.n_runs // 2, _FEWEST_AGAIN))
        one, two = pool.outputs_of([pair.first, pair.second], _LOOK)
        if _all_equal(one) and _all_equal(two):
            one, two = _with_more(context, one, two, n_runs)
        if _all_equal(one) and _all_equal(two):
            if np.array_equal(one[0], two[0]):
                sentence = "The result never changes, on two different tables either."
                return AttackResult(self.name, Verdict.NOTHING, sentence, epsilon=0.0, detail={CONSTANT: True})
            found = epsilon_of_constants(n_runs, delta, each)
            return AttackResult(
                self.name,
                Verdict.VIOLATION if found > epsilon else Verdict.WEAKNESS,
                f"{n_runs} runs on one table gave the same result, bit for bit, and another one on its neighbour: "
                "there is no fresh noise.",
                epsilon=found,
                method="exact repeats",
            )
        repeats = (
            (Verdict.VIOLATION, "every new process makes the same noise", _equal_pairs(*context.first_runs[:2])),
            (
                Verdict.WEAKNESS,
                "forked processes make the same noise, so that their results differ by no noise at all",
                _repeats(lambda n: pool.forked(pair.first, n)),
            ),
            (
                Verdict.WEAKNESS,
                "the noise repeats if a program seeds the global generator of Python, numpy or torch",
                _repeats(lambda n: pool.seeded(pair.first, _SEED, n)),
            ),
        )
        if any(n_equal for _, _, n_equal in repeats):
            one, two = _with_more(context, one, two, n_runs)
        n_different = _different_pairs(one)  # all the other runs are on this table too: one law
        again = [
            (verdict, what)
            for verdict, what, n_equal in repeats
            if p_value_of_repeats(n_equal, n_different) <= 1.0 - each
        ]
        if again:
            worst = Verdict.worst(verdict for verdict, _ in again)
            text = "; ".join(what for _, what in again)
            return AttackResult(self.name, worst, f"{text[0].upper()}{text[1:]}.", method="exact repeats")
        return AttackResult(self.name, Verdict.NOTHING, "Results differ between runs, processes and seeds.")


def _all_equal(outputs: FloatArray) -> bool:
    return bool((outputs == outputs[0]).all())


def _different_pairs(outputs: FloatArray) -> int:
    """Return the number of disjoint pairs of runs if all of them differ, else 0: then repeats prove nothing."""
    even = len(outputs) // 2 * 2
    differ = (outputs[:even:2] != outputs[1:even:2]).any(axis=1)
    return len(differ) if differ.all() else 0


def _equal_pairs(one: FloatArray, two: FloatArray) -> int:
    """Return the number of pairs of runs if all of them are equal, else 0."""
    return len(one) if (one == two).all() else 0


def _repeats(make: Callable[[int], FloatArray | None]) -> int:
    """Return the number of disjoint pairs of runs if all of them are equal, else 0; also where there are no runs."""
    look = make(_LOOK)
    if look is None or not _all_equal(look):
        return 0
    more = make(_N_AGAIN - _LOOK)
    assert more is not None
    outputs = np.concatenate([look, more])
    return _equal_pairs(outputs[::2], outputs[1::2])


def _with_more(context: AttackContext, one: FloatArray, two: FloatArray, n_runs: int) -> tuple[FloatArray, FloatArray]:
    """Return the runs on both tables of the first pair with as many more as are missing."""
    missing = n_runs - len(one)
    if missing <= 0:
        return one, two
    pair = context.pairs[0]
    more = context.pool.outputs_of([pair.first, pair.second], missing)
    return np.concatenate([one, more[0]]), np.concatenate([two, more[1]])

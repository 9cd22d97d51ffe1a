"""What leaks beside the vector: attributes, warnings, printed text and errors without noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.bounds import clopper_pearson_bound
from dperm.audit.exact_repeats import epsilon_of_constants, runs_for_constants
from dperm.audit.result import AttackResult, Verdict
from dperm.audit.tables import TablePair

__all__ = ["SideChannelAttack"]

#: pairs of tables that are looked at: features, target, and values outside the declared range
_N_PAIRS = 4
#: fewest runs on each table: one says what there is, two show whether it changes
_LOOK = 3
#: most runs on each table after a suspicion, if more were not planned: large epsilons would need millions
_MOST_AGAIN = 100
#: values that change in some runs only are tested one by one; the pilot half of the runs picks these few
_MOST_TESTED = 4

#: values for which runs suffice; of more values each has less of the confidence, and more runs would be needed
_MOST_VALUES = 1000
#: tests of each pair of tables that share its confidence: constants and events
_N_TESTS = 2

_REPEATS = "exact repeats"

_ERROR = "error"

Seen = list[dict[str, str]]


@dataclass(frozen=True)
class _Leak:
    epsilon: float
    what: str
    method: str
    error: bool


class SideChannelAttack(Attack):
    """Compares everything that can be seen of a run, leaf by leaf, on two neighbouring tables.

    A value that never changes on one table and differs on its neighbour is an un-noised function of the data. A value
    that changes in some runs is tested as an event, chosen on one half of the runs and counted on the other.
    """

    name: ClassVar[str] = "side-channels"
    about: ClassVar[str] = "attributes, warnings, printed text and errors that follow the data without noise"
    share: ClassVar[float] = 1.0
    fewest: ClassVar[int] = 2 * _N_PAIRS * _LOOK
    advice: ClassVar[str] = (
        "Something beside the noisy result follows the data without noise. Do not return, print or keep it, or "
        "compute it from the noisy result."
    )

    def run(self, context: AttackContext) -> AttackResult:
        """Compare what is seen."""
        epsilon, delta = context.claim.tested
        pairs = _spread(context.pairs, _N_PAIRS)
        each = 1.0 - (1.0 - context.confidence) / len(pairs)
        needed = runs_for_constants(epsilon, delta, 1.0 - (1.0 - each) / (_N_TESTS * _MOST_VALUES))
        # more runs than needed are not made; half of them choose the events
        n_runs = max(min(2 * needed, context.n_runs // (2 * len(pairs))), _LOOK)
        enough = min(needed + 1, max(n_runs, _MOST_AGAIN))  # the first run only says what there is
        leaks, n_values, n_made = [], 0, n_runs
        for pair in pairs:
            one, two = _observed(context, pair, n_runs)
            n_values = max(n_values, len(one[0]), len(two[0]))
            events = _events(one, two, delta, each)
            while len(one) < enough and _differing(one, two):
                # a suspicion is worth more time; events are tested without these runs, which depend on the others
                more = _observed(context, pair, min(len(one), enough - len(one)))
                one, two = one + more[0], two + more[1]
            n_made = max(n_made, len(one))
            failed = any(_ERROR in seen for seen in (*one, *two))
            if failed:  # nothing else can be compared
                one, two = _errors(one), _errors(two)
                events = _events(one[:n_runs], two[:n_runs], delta, each)
            for found, what, method in (_constants(one, two, delta, each), events):
                leaks.append(_Leak(found, f"{what}, when {pair.changed}", method, failed))
        worst = max(leaks, key=lambda leak: (leak.epsilon > epsilon and not leak.error, leak.epsilon))
        if worst.epsilon > epsilon and not worst.error:
            return AttackResult(self.name, Verdict.VIOLATION, f"{worst.what}.", worst.epsilon, worst.method)
        if worst.epsilon > epsilon:
            sentence = f"{worst.what}: harmless only if errors are shown to nobody but the owner of the data."
            return AttackResult(self.name, Verdict.WEAKNESS, sentence)
        if worst.epsilon > 0.0 and worst.method == _REPEATS:
            sentence = f"{worst.what}; {n_made} runs are too few to prove more at this epsilon."
            # an error does not count as evidence, as above
            return AttackResult(self.name, Verdict.WEAKNESS, sentence, None if worst.error else worst.epsilon, _REPEATS)
        sentence = f"{n_values} numbers, texts and warnings were compared on {len(pairs)} pairs of tables."
        return AttackResult(self.name, Verdict.NOTHING, sentence, worst.epsilon, worst.method)


def _observed(context: AttackContext, pair: TablePair, n_runs: int) -> list[Seen]:
    return context.pool.observe([pair.first, pair.second], n_runs)


def _errors(side: Seen) -> Seen:
    return [{_ERROR: seen.get(_ERROR, "none")} for seen in side]


def _spread(pairs: Sequence[TablePair], n: int) -> list[TablePair]:
    """Return the first pairs, and one outside the declared range if there is one."""
    outside = [pair for pair in pairs if pair.outside][:1]
    return [*[pair for pair in pairs if not pair.outside][: n - len(outside)], *outside]


def _constants(one: Seen, two: Seen, delta: float, confidence: float) -> tuple[float, str, str]:
    """Return the epsilon proved by values that are constant on each table and differ between them."""
    names, differing = sorted({*one[0], *two[0]}), _differing(one, two)
    if not differing:
        return 0.0, "", _REPEATS
    one, two = one[1:], two[1:]
    proved = epsilon_of_constants(min(len(one), len(two)), delta, 1.0 - (1.0 - confidence) / (_N_TESTS * len(names)))
    shown = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
    return proved, f"Without noise: {shown}, always the same on one table and different on its neighbour", _REPEATS


def _differing(one: Seen, two: Seen) -> list[str]:
    """Return the values that never change on either table and differ between them."""
    found = []
    for name in sorted({*one[0], *two[0]}):  # the first runs say what there is; the others are compared
        first, second = ({seen.get(name) for seen in side[1:]} for side in (one, two))
        if len(first) == len(second) == 1 and first != second:
            found.append(name)
    return found


def _events(one: Seen, two: Seen, delta: float, confidence: float) -> tuple[float, str, str]:
    """Return the epsilon proved by a value that is frequent on one table and rare on the other."""
    half = len(one) // 2
    candidates = []
    for name in sorted({name for seen in (*one[:half], *two[:half]) for name in seen}):
        counts = [Counter(seen.get(name) for seen in side[:half]) for side in (one, two)]
        value = max(counts[0] | counts[1], key=lambda v, c=counts: abs(c[0][v] - c[1][v]))  # type: ignore[misc]
        candidates.append((abs(counts[0][value] - counts[1][value]), name, value))
    best = (0.0, "", "clopper-pearson")
    tested = sorted(candidates, key=lambda c: -c[0])[:_MOST_TESTED]
    share = 1.0 - (1.0 - confidence) / (_N_TESTS * max(len(tested), 1))
    for _, name, value in tested:
        hits = [[float(seen.get(name) == value) for seen in side[half:]] for side in (one, two)]
        if len({*hits[0], *hits[1]}) < 2:
            continue
        bound = clopper_pearson_bound(*hits, delta=delta, confidence=share)
        if bound.epsilon > best[0]:
            frequent = [sum(side) / len(side) for side in hits]
            best = (
                bound.epsilon,
                f"{name} has the same value in {frequent[0]:.0%} of the runs on one table and in {frequent[1]:.0%} on "
                "its neighbour",
                bound.method,
            )
    return best

"""Privacy amplification by shuffling: local reports in random order reveal far less about each person.

Every report keeps its own guarantee, which trusts nobody. If a third party removes all identifiers and shuffles the
reports before anybody sees them, the collector learns far less about a person. Proof: ``shuffle.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import stats

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.accounting.consistency import refuse_contradiction
from dperm.privacy.accounting.guarantee import Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.local.one_bit import LATTICE
from dperm.types import FloatArray
from dperm.validation import is_finite_number, is_number, whole

__all__ = ["LocalReport", "ShuffleBound", "Shuffled", "closed_form_epsilon"]

_Blocks = tuple[FloatArray, FloatArray, FloatArray]

#: up to this number the rounding of binomial probabilities was measured
MOST_PEOPLE = 10**9

#: relative error allowed for a binomial probability in double precision; the tests measure it
ROUNDING = 1e-9
_N_BLOCKS = (200, 60)  # for one statistic, and for each of several
_N_SHARES = 16  # groups of similar shares
_SPREAD = 14.0  # standard deviations that the blocks cover
_BISECTIONS = 60  # more than doubles can resolve


class LocalReport(Protocol):
    """A local report with a public lattice of probabilities: :class:`OneBit`, :class:`FewLevels`, categories."""

    @property
    def epsilon(self) -> float:
        """Epsilon of one report."""

    @property
    def ratio(self) -> tuple[int, int]:
        """The largest ratio of two people's probabilities of an answer, as two whole numbers."""

    @property
    def least(self) -> tuple[int, ...]:
        """Number of words, of 2^32, that give each answer for every value."""

    @property
    def extremes(self) -> tuple[int, int]:
        """Number of words, of 2^32, that give one of a fixed set of answers, for each of two extreme values."""


@dataclass(frozen=True)
class ShuffleBound:
    """Epsilon at ``delta`` of everything that leaves the shuffler, for one person.

    Attributes
    ----------
    epsilon : float
        An upper bound; this may be claimed.
    lower : float
        A lower bound: the exact epsilon of one explicit pair of data sets.
    closed_form : float
        The bound of Feldman, McMillan and Talwar (2021), Theorem 3.1, for statistics drawn in private, else infinity.
    """

    epsilon: float
    delta: float
    lower: float
    closed_form: float

    def __post_init__(self) -> None:
        refuse_contradiction(f"epsilon of shuffled reports at delta {self.delta:g}", self.lower, self.epsilon)

    @property
    def looseness(self) -> float:
        """By how much the upper bound may exceed the true worst case."""
        return self.epsilon - self.lower


def closed_form_epsilon(epsilon: float, n: int, delta: float) -> float:
    """Return the closed form of Feldman, McMillan and Talwar (2021), Theorem 3.1, for any report with this epsilon.

    At most ``epsilon``, which holds without a shuffler; ``epsilon`` itself where the theorem does not apply.

    >>> round(closed_form_epsilon(1.0, 1_000_000, 1e-6), 4)
    0.0235
    """
    _check(n, delta)
    if not is_finite_number(epsilon) or epsilon <= 0.0:
        raise InvalidBudget(f"epsilon of a report must be a positive finite number, not {epsilon!r}.")
    epsilon, delta = float(epsilon), float(delta)  # lower precision would break the bound
    if epsilon > math.log(n / (16.0 * math.log(2.0 / delta))):
        return epsilon
    ratio = math.exp(epsilon)
    noise = 8.0 * math.sqrt(ratio * math.log(4.0 / delta) / n) + 8.0 * ratio / n
    return min(epsilon, math.log1p(math.tanh(epsilon / 2.0) * noise))


@dataclass(frozen=True)
class Shuffled:
    """Reports of ``n`` people that a third party shuffled and stripped of all identifiers.

    Guarantee
    ---------
    The reports in random order are released to the collector and to everyone who gets them from it. Assumes that
    ``shuffler`` shuffles and does not reveal who sent what, that ``n`` people follow the protocol, and that a person
    reports once. Without the shuffler every report still has its own epsilon.

    Parameters
    ----------
    report : LocalReport
        The mechanism of every report.
    n : int
        Number of people who follow the protocol, including the protected one.
    shuffler : str
        Who shuffles; named in the assumptions. Must not be the collector.
    collector : str
        Who receives the shuffled reports; named in the assumptions.
    known_shares : tuple of float, optional
        The shares with which statistics are drawn, if others can see *who* drew which one: every person's statistic is
        drawn at random, independently of the others, and then seen. A fixed assignment is not covered: a person who is
        given a rare statistic hides among few others, and the bound is a mean over the draw. Not needed if every
        person draws in private and sends the statistic through the shuffler.

    Examples
    --------
    >>> from dperm.privacy.local.one_bit import OneBit
    >>> mixed = Shuffled(OneBit(1.0), n=1_000_000, shuffler="an independent mixer", collector="us")
    >>> bound = mixed.epsilon(1e-6)
    >>> round(bound.lower, 4), round(bound.epsilon, 4), round(bound.closed_form, 4)
    (0.0028, 0.0035, 0.0235)
    """

    report: LocalReport
    n: int
    shuffler: str
    collector: str
    known_shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check(self.n, 0.5)
        for what in ("shuffler", "collector"):
            if not isinstance(getattr(self, what), str) or not getattr(self, what).strip():
                raise InvalidInput(
                    f"{what} must be a name: amplification requires that shuffler and collector are different."
                )
        plain = [name.strip().lower().removeprefix("the ") for name in (self.shuffler, self.collector)]
        if plain[0] in (plain[1], "collector"):
            raise Unsupported(
                "a collector that shuffles its own reports has seen them, so no amplification can be claimed: name a "
                "third party as the shuffler, or use the epsilon of a single report."
            )
        for part in ("ratio", "least", "extremes"):
            if not hasattr(self.report, part):
                raise Unsupported(
                    f"no numeric bound is proved for shuffled reports of {type(self.report).__name__}; use "
                    "closed_form_epsilon."
                )
        high, low = self.report.ratio
        if sum(self.report.least) * (high + low) < 2 * low * LATTICE:
            raise Unsupported("too few answers are independent of the value for the numeric bound to be proved.")
        if self.known_shares is not None:
            shares = np.asarray(self.known_shares, np.float64)
            if shares.ndim != 1 or not shares.size or not (np.isfinite(shares).all() and (shares > 0.0).all()):
                raise InvalidInput("known_shares must be positive finite numbers, one per statistic.")
            object.__setattr__(self, "known_shares", tuple((shares / shares.sum()).tolist()))

    @property
    def _ratio(self) -> float:
        high, low = self.report.ratio
        return high / low

    @property
    def _own(self) -> float:
        """Share of people whose answer, drawn independently of their value, can hide either of two answers."""
        return (1.0 - sum(self.report.least) / LATTICE) / (self._ratio - 1.0)

    @cached_property
    def _cells(self) -> tuple[tuple[float, float, float], ...]:
        """Per group of statistics with similar shares: the probability to draw one of them, and bounds on a share."""
        if self.known_shares is None:
            return ((1.0, 1.0, 1.0),)
        values, counts = np.unique(np.asarray(self.known_shares), return_counts=True)
        if values.size <= _N_SHARES:
            return tuple((float(v * c), float(v), float(v)) for v, c in zip(values, counts, strict=True))
        grid = np.geomspace(values[0], values[-1] * (1.0 + 1e-12), _N_SHARES + 1)
        grid[0] = values[0]
        place = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, _N_SHARES - 1)
        mass = np.bincount(place, values * counts, minlength=_N_SHARES)
        cells = zip(mass.tolist(), grid[:-1].tolist(), grid[1:].tolist(), strict=True)
        return tuple(cell for cell in cells if cell[0] > 0.0)

    @cached_property
    def _hiding(self) -> list[tuple[float, _Blocks]]:
        """Per cell its weight and a lower bound on the number of others among whom the person's answer hides."""
        weight = self._own * (self._ratio + 1.0)
        return [(weight * likely, self._blocks(2.0 * self._own * share)) for likely, share, _ in self._cells]

    @cached_property
    def _present(self) -> list[tuple[float, _Blocks]]:
        """Per cell its weight and an upper bound on the number of others who answer there."""
        return [(likely, self._blocks(share)) for likely, _, share in self._cells]

    def _blocks(self, chance: float) -> _Blocks:
        return _blocks(self.n - 1, chance, _N_BLOCKS[len(self._cells) > 1])

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at this epsilon."""
        if not epsilon >= 0.0:
            raise InvalidBudget(f"epsilon must be a number >= 0, not {epsilon!r}.")
        if epsilon >= math.log(self._ratio):
            return 0.0
        alpha = (self._ratio - math.exp(epsilon)) / (1.0 + self._ratio)
        total = 0.0
        for weight, (fewest, _, chance) in self._hiding:
            found, rounding = _divergence(fewest, 0.5, alpha, epsilon)
            total += weight * float(chance @ (found + rounding))
        return min(1.0, total)

    def lower_delta(self, epsilon: float) -> float:
        """Return the exact delta at this epsilon of one pair of data sets: no valid bound is smaller.

        Everybody but one person has one extreme value; the person has it too, or the opposite one.
        """
        up, down = (words / LATTICE for words in self.report.extremes)
        worst = 0.0
        # counts the answers of the person's value or the opposite ones; everybody else has either value
        for others, p, q in (
            (down, up, down),
            (up, up, down),
            (1.0 - up, 1.0 - down, 1.0 - up),
            (1.0 - down, 1.0 - down, 1.0 - up),
        ):
            alpha = p - math.exp(min(epsilon, 700.0)) * q
            if alpha <= 0.0:
                continue
            total = 0.0
            for weight, (_, most, chance) in self._present:
                found, rounding = _divergence(most, others, alpha, epsilon)
                total += weight * float(chance @ np.maximum(found - rounding, 0.0))
            worst = max(worst, total)
        return worst

    def epsilon(self, delta: float) -> ShuffleBound:
        """Return bounds on epsilon at this delta."""
        _check(self.n, delta)
        delta = float(delta)
        own = math.log(self._ratio)
        # the theorem requires that nothing is known about who sends which kind of report
        closed = closed_form_epsilon(self.report.epsilon, self.n, delta) if self.known_shares is None else math.inf
        upper = _bisect(self.delta, own, delta, upper=True)
        lower = _bisect(self.lower_delta, own, delta, upper=False)
        return ShuffleBound(min(upper, closed, self.report.epsilon), delta, lower, closed)

    def guarantee(self, delta: float) -> Guarantee:
        """Return the guarantee of the shuffled reports, with its assumptions."""
        bound = self.epsilon(delta)
        return Guarantee(
            epsilon=bound.epsilon,
            delta=delta,
            neighbours=Neighbours.REPLACE_ONE,
            view="transcript",
            assumptions=(
                f"{self.shuffler} shuffles all reports, removes every identifier and time, and does not reveal to "
                f"{self.collector} who sent what",
                f"{self.n} people follow the protocol, each of them reports once",
            ),
            looseness=bound.looseness,
        )


def _blocks(n: int, chance: float, n_blocks: int) -> _Blocks:
    """Split the values of a binomial count into blocks: their ends, and the probability of each."""
    law = stats.binom(n, min(1.0, chance))
    mean, spread = float(law.mean()), max(1.0, float(law.std()))
    cuts = np.rint(np.linspace(mean - _SPREAD * spread, mean + _SPREAD * spread, n_blocks + 1))
    first = np.unique(np.clip(np.concatenate([[0.0], cuts]), 0.0, n))
    last = np.append(first[1:] - 1.0, float(n))
    return first, last, np.diff(law.cdf(first - 1.0), append=1.0)


def _divergence(others: FloatArray, chance: float, alpha: float, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Return delta at ``epsilon`` of B + G against B' + G, and a bound on its rounding error.

    G is the number of ones among ``others`` with this ``chance``; B is 1 with probability p, B' with q, and ``alpha``
    is p - e^epsilon q > 0.
    """
    beta = alpha + math.expm1(epsilon)
    # the likelihood ratio grows with the count: it exceeds e^epsilon from here on
    start = np.floor((others + 1.0) * beta * chance / ((1.0 - chance) * alpha + beta * chance)) + 1.0
    at = alpha * stats.binom.pmf(start - 1.0, others, chance)
    beyond = math.expm1(epsilon) * stats.binom.sf(start - 1.0, others, chance)
    return np.maximum(at - beyond, 0.0), ROUNDING * (at + beyond)


def _bisect(delta_at: Callable[[float], float], most: float, delta: float, *, upper: bool) -> float:
    """Return where a falling ``delta_at`` passes ``delta`` between 0 and ``most``, on the safe side."""
    low, high = 0.0, most
    if delta_at(low) <= delta:
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
        if high - low <= 1e-7 * high:
            break
    return high if upper else low


def _check(n: int, delta: float) -> None:
    whole("the number of people", n, most=MOST_PEOPLE)
    if not is_number(delta) or not 0.0 < delta < 1.0:
        raise InvalidBudget(f"delta of shuffled reports must be a number between 0 and 1, not {delta!r}.")

"""The Gumbel race: exact probabilities on every path, ties, updates, outward rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.mechanisms import selection
from dperm.privacy.mechanisms.selection import LIBM_ERROR, TwoLevelRace, gumbel_race, race_scale
from dperm.privacy.randomness import RandomSource

U64 = np.uint64
SCORES = np.array([0.0, 0.9, -0.4, 1.7, 1.6, 0.3, -2.0])


class Scripted:
    """A source that gives these words first, then those of another source."""

    def __init__(self, words: Any, then: RandomSource | None = None) -> None:
        self.left = [int(w) for w in words]
        self.then = then

    def word(self) -> int:
        if self.left:
            return self.left.pop(0)
        assert self.then is not None, "more random digits were asked for than this race needs"
        return self.then.word()

    def words(self, n: int) -> Any:
        return np.array([self.word() for _ in range(n)], U64)


def settled(scores: Any, scale: float, source: Any) -> int:
    """A race decided entirely by the slow path."""
    words = source.words(len(scores))
    digits = {j: int(word) for j, word in enumerate(words)}
    return selection._compare_exactly(digits, 64, np.asarray(scores, float), scale, source)[0]


def two_level(scores: Any, scale: float) -> TwoLevelRace:
    return TwoLevelRace(np.asarray(scores, float), scale, 1.0, 10.0)


# -------------------------------------------------------------------------------------------------- goodness of fit
def fit(winners: Any, scores: Any, scale: float) -> float:
    expected = special.softmax(np.asarray(scores) / scale) * len(winners)
    observed = np.bincount(winners, minlength=len(scores))
    return float(stats.chisquare(observed, expected).pvalue)


def assert_fits(winners: Any, scores: Any, scale: float) -> None:
    assert fit(winners, scores, scale) > 1e-5
    assert fit(winners, scores, 0.5 * scale) < 1e-9
    assert fit(winners, scores, 1.5 * scale) < 1e-9


@pytest.mark.parametrize("scale", [0.7, 1.0])
def test_dense_race_has_the_right_probabilities(scale: float) -> None:
    source = RandomSource(f"dense {scale}")
    assert_fits([gumbel_race(SCORES, scale, source) for _ in range(12_000)], SCORES, scale)


def test_two_level_race_has_the_right_probabilities() -> None:
    source = RandomSource("two")
    race = two_level(SCORES, 0.8)
    assert race.scale == pytest.approx(0.8, rel=1e-9)
    assert_fits([race.select(source) for _ in range(12_000)], SCORES, 0.8)


def test_slow_path_has_the_right_probabilities() -> None:
    source = RandomSource("settle")
    assert_fits([settled(SCORES, 0.7, source) for _ in range(2500)], SCORES, 0.7)


def test_the_fit_detects_other_noise() -> None:
    # Laplace noise of the same variance, and noise reused for all candidates of a group
    rng = np.random.default_rng(0)
    laplace = rng.laplace(scale=math.pi / math.sqrt(12.0), size=(12_000, SCORES.size))
    assert fit(np.argmax(SCORES / 0.7 + laplace, axis=1), SCORES, 0.7) < 1e-9
    shared = np.repeat(rng.gumbel(size=(12_000, 4)), 2, axis=1)[:, :7]
    assert fit(np.argmax(SCORES / 0.7 + shared, axis=1), SCORES, 0.7) < 1e-9


@pytest.mark.slow
def test_fresh_races_have_the_right_probabilities() -> None:
    source = RandomSource()
    race = two_level(SCORES, 1.0)
    for draw in (lambda: gumbel_race(SCORES, 1.0, source), lambda: race.select(source)):
        winners = [draw() for _ in range(400_000)]
        assert fit(winners, SCORES, 1.0) > 1e-7
        for wrong in (0.97, 1.03):
            assert fit(winners, SCORES, wrong) < 1e-9
    assert fit([settled(SCORES, 1.0, source) for _ in range(40_000)], SCORES, 1.0) > 1e-7


# -------------------------------------------------------------------------------------- the filter decides rightly
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0, 1e3, 1e7])
def test_the_fast_path_agrees_with_the_slow_one(spread: float) -> None:
    rng = np.random.default_rng(1)
    source = RandomSource(f"agree {spread}")
    for _ in range(150):
        scores = spread * rng.normal(size=6)
        words = source.words(6)
        fast = gumbel_race(scores, 0.37, Scripted(words, source))  # type: ignore[arg-type]
        assert fast == settled(scores, 0.37, Scripted(words, source))


def test_extreme_words_are_compared_exactly() -> None:
    extremes = [0, 1, 2**10, 2**33, 2**34 - 1, 2**34, 2**34 + 1, 2**63, 2**64 - 2**40 - 1, 2**64 - 2**40]
    extremes += [2**64 - 2**20, 2**64 - 2**11 - 1, 2**64 - 2**11, 2**64 - 2, 2**64 - 1]
    rng = np.random.default_rng(2)
    for i in range(400):
        words = rng.choice(np.array(extremes, U64), 4)
        scores = rng.normal(size=4) * float(rng.choice([0.0, 1e-12, 1.0, 30.0]))
        outcomes = {
            race(scores, 1.0, Scripted(words, RandomSource(i)))  # type: ignore[arg-type, operator]
            for race in (gumbel_race, settled)
        }
        # the paths may draw different further digits where equal words tie; otherwise they must agree
        if len(np.unique(words)) == 4:
            assert len(outcomes) == 1, (words, scores)
        assert outcomes <= {0, 1, 2, 3}


@pytest.mark.parametrize("word", [0, 1, 2**33, 2**63, 2**64 - 2**39, 2**64 - 1])
def test_forced_ties_get_more_digits(word: int) -> None:
    scores = np.array([0.25, 0.25, 0.25])
    for depth in (1, 3):
        for winner in range(3):
            # equal first words, then equal digits, then one candidate with the smallest last word: it wins
            digits = [[word] * 3] * depth + [[5 if j == winner else 2**63 + j for j in range(3)]]
            source = Scripted([w for level in digits for w in level], RandomSource(0))
            assert gumbel_race(scores, 1.0, source) == winner  # type: ignore[arg-type]
            assert not source.left


def test_equal_draws_are_decided_by_the_scores() -> None:
    source = Scripted([2**63] * 40, RandomSource(0))
    assert gumbel_race(np.array([0.0, 1e-9]), 1.0, source) == 1  # type: ignore[arg-type]
    assert len(source.left) > 20  # a few digits more were enough


def key_error(words: Any) -> tuple[float, float]:
    """Error of the key's elementary functions, and of rounding the word and leaving its further digits out."""
    v = (words.astype(np.float64) + 0.5) * 2.0**-64
    computed = -np.log(-np.log1p(-v))
    libm = rounding = 0.0
    with mpmath.workdps(60):

        def key(x: Any) -> Any:
            return -mpmath.log(-mpmath.log1p(-x))

        for word, at, got in zip(words.tolist(), v.tolist(), computed.tolist(), strict=True):
            centre = key(mpmath.mpf(at))
            libm = max(libm, float(abs(centre - got)))
            ends = [key(mpmath.ldexp(mpmath.mpf(w), -64)) for w in (word, word + 1)]
            rounding = max(rounding, *(float(abs(centre - end)) for end in ends))
    return libm, rounding


def test_the_assumed_error_of_keys_has_a_wide_margin() -> None:
    low, high = int(selection._LOW), int(selection._HIGH)
    rng = np.random.default_rng(3)
    small = (2.0 ** rng.uniform(34, 64, 1500)).astype(U64)
    near_one = (2**64 - (2.0 ** rng.uniform(40.01, 63, 1500)).astype(object)).astype(object)
    edges = np.array([low, low + 1, high - 1, 2**63], object)
    near_one = np.array([int(w) for w in near_one] + edges.tolist(), U64)
    words = np.concatenate([RandomSource(4).words(1500), small, near_one])
    libm, rounding = key_error(words[(words >= U64(low)) & (words < U64(high))])
    assert libm < 66.0 * LIBM_ERROR / 50.0
    assert rounding <= 2.0**-31
    # outside the trusted interval the words themselves say too little
    assert key_error(np.array([2**20], U64))[1] > 2.0**-31


# -------------------------------------------------------------------------------------------------------- two levels
@pytest.mark.parametrize("size", [1, 2, 3, 10, 99, 100, 101, 1500])
def test_updates_leave_the_state_of_a_fresh_build(size: int) -> None:
    rng = np.random.default_rng(size)
    scores = rng.normal(size=size)
    race = TwoLevelRace(scores, 0.01, 3.0, 2.0)
    for _ in range(25):
        changed = rng.choice(size, rng.integers(1, min(size, 40) + 1), replace=False)
        scores[changed] = rng.normal(size=changed.size) * 2.0
        race.update(changed, scores[changed])
    fresh = TwoLevelRace(scores, 0.01, 3.0, 2.0)
    assert state(race) == state(fresh)
    one, two = RandomSource("w"), RandomSource("w")
    winners = [race.select(one) for _ in range(20)]
    assert winners == [fresh.select(two) for _ in range(20)]
    assert max(winners) < size


def state(race: TwoLevelRace) -> list[bytes]:
    return [part.tobytes() for part in (race._parts, race._powers, race._totals, race._tops)]


def test_the_comparison_detects_drift() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=100)
    race, fresh = TwoLevelRace(scores, 0.01, 3.0, 9.0), TwoLevelRace(scores, 0.01, 3.0, 9.0)
    # planted: totals moved by the change of one weight and back, instead of recomputed
    race._totals[0] = (race._totals[0] + 1e3) - 1e3
    assert state(race) != state(fresh)


def log_totals(race: TwoLevelRace) -> Any:
    """Logs of the groups' total weights, with many digits."""
    return [
        mpmath.log(mpmath.mpf(float(total))) + int(top) * mpmath.log(2)
        for total, top in zip(race._totals, race._tops, strict=True)
    ]


@pytest.mark.parametrize(("size", "bound"), [(7, 3.0), (400, 50.0), (10_000, 1.0)])
def test_group_totals_are_within_their_declared_error(size: int, bound: float) -> None:
    rng = np.random.default_rng(size)
    scores = rng.uniform(-1.2, 1.2, size) * bound
    race = TwoLevelRace(scores, 0.02, 1.3, bound)
    clipped = np.clip(scores, -bound, bound)
    worst = 0.0
    with mpmath.workdps(50):
        totals = log_totals(race)
        for group in range(0, len(race._totals), max(1, len(race._totals) // 10)):
            members = clipped[group * race.width : (group + 1) * race.width]
            terms = [mpmath.exp(mpmath.mpf(float(u)) / mpmath.mpf(race.scale)) for u in members]
            worst = max(worst, float(abs(mpmath.log(mpmath.fsum(terms)) - totals[group])))
    assert worst <= race.error
    assert worst > 0.0


def test_two_level_scale_covers_its_error() -> None:
    for sensitivity, multiplier, bound, size in ((0.01, 3.0, 1.0, 100), (1e-4, 40.0, 2.0, 10**4), (1.0, 0.1, 1.0, 5)):
        race = TwoLevelRace(np.zeros(size), sensitivity, multiplier, bound)
        loss = 2 * Fraction(sensitivity) / Fraction(race.scale) + 4 * Fraction(race.error)
        assert loss <= 2 / Fraction(multiplier)
        assert race.scale <= sensitivity * multiplier * (1.0 + 1e-6)
        assert race.scale >= race_scale(sensitivity, multiplier)


def test_two_level_agrees_with_dense_for_many_candidates() -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=500)
    race = TwoLevelRace(scores, 1.0, 1.0, 10.0)
    source = RandomSource("many")
    winners = np.array([race.select(source) for _ in range(6000)])
    order = np.argsort(scores)
    parts = np.array_split(order, 12)
    weights = special.softmax(scores)
    expected = np.array([weights[part].sum() for part in parts]) * winners.size
    where = np.empty(500, int)
    for i, part in enumerate(parts):
        where[part] = i
    observed = np.bincount(where[winners], minlength=12)
    assert stats.chisquare(observed, expected).pvalue > 1e-5
    sharper = special.softmax(2 * scores)
    wrong = np.array([sharper[part].sum() for part in parts]) * winners.size
    assert stats.chisquare(observed, wrong).pvalue < 1e-9


def test_updates_outside_the_race_are_refused() -> None:
    race = TwoLevelRace(np.zeros(1025), 1.0, 1.0, 1.0)  # in groups of two, the last padded
    before = state(race)
    for indices in ([1025], [1026], [-1], [3, 1027]):
        with pytest.raises(InvalidInput, match="not in the race"):
            race.update(np.array(indices), np.ones(len(indices)))
    with pytest.raises(InvalidInput, match="finite"):
        race.update(np.array([1, 0]), np.array([0.5, math.nan]))
    assert state(race) == before
    race.update(np.array([], int), np.array([]))
    assert state(race) == before
    race.update(np.array([1024, 1024]), np.array([0.5, 0.0]))  # of two scores for one the last counts
    assert state(race) == before


# ------------------------------------------------------------------------------------------------ drawing by inversion
def weights(rng: Any, n: int, spread: float) -> tuple[Any, Any]:
    return rng.uniform(1.0, 2.0, n), np.rint(rng.normal(size=n) * spread).astype(np.int64)


def exact_draw(parts: Any, powers: Any, point: Fraction) -> int:
    """The index by definition, in fractions."""
    exact = [Fraction(float(part)) * Fraction(2) ** int(power) for part, power in zip(parts, powers, strict=True)]
    target, below = point * sum(exact), Fraction(0)
    for k, weight in enumerate(exact):
        below += weight
        if target < below:
            return k
    raise AssertionError("the point is not below one.")


@pytest.mark.parametrize("spread", [0.0, 3.0, 60.0, 2000.0])
def test_drawing_follows_its_definition_on_both_paths(spread: float) -> None:
    rng, source = np.random.default_rng(7), RandomSource(f"draw {spread}")
    for n in (1, 2, 5, 40):
        parts, powers = weights(rng, n, spread)
        for word in [*source.words(40).tolist(), 0, 1, 2**63, 2**64 - 1]:
            digits = source.words(40).tolist()
            # all digits that will ever be asked for
            point = sum((Fraction(w, 2 ** (64 * (i + 1))) for i, w in enumerate([word, *digits])), Fraction(0))
            expected = exact_draw(parts, powers, point)
            assert selection._draw(parts, powers, word, Scripted(digits)) == expected  # type: ignore[arg-type]
            assert selection._draw_exactly(parts, powers, word, Scripted(digits)) == expected  # type: ignore[arg-type]


def test_points_on_a_boundary_get_more_digits() -> None:
    parts, powers = np.array([1.0, 1.0, 2.0]), np.zeros(3, np.int64)
    for word, first, then in ((2**62, 0, 1), (2**63, 1, 2)):  # exactly a quarter and a half of the total
        assert selection._draw(parts, powers, word, Scripted([5])) == then  # type: ignore[arg-type]
        assert selection._draw(parts, powers, word - 1, Scripted([2**64 - 5])) == first  # type: ignore[arg-type]
        with pytest.raises(AssertionError, match="more random digits"):
            selection._draw(parts, powers, word, Scripted([]))  # type: ignore[arg-type]
    # a weight that doubles cannot see next to the others is drawn, with its own probability
    tiny, low = np.array([1.0, 1.0, 1.0]), np.array([0, -3000, 0])
    source = Scripted([0] * 46 + [2**63] + [0] * 8)
    assert selection._draw(tiny, low, 2**63, source) == 1  # type: ignore[arg-type]


def test_a_filter_without_its_margin_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from dperm.kernels import race as kernels

    def hasty(parts: Any, powers: Any, point: float) -> int:
        shares = np.cumsum(parts * 2.0**powers)
        return int(np.searchsorted(shares, point * shares[-1], side="right"))

    parts, powers = np.array([1.0, 1.0, 2.0]), np.zeros(3, np.int64)
    below = Scripted([2**64 - 5])
    monkeypatch.setattr(kernels, "locate", hasty)
    assert selection._draw(parts, powers, 2**62 - 1, below) != 0  # type: ignore[arg-type]


def test_group_and_member_are_drawn_from_different_words() -> None:
    race = TwoLevelRace(np.zeros(1024), 1.0, 1.0, 1.0)  # groups of two
    assert race.width == 2
    for group, member in ((0, 0), (0, 1), (511, 0), (511, 1), (300, 1)):
        words = [((2 * group + 1) << 64) // 1024, ((2 * member + 1) << 64) // 4]
        assert race.select(Scripted(words)) == 2 * group + member  # type: ignore[arg-type]


def test_weights_never_overflow_or_vanish() -> None:
    scores = np.array([-1.0, 1.0, 0.0, 0.999])
    race = TwoLevelRace(scores, 1e-7, 1e-4, 1.0)  # logits up to 10^11
    assert np.isfinite(race._totals).all()
    assert (race._totals >= 1.0).all()
    source = RandomSource("sharp")
    assert {race.select(source) for _ in range(50)} == {1}
    with pytest.raises(Unsupported, match="too large for their sensitivity"):
        TwoLevelRace(scores, 1e-12, 1e-8, 1.0)


# ------------------------------------------------------------------------------------------------- outward rounding
def scale_is_short(scale_of: Callable[[float, float, float], float]) -> bool:
    """Whether 2 sensitivity / b + slack exceeds 2 / multiplier in exact arithmetic anywhere."""
    rng = np.random.default_rng(6)
    for _ in range(2000):
        sensitivity, multiplier = (float(x) for x in 10.0 ** rng.uniform(-9, 9, 2))
        slack = float(rng.choice([0.0, 1.0])) * 1e-4 / multiplier * float(rng.random())
        scale = scale_of(sensitivity, multiplier, slack)
        if 2 * Fraction(sensitivity) / Fraction(scale) + Fraction(slack) > 2 / Fraction(multiplier):
            return True
        assert scale <= sensitivity * multiplier * (1 + 2e-4)
    return False


def test_the_race_scale_is_rounded_outward() -> None:
    assert not scale_is_short(race_scale)
    assert scale_is_short(lambda s, m, slack: 2.0 * s / (2.0 / m - slack))  # planted: rounded to nearest


def test_impossible_races_are_refused() -> None:
    with pytest.raises(Unsupported, match="too large for their sensitivity"):
        TwoLevelRace(np.zeros(3), 1e-14, 1.0, 1.0)
    with pytest.raises(Unsupported):
        race_scale(1.0, 1.0, 3.0)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput):
            race_scale(bad, 1.0)
    for scores in ([], [math.nan, 0.0], [math.inf, 0.0]):
        with pytest.raises(InvalidInput):
            gumbel_race(np.array(scores), 1.0, RandomSource(0))
        with pytest.raises(InvalidInput):
            TwoLevelRace(np.array(scores), 1.0, 1.0, 1.0)
    with pytest.raises(InvalidInput, match="too large"):
        gumbel_race(np.array([1e300, 0.0]), 1e-300, RandomSource(0))
    assert gumbel_race(np.array([3.0]), 1.0, RandomSource(0)) == 0


# ---------------------------------------------------------------------------------------------------------- an audit
def audited_range(winners: Callable[[Any], Any], scores: Any, moved: Any, n: int) -> float:
    """A lower confidence bound (about 1e-6) on the range of the privacy loss, from how often candidates win."""
    one, two = (np.bincount(winners(u), minlength=len(scores)) for u in (scores, moved))
    level = 1e-6

    def bounds(count: int) -> tuple[float, float]:
        low = stats.beta.ppf(level, count, n - count + 1) if count else 0.0
        high = stats.beta.isf(level, count + 1, n - count) if count < n else 1.0
        return float(low), float(high)

    least = [math.log(max(bounds(a)[0], 1e-300) / bounds(b)[1]) for a, b in zip(one, two, strict=True)]
    most = [math.log(bounds(a)[1] / max(bounds(b)[0], 1e-300)) for a, b in zip(one, two, strict=True)]
    return max(least) - min(most)


@pytest.mark.parametrize("kind", ["dense", "two-level"])
def test_audit_of_the_bounded_range(kind: str) -> None:
    sensitivity, multiplier, n = 0.5, 1.0, 4000
    allowed = 2.0 / multiplier
    scores = np.array([0.0, 0.2, -0.1, 0.1])
    moved = scores + sensitivity * np.array([1.0, -1.0, 1.0, -1.0])

    def winners(halved: bool) -> Callable[[Any], Any]:
        source = RandomSource(f"audit {kind} {halved}")
        asked = multiplier / (2.0 if halved else 1.0)

        def run(u: Any) -> Any:
            if kind == "dense":
                scale = race_scale(sensitivity, asked)
                return [gumbel_race(u, scale, source) for _ in range(n)]
            race = TwoLevelRace(u, sensitivity, asked, 2.0)
            return [race.select(source) for _ in range(n)]

        return run

    found = audited_range(winners(False), scores, moved, n)
    assert 0.6 * allowed < found <= allowed  # close enough to the claim to mean something
    assert audited_range(winners(True), scores, moved, n) > allowed


# --------------------------------------------------------------------------------------------------------- many scores
def test_large_races() -> None:
    source = RandomSource("large")
    scores = np.zeros(1_000_000)
    scores[123_456] = 40.0  # e^40 to 10^6
    assert gumbel_race(scores, 1.0, source) == 123_456
    race = TwoLevelRace(np.clip(scores, -50, 50), 1.0, 1.0, 50.0)
    assert race.select(source) == 123_456
    race.update(np.array([123_456, 999_999]), np.array([0.0, 45.0]))
    assert race.select(source) == 999_999
    race.update(np.array([999_999]), np.array([0.0]))
    winners = np.array([race.select(source) for _ in range(2000)])
    assert stats.chisquare(np.bincount(winners // 50_000, minlength=20)).pvalue > 1e-5
    many = np.zeros(20_000)
    dense = np.array([gumbel_race(many, 1.0, source) for _ in range(600)])
    assert stats.chisquare(np.bincount(dense // 2000, minlength=10)).pvalue > 1e-5


@pytest.mark.parametrize("multiplier", [0.05, 0.5, 1.0, 50.0, 1000.0])
def test_two_level_error_covers_the_measured_one_at_every_noise_level(multiplier):
    """The log of a group's weight against 60 digits, at scores up to the public bound."""
    rng = np.random.default_rng(0)
    sensitivity, bound = 1e-3, 1e3
    race = TwoLevelRace(rng.uniform(-bound, bound, 4000), sensitivity, multiplier, bound)
    worst = 0.0
    scores = np.random.default_rng(0).uniform(-bound, bound, 4000)
    with mpmath.workdps(60):
        totals = log_totals(race)
        for group in range(0, len(race._totals), 7):
            part = scores[group * race.width : (group + 1) * race.width]
            logits = [mpmath.mpf(float(s)) / mpmath.mpf(race.scale) for s in part]
            top = max(logits)
            exact = top + mpmath.log(sum(mpmath.exp(x - top) for x in logits))
            worst = max(worst, abs(float(totals[group] - exact)))
    assert worst <= race.error


def test_two_level_race_is_usable_at_much_noise():
    """Many records and a small epsilon: large multipliers must not be refused."""
    TwoLevelRace(np.zeros(200), 1e-6, 2000.0, 8.0)

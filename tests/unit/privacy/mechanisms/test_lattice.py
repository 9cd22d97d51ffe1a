"""Noise on the lattice: cells, scales, samplers and released values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dperm.errors import InvalidInput, Unsupported
from dperm.kernels import cells
from dperm.kernels.cells import LIBM_ERROR, filtered_cells
from dperm.privacy.mechanisms import integer_samplers, lattice
from dperm.privacy.mechanisms.lattice import MOST_EXTRA, Lattice, floor_noise, most_extra
from dperm.privacy.randomness import RandomSource

KINDS = ("gaussian", "laplace")
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
U64 = np.uint64


class Scripted:
    """A source that gives these words first and refuses (or goes on at random) after them."""

    def __init__(self, words: Any, then: RandomSource | None = None) -> None:
        self.left = [int(w) for w in words]
        self.then = then

    def words(self, n: int) -> Any:
        out = [self.word() for _ in range(n)]
        return np.array(out, U64)

    def word(self) -> int:
        if self.left:
            return self.left.pop(0)
        if self.then is None:
            raise AssertionError("more random digits were asked for than this draw needs")
        return self.then.word()

    def below(self, n: int) -> int:
        return RandomSource.below(self, n)  # type: ignore[arg-type]


def tail(x: Any, kind: str) -> Any:
    return (mpmath.erfc(x / mpmath.sqrt(2)) if kind == "gaussian" else mpmath.exp(-x)) / 2


# --------------------------------------------------------------------------------------- the filter decides rightly
def exact_cells(words: Any, scale: float, kind: str, source: Any) -> list[int]:
    """Signed cells of all words, each settled with many digits from a deliberately bad first guess."""
    guesses, _, _ = filtered_cells(words, scale, kind)
    out = []
    for i, (word, guess) in enumerate(zip(words, guesses, strict=True)):
        start = max(0, int(guess) + (-3, 0, 5)[i % 3])
        cell = lattice._exact_cell(int(word) >> 1, start, scale, source, kind)
        out.append(-cell - 1 if int(word) & 1 else cell)
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1.0, 3.7, 1000.0 / 3.0, 2.0**20, 2.0**30, 2.0**40])
def test_filtered_draws_are_the_exact_ones(scale: float, kind: str) -> None:
    words = RandomSource(f"{scale}{kind}").words(400 if scale == 2.0**40 else 1500)
    filtered, negative, undecided = filtered_cells(words, scale, kind)
    decided = np.setdiff1d(np.arange(words.size), undecided)
    assert decided.size > (0.2 if scale == 2.0**40 else 0.9) * words.size
    signed = np.where(negative, -filtered - 1, filtered)
    # decided draws need no digit beyond the first word, so a source that has none will do
    assert signed[decided].tolist() == exact_cells(words[decided], scale, kind, Scripted([]))
    # the whole sampler, undecided draws included, from the same stream
    together = floor_noise(words.size, scale, Scripted(words, RandomSource("more")), kind)  # type: ignore[arg-type]
    assert together[decided].tolist() == signed[decided].tolist()


def test_the_comparison_detects_a_filter_with_too_small_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "LIBM_ERROR", 0.0)
    scale = 2.0**40
    words = RandomSource(0).words(300)
    filtered, negative, undecided = filtered_cells(words, scale, "gaussian")
    decided = np.setdiff1d(np.arange(words.size), undecided)
    signed = np.where(negative, -filtered - 1, filtered)
    assert signed[decided].tolist() != exact_cells(words[decided], scale, "gaussian", RandomSource(1))


def libm_error(kind: str, words: Any) -> float:
    """Largest |computed - true| / (1 + z), the rounding of p included, by one Newton step with 60 digits."""
    digits = words >> U64(1)
    p = (digits.astype(np.float64) + 0.5) * 2.0**-64
    computed = -special.ndtri(p) if kind == "gaussian" else -np.log(2.0 * p)
    worst = 0.0
    with mpmath.workdps(60):
        for whole, z in zip(digits.tolist(), computed.tolist(), strict=True):
            true_p = mpmath.ldexp(mpmath.mpf(whole) + mpmath.mpf(1) / 2, -64)
            x = mpmath.mpf(z)
            gaussian = kind == "gaussian"
            off = (tail(x, kind) - true_p) / mpmath.npdf(x) if gaussian else x + mpmath.log(2 * true_p)
            worst = max(worst, float(abs(off)) / (1.0 + abs(z)))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_the_assumed_error_of_elementary_functions_has_a_wide_margin(kind: str) -> None:
    rng = np.random.default_rng(5)
    uniform = RandomSource(9).words(3000)
    small = (2.0 ** rng.uniform(11, 63.9, 3000)).astype(U64)
    # both sides of the points where the usual implementation of ndtri changes its formula
    seams = [p * (1.0 + s) for p in (math.exp(-2.0), math.exp(-32.0), 1.0 - math.exp(-2.0)) for s in (-1e-12, 0, 1e-12)]
    edges = np.array([int(min(p, 1 - p) * 2.0**64) * 2 for p in seams] + [2048, 2049, 2**64 - 1, 2**64 - 2], object)
    words = np.concatenate([uniform, small, (edges % 2**64).astype(U64)])
    measured = libm_error(kind, words)
    assert 1e-18 < measured < LIBM_ERROR / 50.0


def test_the_measurement_detects_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    real = special.ndtri
    monkeypatch.setattr(special, "ndtri", lambda p: real(p.astype(np.float32)).astype(np.float64))
    assert libm_error("gaussian", RandomSource(9).words(100)) > LIBM_ERROR


# ------------------------------------------------------------------------------------------------- words at the edge
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1.0, 256.0, 2.0**30])
def test_extreme_words(scale: float, kind: str) -> None:
    words = [0, 1, 2, 3, 2046, 2047, 2048, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
    noise = floor_noise(len(words), scale, Scripted(words, RandomSource(0)), kind)  # type: ignore[arg-type]
    for word, cell in zip(words, noise.tolist(), strict=True):
        assert (cell < 0) == bool(word & 1)
        low, high = (word >> 1) / 2.0**64, ((word >> 1) + 1) / 2.0**64
        magnitude = -cell - 1 if cell < 0 else cell
        # p < tail(k / scale) and p >= tail((k + 1) / scale), up to what digits below the first word may add
        assert LAWS[kind].sf(magnitude / scale) >= low * (1 - 1e-9)
        assert LAWS[kind].sf((magnitude + 1) / scale) <= high * (1 + 1e-9)
    assert abs(noise[0]) > 8 * scale


def boundary_words(k: int, scale: float, kind: str, n_words: int) -> list[int]:
    """The digits of tail(k / scale), 64 at a time."""
    with mpmath.workprec(64 * (n_words + 4)):
        p = tail(mpmath.mpf(k) / mpmath.mpf(scale), kind)
        digits = int(mpmath.floor(mpmath.ldexp(p, 64 * n_words)))
    return [(digits >> (64 * (n_words - 1 - i))) & (2**64 - 1) for i in range(n_words)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("scale", "k"), [(1.0, 1), (1.0, 5), (3.7, 9), (2.0**20, 1234567), (2.0**30, 7), (2.0**40, 2**41)]
)
@pytest.mark.parametrize("n_words", [1, 2, 5])
def test_draws_on_a_boundary_get_more_digits(scale: float, k: int, kind: str, n_words: int) -> None:
    words = boundary_words(k, scale, kind, n_words)
    first, rest = words[0] * 2, words[1:]
    for sign in (0, 1):
        for last, cell in ((0, k), (2**64 - 1, k - 1)):
            # a smaller tail probability lies further out: digits below the boundary give cell k, above k - 1
            following = boundary_words(k, scale, kind, n_words + 1)[-1]
            if following in (0, 2**64 - 1):
                continue
            source = Scripted([first | sign, *rest, last])
            noise = floor_noise(1, scale, source, kind)  # type: ignore[arg-type]
            assert noise[0] == (-cell - 1 if sign else cell)
            assert not source.left  # every digit was needed


# ------------------------------------------------------------------------------------------------ goodness of fit
def fit(noise: Any, scale: float, kind: str, n_bins: int = 40) -> float:
    """p-value of a chi-square test with bins at whole cells, two of them far out."""
    law = LAWS[kind]
    levels = np.concatenate([[1e-3], np.linspace(0, 1, n_bins + 1)[1:-1], [1 - 1e-3]])
    edges = np.unique(np.round(scale * law.ppf(levels)))
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges / scale), [1.0]])) * len(noise)
    observed = np.bincount(np.searchsorted(edges, noise, side="right"), minlength=edges.size + 1)
    keep = expected > 2.0
    statistic = float(((observed - expected)[keep] ** 2 / expected[keep]).sum())
    return float(stats.chi2.sf(statistic, keep.sum() - 1))


def assert_fits(noise: Any, scale: float, kind: str) -> None:
    assert fit(noise, scale, kind) > 1e-5
    for wrong in (0.5, 1.5):
        assert fit(noise, wrong * scale, kind) < 1e-9
    other = "laplace" if kind == "gaussian" else "gaussian"
    matched = scale * (math.sqrt(0.5) if kind == "gaussian" else math.sqrt(2.0))
    assert fit(noise, matched, other) < 1e-9  # same variance, other law


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [2.5, 256.0, 1e5, 2.0**26, 2.0**30])
def test_filtered_noise_fits_its_law(scale: float, kind: str) -> None:
    noise = floor_noise(60_000, scale, RandomSource(f"fit {scale} {kind}"), kind)
    assert_fits(noise, scale, kind)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.025


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [2.5, 256.0, 2.0**30])
def test_integer_noise_fits_its_law(scale: float, kind: str) -> None:
    noise = floor_noise(5_000, scale, RandomSource(f"integer {scale} {kind}"), kind, sampler="integer")
    assert_fits(noise, scale, kind)


def test_the_fit_detects_a_wrong_step_of_the_integer_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_samplers, "_below_exp_product", lambda k, x, source: True)
    noise = floor_noise(5_000, 256.0, RandomSource(0), "gaussian", sampler="integer")
    assert fit(noise, 256.0, "gaussian") < 1e-9


def test_the_fit_detects_rounding_instead_of_floor() -> None:
    noise = floor_noise(60_000, 2.5, RandomSource(0)) + (RandomSource(1).words(60_000) >> U64(63)).astype(np.int64)
    assert fit(noise, 2.5, "gaussian") < 1e-9


def test_integer_helpers_have_their_probabilities() -> None:
    source = RandomSource("helpers")
    n = 6000
    hits = sum(integer_samplers._exp_minus_half(source) for _ in range(n))
    assert stats.binomtest(hits, n, math.exp(-0.5)).pvalue > 1e-4
    assert stats.binomtest(hits, n, 0.57).pvalue < 1e-4
    for k, level in ((0, 0.25), (2, 0.75)):
        hits = 0
        for _ in range(n):
            x = integer_samplers._Uniform(source)
            x.digits = int(level * 2**64)  # the first digits of a number next to `level`
            hits += integer_samplers._below_exp_product(k, x, source)
        expected = math.exp(-level * (2 * k + level) / (2 * k + 2))
        assert stats.binomtest(hits, n, expected).pvalue > 1e-4
    wholes = [integer_samplers._exponential(source)[0] for _ in range(n)]
    counts = np.bincount(np.minimum(wholes, 3), minlength=4)
    probabilities = np.array([(1 - math.exp(-1)) * math.exp(-j) for j in range(3)] + [math.exp(-3)])
    assert stats.chisquare(counts, probabilities * n).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["filtered", "integer"])
def test_fresh_noise_fits_its_law(kind: str, sampler: str) -> None:
    for scale in (1.0, 2.5, 256.0, 2.0**24, 2.0**30):
        noise = floor_noise(
            3_000_000 if sampler == "filtered" else 100_000, scale, RandomSource(), kind, sampler=sampler
        )
        assert fit(noise, scale, kind, 200) > 1e-7
        for wrong in (0.99, 1.01) if sampler == "filtered" else (0.95, 1.05):
            assert fit(noise, wrong * scale, kind, 200) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["filtered", "integer"])
def test_noise_agrees_with_another_library(kind: str, sampler: str) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    n = 20_000
    metric = dp.l1_distance(T=float) if kind == "laplace" else dp.l2_distance(T=float)
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), metric
    make = dp.m.make_laplace if kind == "laplace" else dp.m.make_gaussian
    theirs = np.array(make(*space, scale=1.0)([0.0] * n))  # its noise lives on a grid far finer than the cells
    scale = 3.0
    ours = floor_noise(
        n if sampler == "filtered" else 4000, scale, RandomSource(f"{kind}{sampler}"), kind, sampler=sampler
    )

    def p_value(stretch: float) -> float:
        edges = np.arange(-7, 8)
        table = [
            np.bincount(np.searchsorted(edges, noise, side="right"), minlength=edges.size + 1)
            for noise in (ours, np.floor(stretch * scale * theirs))
        ]
        return float(stats.chi2_contingency(np.array(table)).pvalue)

    assert p_value(1.0) > 1e-9  # the other library has no seed: this fails by chance once in 10^9
    assert p_value(0.5) < 1e-12
    assert p_value(1.5) < 1e-12


# ---------------------------------------------------------------------------------------------------------- designs
DESIGNS = [
    (sensitivity, multiplier, size)
    for sensitivity in (1e-9, 0.3, 1.0, 7e5)
    for multiplier in (1e-3, 0.7, 42.25, 1e5)
    for size in (1, 3, 100, 10**6)
]


def promised(design: Lattice, sensitivity: float, multiplier: float, size: int) -> bool:
    """Exact: noise scale in steps >= multiplier (sensitivity / spacing + rounding), rounding sqrt(size) or size."""
    spare = Fraction(design.scale) / Fraction(multiplier) - Fraction(sensitivity) / Fraction(design.spacing)
    needed = Fraction(size) if design.kind == "gaussian" else Fraction(size) ** 2
    return spare > 0 and spare * spare >= needed


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_is_at_least_the_planned_one(kind: str) -> None:
    for sensitivity, multiplier, size in DESIGNS:
        if kind == "laplace" and size * multiplier > 1e9:
            continue
        design = Lattice.design(sensitivity, multiplier, size, sensitivity, kind)
        assert math.frexp(design.spacing)[0] == 0.5  # a power of two
        assert promised(design, sensitivity, multiplier, size)
        less = Lattice(design.spacing, design.scale * (1 - 2e-3), design.bound, kind)
        assert not promised(less, sensitivity, multiplier, size)
        assert Fraction(design.noise_scale) == Fraction(design.spacing) * Fraction(design.scale)
        assert design.noise_scale >= sensitivity * multiplier
        assert design.noise_scale <= sensitivity * multiplier * (1.0 + 2.0**-10)
        assert 256.0 <= design.scale <= 2.0**40


def neighbours(rng: Any, design: Lattice, sensitivity: float, size: int, kind: str) -> Any:
    """Random pairs at the full distance, and pairs whose every coordinate sits next to a rounding boundary."""
    for _ in range(30):
        step = rng.normal(size=size)
        step *= sensitivity / (np.linalg.norm(step) if kind == "gaussian" else np.abs(step).sum())
        one = rng.uniform(-1, 1, size) * design.bound * 0.4
        yield one, one + step * (1 - 1e-12)
    g = design.spacing
    apart = sensitivity / (math.sqrt(size) if kind == "gaussian" else size)
    whole = math.floor(apart / g * (1 - 1e-9))
    for base in (0.0, 17.0):
        # from just below a half to just above another half: one whole step more than the distance
        one = np.full(size, (base + 0.5 - 2.0**-20) * g)
        yield one, one + (whole * g + 2.0**-19 * g)
        yield one, one - apart * (1 - 1e-12)


def rounding_excess(design: Lattice, sensitivity: float, multiplier: float, size: int, kind: str) -> float:
    """Largest lattice distance of a pair times the multiplier, relative to the scale: above 1 breaks the promise."""
    rng = np.random.default_rng(size)
    worst = 0.0
    for one, two in neighbours(rng, design, sensitivity, size, kind):
        change = two - one
        norm = np.linalg.norm(change) if kind == "gaussian" else np.abs(change).sum()
        assert norm <= sensitivity * (1 + 1e-9)
        steps = [np.rint(np.clip(v, -design.bound, design.bound) / design.spacing) for v in (one, two)]
        moved = steps[1] - steps[0]
        length = math.sqrt(float((moved**2).sum())) if kind == "gaussian" else float(np.abs(moved).sum())
        worst = max(worst, length * multiplier / design.scale)
    return worst


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 50, 2000])
def test_no_pair_moves_further_on_the_lattice(kind: str, size: int) -> None:
    forgotten = []
    for sensitivity, multiplier in ((0.9999, 1.0), (3e-5, 30.0), (0.77, 0.01)):
        design = Lattice.design(sensitivity, multiplier, size, 100.0 * sensitivity, kind)
        assert rounding_excess(design, sensitivity, multiplier, size, kind) <= 1.0
        # planted: a scale that forgets the rounding
        forgetful = Lattice(design.spacing, multiplier * sensitivity / design.spacing, design.bound, kind)
        forgotten.append(rounding_excess(forgetful, sensitivity, multiplier, size, kind))
    assert max(forgotten) > 1.0


def test_clipping_brings_values_into_the_bound() -> None:
    design = Lattice.design(1.0, 1e-3, 4, 2.0)
    released = design.release(np.array([1e9, -1e9, 2.0, -2.0]), RandomSource(0))
    assert np.abs(released).max() < 2.1


@pytest.mark.parametrize(
    ("sensitivity", "multiplier", "size", "bound"),
    [
        (1.0, 1.0, 1, 1e300),
        (1e-12, 1.0, 10**6, 1e3),
        (1e-300, 1e-300, 1, 1.0),
        (1e-320, 1.0, 1, 1.0),
        (1e300, 1e300, 1, 1e301),
        (1.0, 1e-310, 1, 1.0),
        (1.0, 1e30, 10**9, 1.0),
        (1.0, 1.0, 0, 1.0),
    ],
)
def test_impossible_designs_are_refused_in_a_sentence(
    sensitivity: float, multiplier: float, size: int, bound: float
) -> None:
    for kind in KINDS:
        with pytest.raises(Unsupported, match=r"^[a-z].*\.$"):
            Lattice.design(sensitivity, multiplier, size, bound, kind)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_invalid_numbers_are_refused(bad: float) -> None:
    for arguments in ((bad, 1.0, 1, 1.0), (1.0, bad, 1, 1.0), (1.0, 1.0, 1, bad)):
        with pytest.raises(InvalidInput):
            Lattice.design(*arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not finite"):
        Lattice.design(1.0, 1.0, 2, 1.0).release(np.array([0.0, math.nan]), RandomSource(0))
    for scale in (0.5, 2.0**41, bad):
        with pytest.raises(InvalidInput):
            floor_noise(1, scale, RandomSource(0))
    with pytest.raises(InvalidInput):
        floor_noise(1, 2.0, RandomSource(0), sampler="other")


# --------------------------------------------------------------------------------------------------------- releases
@pytest.mark.parametrize("kind", KINDS)
def test_a_release_is_a_lattice_point_and_a_half_exactly(kind: str) -> None:
    value = np.random.default_rng(0).uniform(-3, 3, (40, 5))
    for sensitivity, multiplier in ((1e-7, 1.0), (0.3, 55.0), (1e-3, 1e-3)):
        design = Lattice.design(sensitivity, multiplier, value.size, 2.5, kind)
        released = design.release(value, RandomSource("r"))
        noise = floor_noise(value.size, design.scale, RandomSource("r"), kind)
        assert released.shape == value.shape
        for out, query, drawn in zip(released.ravel(), value.ravel(), noise, strict=True):
            steps = round(Fraction(float(np.clip(query, -2.5, 2.5))) / Fraction(design.spacing))  # half to even
            assert Fraction(float(out)) == Fraction(design.spacing) * (steps + int(drawn) + Fraction(1, 2))


def test_the_largest_allowed_bound_is_still_exact() -> None:
    spacing = Lattice.design(1.0, 1.0, 1, 1.0).spacing
    bound = spacing * (2.0**51 - 1)
    design = Lattice.design(1.0, 1.0, 1, bound)
    released = design.release(np.array([bound]), RandomSource(1))
    assert Fraction(float(released[0])) / Fraction(design.spacing) % 1 == Fraction(1, 2)
    with pytest.raises(Unsupported):
        Lattice.design(1.0, 1.0, 1, spacing * 2.0**51)


def test_equal_neighbourhoods_release_the_same_numbers() -> None:
    """Values that round to one lattice point cannot be told apart from the same noise."""
    design = Lattice.design(1.0, 1.0, 1, 4.0)
    g = design.spacing
    outputs = {float(design.release(np.array([x]), RandomSource("same"))[0]) for x in (0.0, 0.4 * g, -0.5 * g, 0.5 * g)}
    assert len(outputs) == 1


# ------------------------------------------------------------------------------------------- a single number
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [256.0, 1e5 / 3, 2.0**40])
def test_a_single_cell_is_that_of_the_array(kind: str, scale: float) -> None:
    few = [0, 1, 2, 3, 1023, 1024, 2047, 2048, 2049, 2**63, 2**64 - 2, 2**64 - 1]
    words = np.concatenate([np.array(few, U64), RandomSource(1).words(3000)])
    found, _, undecided = filtered_cells(words, scale, kind)
    for i, word in enumerate(words.tolist()):
        cell, decided = cells.filtered_cell(word, scale, kind)
        assert decided == (i not in undecided)
        assert cell == found[i]


@pytest.mark.parametrize("kind", KINDS)
def test_single_numbers_are_released_as_in_an_array(kind: str) -> None:
    made = Lattice.design(0.3, 2.0, 1, 50.0, kind)
    values = np.random.default_rng(0).normal(size=500) * 40
    together, one_by_one = RandomSource(5), RandomSource(5)
    whole = made.release(values, together)
    single = [made.release(np.array([v]), one_by_one) for v in values]
    assert all(one.shape == (1,) for one in single)
    assert np.concatenate(single).tolist() == whole.tolist()
    assert made.release(np.array([[1.0]]), one_by_one).shape == (1, 1)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_single_number_that_is_not_finite_is_not_released(value: float) -> None:
    with pytest.raises(InvalidInput, match="not finite"):
        Lattice.design(0.3, 2.0, 1, 50.0).release(np.array([value]), RandomSource())


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_extra_noise_is_as_stated_for_usual_and_for_very_large_noise(kind: str) -> None:
    shares = {False: 0.0, True: 0.0}
    for multiplier in np.geomspace(1e-3, 2.0**34, 60):
        for size in (1, 7, 1000):
            try:
                made = Lattice.design(0.3, multiplier, size, 1.0, kind)
            except Unsupported:  # more than the largest scale
                continue
            extra = made.noise_scale / (0.3 * multiplier) - 1.0
            allowed = most_extra(multiplier, size, kind)
            assert extra <= allowed + 1e-12
            shares[allowed > 2.0 * MOST_EXTRA] = max(shares[allowed > 2.0 * MOST_EXTRA], extra / allowed)
    assert min(shares.values()) > 0.4  # both branches are reached and neither bound is idle

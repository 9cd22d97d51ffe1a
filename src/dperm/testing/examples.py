"""One example of everything registered, so that a registry line enrols it in the contract suites.

A function of query examples takes a random generator and public facts and returns queries at random public values, some
of which drive slopes to their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.data.holding.holder import Query
from dperm.objective import Huber, Logistic, Loss, Multinomial, SmoothedHinge, Squared
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise, Mechanism, NoisyMax
from dperm.queries import (
    AtomScores,
    ClassCounts,
    ClassScoreGradient,
    ClippedPredictions,
    CorrectPredictions,
    Curvature,
    FeatureGradient,
    FirstMoment,
    FullGradient,
    GradientBlock,
    GradientCoordinate,
    GradientSparsity,
    GreedyScores,
    LocalAtomScores,
    MappedGradient,
    MappedSecondMoment,
    PenalisedAtomScores,
    PerturbedMinimum,
    ProximalSlopes,
    QuantileScores,
    RowLengths,
    SampledCorrection,
    SampledGradient,
    SecondMoment,
    SketchedColumn,
    SketchedTarget,
    SquaredErrors,
    TargetDeviation,
    TargetMoment,
    TargetQuantileScores,
    WeightedRows,
)
from dperm.queries.greedy import RULES, ColumnConstants
from dperm.solvers import (
    BlockDescent,
    CoordinateDescent,
    FrankWolfe,
    GradientDescent,
    GreedyCoordinateDescent,
    Newton,
    Peel,
    PerturbedMinimiser,
    Solver,
    SparsePursuit,
    StochasticGradientDescent,
    VarianceReducedDescent,
    WhitenedDescent,
    WideDescent,
    WideOrSparse,
)

__all__ = ["LOSS_EXAMPLES", "MECHANISM_EXAMPLES", "QUERY_EXAMPLES", "SOLVER_EXAMPLES"]

LOSS_EXAMPLES: tuple[Loss, ...] = (Logistic(), Squared(residual_clip=0.8), Huber(0.5), SmoothedHinge(0.5))


def _weights(rng: Any, facts: Facts, n_outputs: int = 1) -> list[Any]:
    shape: Any = facts.d if n_outputs == 1 else (facts.d, n_outputs)
    return [np.zeros(shape), rng.normal(size=shape), 1e3 * rng.normal(size=shape)]


def _full_gradients(rng: Any, facts: Facts) -> list[Query]:
    queries: list[Query] = []
    for loss in (*LOSS_EXAMPLES, Multinomial(3)):
        for weights in _weights(rng, facts, loss.n_outputs):
            queries += [FullGradient(loss, weights, clip) for clip in (None, 0.3 * facts.row_bound, 1e-3)]
    return queries


def _feature_gradients(rng: Any, facts: Facts) -> list[Query]:
    return [
        FeatureGradient(loss, weights, clip)
        for loss in (*LOSS_EXAMPLES, Multinomial(3))
        for weights in _weights(rng, facts, loss.n_outputs)
        for clip in (None, 0.3 * facts.row_bound, 1e-3)
    ]


def _kept_weights(rng: Any, facts: Facts) -> list[Any]:
    """Return weights for which a holder keeps scores between queries: boxed, boxed with one change, sparse."""
    some = {int(j): 3.0 * float(rng.normal()) for j in rng.choice(facts.d, max(1, facts.d // 2), replace=False)}
    boxed = BoxedWeights(1e3 * rng.normal(size=facts.d), 64.0)
    return [BoxedWeights(np.zeros(facts.d), 1.0), boxed.with_weight(0, -50.0), SparseWeights(facts.d, some, 8.0)]


def _blocks(rng: Any, facts: Facts) -> list[Query]:
    size = max(1, facts.d // 2)
    blocks = [
        GradientBlock(loss, weights, clip, tuple(rng.choice(facts.d, size, replace=False).tolist()))
        for loss in (*LOSS_EXAMPLES, Multinomial(3))
        for weights in _weights(rng, facts, loss.n_outputs)
        for clip in (None, 0.2 * facts.row_bound)
    ]
    kept = [
        GradientBlock(loss, weights, clip, (int(rng.integers(facts.d)),))
        for loss in LOSS_EXAMPLES
        for weights in _kept_weights(rng, facts)
        for clip in (None, 0.1)
    ]
    return [*blocks, *kept]


def _coordinates(rng: Any, facts: Facts) -> list[Query]:
    return [
        GradientCoordinate(loss, weights, clip, (int(rng.integers(facts.d)),))
        for loss in LOSS_EXAMPLES
        for weights in (*_weights(rng, facts), *_kept_weights(rng, facts))
        for clip in (None, 0.1)
    ]


def _penalised_atoms(rng: Any, facts: Facts) -> list[Query]:
    some = {int(j): float(rng.uniform(-5.0, 5.0)) for j in range(facts.d) if rng.random() < 0.5}
    return [
        PenalisedAtomScores(loss, SparseWeights(facts.d, entries, 5.0), penalty, (facts.d - 1,))
        for loss in LOSS_EXAMPLES
        for entries in ({}, some)
        for penalty in (SeparablePenalty(l1=0.1), SeparablePenalty(l1=0.05, l2=0.3), SeparablePenalty(l2=2.0))
    ]


def _greedy_scores(rng: Any, facts: Facts) -> list[Query]:
    some = {int(j): float(rng.normal()) for j in rng.choice(facts.d, max(1, facts.d // 2), replace=False)}
    far = {j: 1e3 * value for j, value in some.items()}
    penalties = (
        SeparablePenalty(),
        SeparablePenalty(l1=0.1),
        SeparablePenalty(l1=0.05, l2=0.3),
        SeparablePenalty(low=-0.2, high=0.4),
    )
    uneven = ColumnConstants(0.2 * 4.0 ** rng.uniform(-2.0, 2.0, facts.d))  # columns of very different curvature
    limits = ColumnConstants(0.2 * np.sqrt(uneven.values))
    return [
        GreedyScores(
            loss,
            SparseWeights(facts.d, {j: min(max(v, penalty.low), penalty.high) for j, v in entries.items()}, 1e4),
            smoothness,
            penalty,
            (facts.d - 1,),
            rule,
            limit,
        )
        for loss in (Logistic(), Huber(0.5))
        for penalty in penalties
        for rule in (RULES if not penalty.smooth else RULES[:1])
        for entries, smoothness, limit in (
            ({}, 0.2, None),
            (far, uneven, None),
            (some, uneven, limits),
            (some, 0.2, 0.1),
        )
    ]


def _curvatures(rng: Any, facts: Facts) -> list[Query]:
    return [
        Curvature(clip, loss, weights)
        for loss in (Logistic(), Huber(0.5), SmoothedHinge(0.5))
        for weights in _weights(rng, facts)[:2]
        for clip in (None, 0.4 * facts.row_bound)
    ]


def _quantiles(kind: type[QuantileScores]) -> Callable[[Any, Facts], list[Query]]:
    grid = np.concatenate([-(2.0 ** np.arange(4, -4, -1.0)), [0.0], 2.0 ** np.arange(-4, 5.0)])

    def examples(rng: Any, facts: Facts) -> list[Query]:
        column = int(rng.integers(facts.n_features))
        return [
            kind(column, q, grid, side, score_penalties)
            for q, side in ((0.05, "low"), (0.5, "high"), (0.95, "high"))
            for score_penalties in (None, 0.7 * np.abs(grid))
        ]

    return examples


def _sampled_gradients(rng: Any, facts: Facts) -> list[Query]:
    queries: list[Query] = []
    for loss in (Logistic(), Huber(0.5), Multinomial(3)):
        for weights in _weights(rng, facts, loss.n_outputs)[::2]:
            queries += [SampledGradient(loss, weights, clip) for clip in (None, 0.3 * facts.row_bound)]
    return queries


def _corrections(rng: Any, facts: Facts) -> list[Query]:
    zero, near, far = _weights(rng, facts)
    return [
        SampledCorrection(loss, one, two, clip, limit)
        for loss in LOSS_EXAMPLES
        for one, two in ((near, zero), (far, -far))
        for clip, limit in ((1e9, None), (0.3 * facts.row_bound, None), (0.2 * facts.row_bound, 0.3))
    ]


def _sparsities(rng: Any, facts: Facts) -> list[Query]:
    # a person can move the two terms in opposite directions only if the second clips less than the first
    return [
        GradientSparsity(loss, weights, limit, clip, of_largest, of_length)
        for loss in LOSS_EXAMPLES
        for weights in _weights(rng, facts)
        for limit, clip in ((1e-3, 1e-3), (0.2, 0.3 * facts.row_bound))
        for of_largest, of_length in ((1.5, 4.0), (1.5, 1e-3), (1e-3, 4.0))
    ]


def _perturbed(rng: Any, facts: Facts) -> list[Query]:
    return [PerturbedMinimum(loss, rng.uniform(0.5, 2.0, facts.d) * facts.n, 1e3) for loss in LOSS_EXAMPLES]


def _maps(rng: Any, facts: Facts) -> list[RowMap]:
    """Return the identity, a rotation with very different scales, and a map to fewer directions than columns."""
    turned, _ = np.linalg.qr(rng.normal(size=(facts.d, facts.d)))
    stretched = turned * 10.0 ** rng.uniform(-2.0, 1.0, facts.d)
    return [RowMap(m, facts.grids) for m in (np.eye(facts.d), stretched, stretched[:, : max(1, facts.d // 2)])]


def _mapped_gradients(rng: Any, facts: Facts) -> list[Query]:
    return [
        MappedGradient(loss, weights, rows, clip, label_independence)
        for loss in (*LOSS_EXAMPLES, Multinomial(3))
        for weights in _weights(rng, facts, loss.n_outputs)
        for rows in _maps(rng, facts)
        for clip, label_independence in ((1e3, 0.0), (0.2, 1.0), (0.3, 0.5))
    ]


def _mapped_moments(rng: Any, facts: Facts) -> list[Query]:
    return [MappedSecondMoment(clip, rows) for rows in _maps(rng, facts) for clip in (0.3, 2.0 * facts.row_bound)]


def _class_scores(rng: Any, facts: Facts) -> list[Query]:
    queries: list[Query] = []
    for n_factors, size in ((1, 1.0), (2, 1e3)):
        rows = RowMap(size * rng.normal(size=(facts.d, 3 * n_factors)), facts.grids)
        for heights in (np.zeros(0), np.full(3, 0.7)):
            for clip, label_independence in ((1e6, 0.0), (0.2, 0.0), (0.3, 1.0), (0.2, 0.5)):
                numbers = rng.normal(size=n_factors), rng.normal(size=3), heights
                queries.append(ClassScoreGradient(Multinomial(3), rows, *numbers, clip, label_independence))
    return queries


QUERY_EXAMPLES: dict[str, Callable[[Any, Facts], list[Query]]] = {
    FullGradient.name: _full_gradients,
    FeatureGradient.name: _feature_gradients,
    GradientBlock.name: _blocks,
    GradientCoordinate.name: _coordinates,
    AtomScores.name: lambda rng, facts: [AtomScores(lo, w) for lo in LOSS_EXAMPLES for w in _weights(rng, facts)],
    PenalisedAtomScores.name: _penalised_atoms,
    GreedyScores.name: _greedy_scores,
    Curvature.name: _curvatures,
    FirstMoment.name: lambda rng, facts: [FirstMoment(c) for c in (None, 0.3 * facts.row_bound)],
    SecondMoment.name: lambda rng, facts: [SecondMoment(c) for c in (None, 0.3 * facts.row_bound)],
    TargetMoment.name: lambda rng, facts: [TargetMoment()],
    QuantileScores.name: _quantiles(QuantileScores),
    TargetQuantileScores.name: _quantiles(TargetQuantileScores),
    SampledGradient.name: _sampled_gradients,
    SampledCorrection.name: _corrections,
    PerturbedMinimum.name: _perturbed,
    ClassCounts.name: lambda rng, facts: [ClassCounts(2), ClassCounts(5)],
    TargetDeviation.name: lambda rng, facts: [
        TargetDeviation(c) for c in (facts.target_low, 0.3 * facts.target_high, 2.0 * facts.target_high)
    ],
    RowLengths.name: lambda rng, facts: [
        RowLengths(c, rows)
        for c in (0.3 * facts.row_bound, 2.0 * facts.row_bound)
        for rows in (None, *_maps(rng, facts))
    ],
    MappedSecondMoment.name: _mapped_moments,
    MappedGradient.name: _mapped_gradients,
    ClassScoreGradient.name: _class_scores,
    GradientSparsity.name: _sparsities,
    CorrectPredictions.name: lambda rng, facts: [
        CorrectPredictions(w) for n_outputs in (1, 3) for w in _weights(rng, facts, n_outputs)
    ],
    SquaredErrors.name: lambda rng, facts: [SquaredErrors(w) for w in _weights(rng, facts)],
    WeightedRows.name: lambda rng, facts: [
        WeightedRows(limit, columns) for limit in (0.3, 1.0) for columns in (None, (int(rng.integers(facts.d)),))
    ],
    LocalAtomScores.name: lambda rng, facts: [
        LocalAtomScores(limit, columns) for limit in (0.3, 1.0) for columns in (None, (facts.d - 1,))
    ],
    ClippedPredictions.name: lambda rng, facts: [
        ClippedPredictions(w, clip) for w in _weights(rng, facts) for clip in (0.2, 50.0)
    ],
    ProximalSlopes.name: lambda rng, facts: [
        ProximalSlopes(loss, spread * rng.normal(size=facts.n), rho)
        for loss in (Logistic(), Huber(0.2), SmoothedHinge(0.5))
        for spread in (0.1, 100.0)
        for rho in (0.05, 2.0)
    ],
    SketchedColumn.name: lambda rng, facts: [SketchedColumn(int(rng.integers(facts.d)), m, "signs") for m in (1, 7)],
    SketchedTarget.name: lambda rng, facts: [SketchedTarget(m, "signs") for m in (1, 7)],
}

MECHANISM_EXAMPLES: dict[str, tuple[Mechanism, ...]] = {
    GaussianNoise.kind: (GaussianNoise(0.7), GaussianNoise(40.0), GaussianNoise(2.0, "integer")),
    LaplaceNoise.kind: (LaplaceNoise(0.7), LaplaceNoise(40.0), LaplaceNoise(2.0, "integer")),
    NoisyMax.kind: (NoisyMax(0.7), NoisyMax(10.0)),
    SampledGaussianNoise.kind: (
        SampledGaussianNoise(0.7, rate=0.3),
        SampledGaussianNoise(4.0, rate=1.0),
        SampledGaussianNoise(2.0, "integer", rate=0.5),
    ),
    PerturbedObjective.kind: (
        PerturbedObjective(0.7, curvature_ratio=0.3, strength=1.0, precision=1e-9),
        PerturbedObjective(10.0, curvature_ratio=1.0, strength=3.0, precision=1e-9),
        PerturbedObjective(2.0, "integer", curvature_ratio=0.1, strength=1.0, precision=1e-9),
    ),
}

#: for every solver, a configuration that converges without noise
SOLVER_EXAMPLES: dict[str, Solver] = {
    Newton.name: Newton(n_steps=60, clip=1e9),
    Peel.name: Peel(n_selected=3, n_steps=600, clip=1e9, step=2.0),
    GradientDescent.name: GradientDescent(n_steps=400, clip=1e9, step=0.5, momentum=0.0, averaging=0.0),
    BlockDescent.name: BlockDescent(n_rounds=1, n_inner=400, n_blocks=2, clip=1e9, step=0.5, averaging=False),
    CoordinateDescent.name: CoordinateDescent(n_passes=60, clip=1e9),
    FrankWolfe.name: FrankWolfe(n_steps=600, radius=5.0),
    GreedyCoordinateDescent.name: GreedyCoordinateDescent(n_steps=150, smoothness=0.25),
    # the batch must be everyone: a smaller sample has a sampling error even without noise
    StochasticGradientDescent.name: StochasticGradientDescent(n_steps=400, rate=1.0, clip=1e9, step=0.5, averaging=0.0),
    VarianceReducedDescent.name: VarianceReducedDescent(
        n_steps=400, epoch=2, rate=1.0, clip=1e9, step=0.5, averaging=0.0
    ),
    WhitenedDescent.name: WhitenedDescent(n_steps=400, clip=1e9),
    SparsePursuit.name: SparsePursuit(n_steps=200, clip=1e9),
    WideDescent.name: WideDescent(n_steps=400, clip=1e9, correct_overfit=False),
    WideOrSparse.name: WideOrSparse(n_steps=384, clip=1e9, correct_overfit=False),
    # allows the weak penalties of the checks; the intercept's own penalty is negligible
    PerturbedMinimiser.name: PerturbedMinimiser(curvature_part=3.0, extra_strength=0.0, intercept_strength=0.01),
}

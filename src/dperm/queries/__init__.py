"""Queries: functions of private data, each with its own sensitivity and a proof beside it (``*.proof.md``).

A query subclasses :class:`~dperm.data.holding.holder.Query`; its fields hold public or released values only. Queries
may import ``data``, ``objective``, ``kernels`` and ``privacy``, never a solver. A new query goes into the module of its
kind or a new one, with a proof; a line in ``QUERIES`` below and an example in ``dperm/testing/examples.py`` enrol it in
the contract suites.
"""

from dperm.data.holding.holder import Query
from dperm.queries.class_scores import ClassScoreGradient
from dperm.queries.evaluation import CorrectPredictions, SquaredErrors
from dperm.queries.gradients import FeatureGradient, FullGradient, GradientBlock, GradientCoordinate
from dperm.queries.greedy import GreedyScores
from dperm.queries.perturbed import PerturbedMinimum
from dperm.queries.sampled import SampledCorrection, SampledGradient
from dperm.queries.scores import AtomScores, PenalisedAtomScores
from dperm.queries.sharing import LocalAtomScores, PartialPredictions, WeightedRows
from dperm.queries.sparsity import GradientSparsity
from dperm.queries.statistics import (
    Curvature,
    FirstMoment,
    QuantileScores,
    SecondMoment,
    TargetMoment,
    TargetQuantileScores,
    unpack_symmetric,
)
from dperm.queries.targets import ClassCounts, TargetDeviation
from dperm.queries.transcript import ClippedPredictions, ProximalSlopes, SketchedColumn, SketchedTarget
from dperm.queries.whitened import MappedGradient, MappedSecondMoment, RowLengths

__all__ = [
    "QUERIES",
    "AtomScores",
    "ClassCounts",
    "ClassScoreGradient",
    "ClippedPredictions",
    "CorrectPredictions",
    "Curvature",
    "FeatureGradient",
    "FirstMoment",
    "FullGradient",
    "GradientBlock",
    "GradientCoordinate",
    "GradientSparsity",
    "GreedyScores",
    "LocalAtomScores",
    "MappedGradient",
    "MappedSecondMoment",
    "PartialPredictions",
    "PenalisedAtomScores",
    "PerturbedMinimum",
    "ProximalSlopes",
    "QuantileScores",
    "Query",
    "RowLengths",
    "SampledCorrection",
    "SampledGradient",
    "SecondMoment",
    "SketchedColumn",
    "SketchedTarget",
    "SquaredErrors",
    "TargetDeviation",
    "TargetMoment",
    "TargetQuantileScores",
    "WeightedRows",
    "unpack_symmetric",
]

#: every query that can be released; the contract suites run over it
QUERIES: dict[str, type[Query]] = {
    query.name: query
    for query in (
        FullGradient,
        FeatureGradient,
        GradientBlock,
        GradientCoordinate,
        AtomScores,
        PenalisedAtomScores,
        GreedyScores,
        Curvature,
        FirstMoment,
        SecondMoment,
        TargetMoment,
        QuantileScores,
        TargetQuantileScores,
        SampledGradient,
        SampledCorrection,
        PerturbedMinimum,
        ClassCounts,
        TargetDeviation,
        RowLengths,
        MappedSecondMoment,
        MappedGradient,
        ClassScoreGradient,
        GradientSparsity,
        CorrectPredictions,
        SquaredErrors,
        WeightedRows,
        LocalAtomScores,
        ClippedPredictions,
        ProximalSlopes,
        SketchedColumn,
        SketchedTarget,
    )
}

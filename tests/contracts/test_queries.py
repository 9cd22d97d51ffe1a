"""Every registered query keeps its declared sensitivity, and the check catches the mistakes people make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from dperm.data.design.row_map import RowMap
from dperm.data.design.weights import BoxedWeights
from dperm.objective import LOSSES, Logistic, Multinomial
from dperm.queries import (
    QUERIES,
    ClassScoreGradient,
    FirstMoment,
    FullGradient,
    GradientCoordinate,
    QuantileScores,
    SecondMoment,
)
from dperm.testing import QUERY_EXAMPLES, ContractViolation, check_query
from dperm.testing.data import Layout
from dperm.testing.examples import LOSS_EXAMPLES


def test_every_query_has_an_example():
    assert set(QUERY_EXAMPLES) == set(QUERIES)


def test_every_loss_has_an_example():
    """A loss without an example is in no sensitivity check. The multinomial one has cases of its own there."""
    assert {type(loss) for loss in (*LOSS_EXAMPLES, Multinomial(3))} == set(LOSSES.values())


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_declared_sensitivity_holds(name):
    assert check_query(QUERY_EXAMPLES[name], raw=issubclass(QUERIES[name], QuantileScores), n_random=1) > 0.99


@pytest.mark.parametrize("name", ["gradient block", "gradient coordinate"])
def test_declared_sensitivity_holds_on_many_rows(name):
    """Slopes of many rows are computed in single precision where a holder keeps scores between queries."""
    assert check_query(QUERY_EXAMPLES[name], n_random=0, shapes=[Layout(n=5000, n_features=2)]) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUERIES))
@pytest.mark.parametrize("seed", range(5))
def test_declared_sensitivity_holds_on_many_pairs(name, seed):
    check_query(QUERY_EXAMPLES[name], raw=issubclass(QUERIES[name], QuantileScores), n_random=10, seed=seed)


class ForgetsTheSecondRecord(FullGradient):
    """Replace-one changes two summands; this one counts a single one."""

    replacement_ratio: ClassVar[float] = 1.0


class ForgetsToClip(FullGradient):
    def evaluate(self, data):
        return FullGradient(self.loss, self.weights, None).evaluate(data)


class ForgetsToClipOneColumn(GradientCoordinate):
    def _single(self, data):
        return GradientCoordinate(self.loss, self.weights, None, self.columns)._single(data)


class ClipsByTheWrongNorm(FullGradient):
    """Bounds the slope but forgets that long rows multiply it."""

    def zero_out_sensitivity(self, facts):
        return self.loss.slope_bound * facts.value_bound


class DoublesTheDiagonal(SecondMoment):
    def evaluate(self, data):
        value = super().evaluate(data)
        value[: data.design.d] *= 2.0
        return value


class TakesTheSampleQuantile(QuantileScores):
    """Centres at the rank among the rows it sees, and so moves the target rank with the data."""

    def evaluate(self, data):
        ranks = data.ranks(self.column, self.grid)
        return -np.abs(ranks - ranks[-1] / 2) * 2.0


@dataclass(frozen=True, eq=False)
class MomentOfSquares(FirstMoment):
    """Weights every row by its own length: unbounded by the clip it declares."""

    def evaluate(self, data):
        return super().evaluate(data) * (1.0 + data.design.norms().max())


class ShortensEachFactorAlone(ClassScoreGradient):
    """Limits every number of a person's gradient, not its length."""

    def shortened(self, scores, target, unit):
        wide = replace(self, clip=2.0**100)
        return np.clip(ClassScoreGradient.shortened(wide, scores, target, unit), -self.clip / unit, self.clip / unit)


def class_scores(rng, facts):
    rows = RowMap(1e3 * rng.normal(size=(facts.d, 6)), facts.grids)
    return [ShortensEachFactorAlone(Multinomial(3), rows, np.ones(2), np.zeros(3), np.ones(3), 0.2)]


def weights(facts):
    return np.full(facts.d, 1e3)


@pytest.mark.parametrize(
    ("make", "raw"),
    [
        (lambda rng, f: [ForgetsTheSecondRecord(Logistic(), s * weights(f)) for s in (0, 1, -1)], False),
        (lambda rng, f: [ForgetsToClip(Logistic(), s * weights(f), 0.1) for s in (0, 1, -1)], False),
        (
            lambda rng, f: [
                ForgetsToClipOneColumn(Logistic(), BoxedWeights(s * np.ones(f.d), 8.0), 0.1, (0,)) for s in (0, 8, -8)
            ],
            False,
        ),
        (lambda rng, f: [ClipsByTheWrongNorm(Logistic(), s * weights(f)) for s in (0, 1, -1)], False),
        (lambda rng, f: [DoublesTheDiagonal()], False),
        (class_scores, False),
        (lambda rng, f: [MomentOfSquares(0.5)], False),
        (lambda rng, f: [TakesTheSampleQuantile(0, 0.5, np.array([-1.0, 0.0, 1.0, 1e9]))], True),
    ],
)
def test_planted_bugs_are_caught(make, raw):
    with pytest.raises(ContractViolation, match=r"times its declared|public bound"):
        check_query(make, raw=raw, n_random=1)


def test_a_needlessly_large_sensitivity_is_detected():
    class TooCareful(FullGradient):
        def zero_out_sensitivity(self, facts):
            return 10.0 * super().zero_out_sensitivity(facts)

    with pytest.raises(ContractViolation, match="needlessly large"):
        check_query(lambda rng, f: [TooCareful(Logistic(), s * weights(f)) for s in (0, 1, -1)], n_random=1)

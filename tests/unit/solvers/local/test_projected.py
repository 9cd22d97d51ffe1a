"""Projected least squares: sparse weights are recovered with negligible noise; bad input is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.errors import InvalidData, InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Estimate
from dperm.solvers.local.linear_models import LinearTask
from dperm.solvers.local.projected import ProjectedLinearModel, public_signs


def test_signs_are_fair():
    signs = np.array(public_signs(40, 100, RandomSource(0)))
    assert set(np.unique(signs)) == {-1, 1}
    assert abs(signs.mean()) < 0.1


def test_a_sparse_signal_is_better_than_nothing():
    """Six features in four dimensions, energy on the support; many people and a large epsilon."""
    rng, n = np.random.default_rng(1), 400_000
    model = ProjectedLinearModel(8.0, public_signs(4, 6, RandomSource(1)))
    truth = np.array([0.8, 0, 0, 0, 0, 0])
    x = rng.normal(size=(n, 6)) * [0.6, 0.05, 0.05, 0.05, 0.05, 0.05]
    y = np.clip(x @ truth + 0.05 * rng.normal(size=n), -1, 1)
    weights = model.estimate(model.task.collect(model.records(x, y), RandomSource(2)))
    assert np.abs(weights).sum() <= 1.0 + 1e-9
    assert np.mean((y - x @ weights) ** 2) < 0.3 * np.mean(y**2)


def test_no_better_than_the_null_model_and_documented():
    """400 features at epsilon 1: no better than weights 0; the docstring says so."""
    text = " ".join(ProjectedLinearModel.__doc__.split())
    assert "no better than the null model (all weights 0) for up to ten million people" in text
    rng, n = np.random.default_rng(5), 20_000
    model = ProjectedLinearModel(1.0, public_signs(20, 400, RandomSource(5)))
    x = rng.normal(size=(n, 400))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = x[:, 0] * 0.8
    weights = model.estimate(model.task.collect(model.records(x, y), RandomSource(6)))
    assert np.mean((y - x @ weights) ** 2) > 0.98 * np.mean(y**2)


def test_projected_records_are_clipped_by_the_person():
    """The published form leaves this out and has no bound at all then."""
    model = ProjectedLinearModel(1.0, public_signs(3, 8, RandomSource(7)))
    records = model.records(1e6 * np.ones((5, 8)), 1e6 * np.ones(5))
    assert np.abs(records[:, :3]).max() > 1.0
    sketch = model.task.sketch
    for j in range(sketch.size):
        values = sketch.values(records, np.full(5, j))
        assert (values >= sketch.low[j] - 1e-12).all()
        assert (values <= sketch.high[j] + 1e-12).all()


def test_bad_input():
    with pytest.raises(InvalidInput, match="-1 and 1"):
        ProjectedLinearModel(1.0, ((1, 0),))
    with pytest.raises(InvalidInput, match="l1_radius"):
        ProjectedLinearModel(1.0, ((1, 1),), 0.0)
    model = ProjectedLinearModel(1.0, ((1, 1), (1, -1), (1, 1)))
    with pytest.raises(InvalidData, match="2 columns"):
        model.records(np.ones((3, 3)), np.ones(3))
    counts = model.task.collect(np.random.default_rng(3).uniform(-1, 1, (200_000, 4)), RandomSource(3))
    tall = ProjectedLinearModel(1.0, ((1, 1), (1, -1), (1, 1)))
    skewed = type(counts)(counts.task, counts.n, np.where(np.arange(counts.n.size) == 0, counts.n, counts.ones))
    with pytest.raises(Unsupported, match="more columns"):
        tall.estimate(skewed)


def test_the_projection_is_part_of_the_task():
    """Counts of another projection, or of another radius, belong to another task."""
    one, other = (ProjectedLinearModel(1.0, public_signs(3, 20, RandomSource(seed))) for seed in (8, 9))
    assert one.signs != other.signs
    assert one.task.digest != other.task.digest
    assert one.task.digest != ProjectedLinearModel(1.0, one.signs, 2.0).task.digest
    with pytest.raises(InvalidInput, match="another task"):
        other.estimate(one.task.no_counts())


def test_of_all_weights_with_the_projection_those_of_least_l1_norm_are_taken(monkeypatch):
    """The small problem is that of known sparse weights, which are one way to have it."""
    model = ProjectedLinearModel(1.0, public_signs(8, 40, RandomSource(10)))
    sparse = np.zeros(40)
    sparse[[3, 17]] = 0.5, -0.3
    small = model.matrix @ sparse
    estimate = Estimate(small, small, None, None, 1.0)
    monkeypatch.setattr(LinearTask, "estimates", lambda *_: (estimate,))
    weights = model.estimate(model.task.no_counts())
    assert model.matrix @ weights == pytest.approx(small)
    assert np.abs(weights).sum() <= np.abs(sparse).sum() + 1e-9

"""Algorithm 4 for generalised linear losses: the certified form keeps epsilon, the printed one does not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from dperm.errors import InvalidBudget, InvalidData, InvalidInput
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import projected_net
from dperm.solvers.local.projected import ProjectedLinearModel, public_signs
from dperm.solvers.local.projected_net import PrintedProjection, ProjectedNet
from dperm.solvers.local.theta_grid import MARGIN_LOSSES
from dperm.testing import ContractViolation
from dperm.testing.local import check_one_bit


def people(n, p, seed, weight=4.0):
    """Rows in the unit ball whose first column decides the label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) * np.append(1.0, np.full(p - 1, 0.1))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    return x, np.where(rng.random(n) < special.expit(weight * x[:, 0]), 1.0, -1.0)


def risk(w, x, y):
    return np.logaddexp(0.0, -(x @ w) * y).mean()


@pytest.mark.parametrize("kind", ["net", "printed", "moments"])
def test_a_sparse_signal_is_found_with_little_noise(kind):
    n, p = 200_000, 6
    x, y = people(n, p, 1)
    signs = public_signs(3, p, RandomSource(1))
    if kind == "printed":
        w = PrintedProjection(8.0, signs, 4.0).fit(x, y, RandomSource(2))
    else:
        model = ProjectedNet(8.0, signs, 4.0) if kind == "net" else ProjectedLinearModel(8.0, signs, 4.0, "logistic")
        w = model.estimate(model.task.collect(model.records(x, y), RandomSource(2)))
    assert np.abs(w).sum() <= 4.0 + 1e-9
    best = min(risk(np.append(c, np.zeros(p - 1)), x, y) for c in np.linspace(0, 4, 17))
    assert risk(w, x, y) - best < 0.5 * (math.log(2.0) - best)


def test_noise_alone_gives_weights_0_or_is_lifted_from_the_net():
    model = ProjectedNet(1.0, public_signs(2, 9, RandomSource(3)), 2.0, n_levels=3)
    assert len(model.nodes) == 8
    assert model.lifted(np.full(8, math.log(2.0) + 1e-3)).tolist() == [0.0] * 9
    means = np.ones(8)
    means[5] = 0.1
    np.testing.assert_allclose(model.matrix @ model.lifted(means), model.nodes[5], atol=1e-9)


def test_the_net_covers_the_projected_ball():
    model = ProjectedNet(1.0, public_signs(3, 40, RandomSource(4)), 2.0, n_levels=7)
    rng = np.random.default_rng(4)
    for _ in range(50):
        w = rng.normal(size=40) * (rng.random(40) < 0.1)
        w *= 2.0 / max(np.abs(w).sum(), 1e-9)
        apart = np.abs(np.vstack([model.nodes, np.zeros(3)]) - model.matrix @ w).max(axis=1).min()
        assert apart <= 2.0 / math.sqrt(3) / 6 + 1e-9  # half of the distance between levels


def test_people_scale_down_so_that_no_record_exceeds_the_range():
    model = ProjectedNet(1.0, public_signs(3, 8, RandomSource(7)))
    records = model.records(1e6 * np.ones((5, 8)), np.ones(5))
    sketch = model.task.sketch
    for j in range(sketch.size):
        values = sketch.values(records, np.full(5, j))
        assert (values >= sketch.low[j] - 1e-12).all()
        assert (values <= sketch.high[j] + 1e-12).all()


def test_reports_keep_their_epsilon_from_the_features_on():
    """The worst people for a point of the net, and people with impossible rows; a bit of 1.5 epsilon is seen."""
    model = ProjectedNet(1.0, public_signs(2, 50, RandomSource(11)), 4.0, n_levels=2)
    worst = model.nodes[0] @ model.matrix
    rows = np.array([worst, -worst, np.full(50, 1e300), np.full(50, np.nan)])

    def bits(task, source):
        def send(which):
            records = model.records(rows[which.astype(int)], np.ones(which.size))
            return task.reports(records, source, np.zeros(which.size, int)).bit

        return send

    check_one_bit(bits(model.task, RandomSource(12)), (0, 1, 2, 3), 1.0, n_samples=100_000)
    model.task.__dict__["bit"] = OneBit(1.5)
    with pytest.raises(ContractViolation, match="claimed"):
        check_one_bit(bits(model.task, RandomSource(13)), (0, 1, 2, 3), 1.0, n_samples=100_000)


# ------------------------------------------------------------------------------------------ the printed form
def privacy_losses(model, y, other):
    """Ratio of the change of the noiseless message to the scale of its noise, at every point of the net."""
    value = MARGIN_LOSSES[model.loss]
    lengths = np.linalg.norm(model.nodes, axis=1)
    scales = (value(-lengths) - value(lengths)) / model.epsilon
    messages = [value(model.nodes @ model.matrix @ row) for row in (y, other)]
    return np.abs(messages[0] - messages[1]) / scales


@pytest.mark.parametrize("loss", ["logistic", "smoothed-hinge"])
def test_the_printed_noise_costs_more_than_its_epsilon(loss):
    """A pair of people in the unit ball reaches the certified epsilon, and no pair exceeds it."""
    model = PrintedProjection(1.0, public_signs(3, 300, RandomSource(5)), 1.0, loss)
    assert model.guarantee is None
    assert "length of a projected row" in model.reason
    rng, worst = np.random.default_rng(5), 0.0
    for node in model.nodes[:: len(model.nodes) // 20]:
        y = node @ model.matrix
        y /= np.linalg.norm(y)
        worst = max(worst, privacy_losses(model, y, -y).max())
    for _ in range(200):
        y, other = rng.normal(size=(2, 300))
        losses = privacy_losses(model, y / np.linalg.norm(y), other / np.linalg.norm(other))
        assert losses.max() <= model.certified_epsilon + 1e-9
    assert worst > 0.9 * model.certified_epsilon
    assert model.certified_epsilon > 5.0  # about sqrt(p/m) = 10 for a loss that is nearly linear


def test_the_cost_grows_with_the_number_of_columns():
    costs = [PrintedProjection(1.0, public_signs(2, p, RandomSource(p)), 0.2).certified_epsilon for p in (2, 50, 800)]
    assert costs[0] < costs[1] < costs[2]
    assert costs[2] == pytest.approx(math.sqrt(800 / 2), rel=0.2)


def test_the_printed_fit_has_the_printed_noise():
    """With no signal the mean at a point has the variance 2 (range/epsilon)^2 over its number of people."""
    model = PrintedProjection(1.0, public_signs(1, 3, RandomSource(8)), 1.0, n_levels=2)
    seen = []

    class Watched(PrintedProjection):
        def lifted(self, means):
            seen.append(means.copy())
            return super().lifted(means)

    watched, n = Watched(model.epsilon, model.signs, model.l1_radius, model.loss, model.n_levels), 2_000
    x, y = np.zeros((n, 3)), np.ones(n)
    source = RandomSource(9)
    for _ in range(500):
        watched.fit(x, y, source)
    spread = np.array(seen) - math.log(2.0)
    wanted = 2.0 * 1.0**2 / (n / 2)  # logistic: f(-1) - f(1) = 1
    assert spread.mean() == pytest.approx(0.0, abs=5.0 * math.sqrt(wanted / 1000))
    assert spread.var() == pytest.approx(wanted, rel=0.2)


# ------------------------------------------------------------------------------------------ bad input, tasks
def test_bad_input():
    signs = public_signs(3, 8, RandomSource(10))
    with pytest.raises(InvalidInput, match="loss must be one of"):
        ProjectedNet(1.0, signs, 1.0, "squared")
    with pytest.raises(InvalidInput, match="too large"):
        ProjectedNet(1.0, public_signs(20, 40, RandomSource(10)))
    with pytest.raises(InvalidInput, match="n_levels"):
        ProjectedNet(1.0, signs, 1.0, n_levels=1)
    with pytest.raises(InvalidBudget):
        PrintedProjection(0.0, signs)
    with pytest.raises(InvalidData, match="8 columns"):
        PrintedProjection(1.0, signs).fit(np.ones((3, 7)), np.ones(3), RandomSource(10))
    with pytest.raises(InvalidInput, match="loss must be one of"):
        _ = ProjectedLinearModel(1.0, signs, 1.0, "hinge").task


def test_the_projection_is_part_of_the_task():
    one, other = (ProjectedNet(1.0, public_signs(3, 20, RandomSource(seed))) for seed in (8, 9))
    assert one.task.digest != other.task.digest
    assert one.task.digest != ProjectedNet(1.0, one.signs, 2.0).task.digest
    with pytest.raises(InvalidInput, match="another task"):
        other.estimate(one.task.no_counts())


def test_the_supplement_is_said_to_be_missing():
    text = " ".join(projected_net.__doc__.split())
    assert "supplement that its text does not contain" in text


@pytest.mark.parametrize(
    ("row", "label"),
    [([0.8, 0.8, 0.0], 1.0), ([math.nan, 0.0, 0.0], 1.0), ([0.1, 0.0, 0.0], 0.5), ([0.1, 0.0, 0.0], math.nan)],
)
def test_the_printed_fit_takes_only_people_whom_its_certified_epsilon_covers(row, label):
    model = PrintedProjection(1.0, public_signs(2, 3, RandomSource(14)))
    rows, labels = np.zeros((5, 3)), np.ones(5)
    rows[0], labels[1] = [0.6, 0.8, 0.0], -1.0
    model.fit(rows, labels, RandomSource(15))
    rows[3], labels[3] = row, label
    with pytest.raises(InvalidData, match="unit ball and labels -1 or 1"):
        model.fit(rows, labels, RandomSource(15))


@pytest.mark.parametrize("kind", [ProjectedNet, PrintedProjection])
def test_radii_without_a_usable_net_are_refused(kind):
    signs = public_signs(2, 5, RandomSource(16))
    for bad in (1e-13, 1e300):
        with pytest.raises(InvalidInput, match="l1_radius must lie in"):
            kind(1.0, signs, bad)
    for radius in (1e-6, 1.0, 1e6):
        assert len(kind(1.0, signs, radius, n_levels=5).nodes) == 24  # all but 0
        assert math.isfinite(PrintedProjection(1.0, signs, radius).certified_epsilon)

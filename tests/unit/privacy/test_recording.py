"""What a recorder keeps, what it shows, and what it refuses."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

from dperm import Bounds, DPLogisticRegression
from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.boundary import current_observer
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise, Summands
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.privacy.recording import PublicRelease, Recorder, recording
from dperm.solvers import GradientDescent

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (30, 3))
Y = X[:, 0] > 0.0
MODEL = DPLogisticRegression(bounds=Bounds(features=(-1, 1), classes=[False, True]), solver=GradientDescent(n_steps=3))


@pytest.fixture(scope="module")
def recorder():
    with recording() as made:
        MODEL.fit(X, Y)
    return made


def test_every_release_is_recorded_with_value_and_output(recorder):
    line = MODEL.privacy_report_.releases[0]
    assert [one.query for one in recorder.releases] == ["gradient"] * 3
    for one in recorder.releases:
        assert (one.sensitivity, one.noise_scale, one.size) == (line.sensitivity, line.noise_scale, line.size)
        assert one.event == Gaussian(line.noise_multiplier)
        assert one.mechanism.kind == one.kind == "gaussian"
        assert one.asked.name == "gradient"
        assert np.abs(one.output - one.value).max() < 8.0 * one.noise_scale
    assert recorder.charges == [(one.query, one.event) for one in recorder.releases]
    assert current_observer() is None


def test_a_recorded_fit_is_the_same_fit():
    fits = []
    for _ in range(2):
        fits.append(MODEL.set_params(insecure_seed=3).fit(X, Y).coef_)
        with recording():
            fits.append(MODEL.fit(X, Y).coef_)
    MODEL.set_params(insecure_seed=None)
    assert all(np.array_equal(one, fits[0]) for one in fits)


def test_the_public_log_has_public_numbers_only(recorder):
    log = recorder.public_log()
    assert all(type(one) is PublicRelease for one in log)
    assert all(isinstance(value, str | float | int | Gaussian | None) for one in log for value in vars(one).values())
    assert pickle.loads(pickle.dumps(log)) == log


def test_texts_show_no_value(recorder):
    shown = repr(recorder) + repr(recorder.releases[0])
    assert "array" not in shown
    assert "0x" not in shown
    assert repr(recorder.releases[0].value[0]) not in shown


def test_records_cannot_be_pickled_or_copied(recorder):
    with recording() as local:
        pass
    for thing in (recorder, recorder.releases[0], local):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="private values"):
                attempt(thing)


def test_a_record_does_not_follow_later_changes():
    value = np.zeros(2)
    with recording() as made:
        output = GaussianNoise(1.0).apply(value, 1.0, 10.0, RandomSource())
        kept = output.copy()
        value += 1.0
        output += 1.0
    assert np.array_equal(made.releases[0].value, [0.0, 0.0])
    assert np.array_equal(made.releases[0].output, kept)
    assert not made.releases[0].charged


def test_threads_keep_their_own_charges():
    recorder = Recorder()
    ready = threading.Barrier(2)

    def release(name, multiplier):
        recorder.charged(name, Gaussian(multiplier))
        ready.wait()
        GaussianNoise(multiplier).apply(np.zeros(1), 1.0, 10.0, RandomSource())

    with recording(recorder):
        threads = [threading.Thread(target=release, args=one) for one in (("a", 1.0), ("b", 2.0))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert {one.query: one.mechanism.noise_multiplier for one in recorder.releases} == {"a": 1.0, "b": 2.0}


def test_two_recorders_at_once_are_refused():
    with recording(), pytest.raises(InvalidInput, match="already observed"), recording():
        pass


def test_scores_of_a_race_are_recovered():
    scores = np.random.default_rng(1).uniform(-100.0, 100.0, 300)
    race = TwoLevelRace(scores, 0.5, 3.0, 100.0)
    race.update(np.array([7, 299]), np.array([-99.0, 99.0]))
    scores[[7, 299]] = -99.0, 99.0
    assert np.allclose(race.scores(), scores, rtol=0.0, atol=1e-11)


def test_sizes_are_those_of_values_and_of_summands():
    with recording() as recorder:
        GaussianNoise(1.0).apply(np.zeros(7), 1.0, 10.0, RandomSource())
        SampledGaussianNoise(1.0, rate=0.5).apply(Summands.of_rows(np.ones((4, 3))), 1.0, 10.0, RandomSource())
    assert [one.size for one in recorder.releases] == [7, 3]

"""Functions to audit: right ones, and one planted violation for every attack. A seed makes their noise repeat."""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

EPSILON = 1.0
_rng = np.random.default_rng(20260101)
_started: list[bool] = []


class _Fitted:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class _Kept(_Fitted):
    def __getstate__(self):
        return {"coef_": self.coef_}


def _sums(X):
    return np.clip(X, -1.0, 1.0).sum(axis=0)


def _on_grid(values):
    """Round to a grid, as a stand-in for noise that is drawn there: low-order bits then say nothing."""
    return np.round(np.asarray(values) * 2.0**20) / 2.0**20


def _noisy(X, factor=1.0):
    return _on_grid(_sums(X) + _rng.laplace(0.0, factor * 2.0 * X.shape[1] / EPSILON, X.shape[1]))


def right(X, y):
    return _noisy(X)


def right_with_model(X, y):
    coef = _noisy(X)
    return coef, _Fitted(coef_=coef, n_rows=len(X), loss={"kind": "sum", "history": [float(coef.sum())]})


def too_little_noise(X, y):
    return _noisy(X, 0.4)


def gaussian(X, y, factor=1.0):
    sigma = 2.0 * np.sqrt(X.shape[1]) / 1.0  # mu = 1
    return _on_grid(_sums(X) + _rng.normal(0.0, factor * sigma, X.shape[1]))


def gaussian_with_half_the_noise(X, y):
    return gaussian(X, y, 0.5)


def unclipped(X, y):
    return _on_grid(X.sum(axis=0) + _rng.laplace(0.0, 2.0 * X.shape[1] / EPSILON, X.shape[1]))


def sums_of_added_records(X, y):
    """Claims add-remove neighbours only: its noise is half of what replaced records need."""
    return _noisy(X, 0.5)


def naive_float(X, y):
    return _sums(X) + _rng.laplace(0.0, 2.0 * X.shape[1] / EPSILON, X.shape[1])


def far_tails(X, y):
    """A leak that moves no mean and no sign: a band on both sides of zero is left out if a record is large."""
    noise = _rng.uniform(-8.0, 8.0, 1)
    while np.abs(X).sum() > 0.5 and 2.0 < abs(noise[0]) < 4.0:
        noise = _rng.uniform(-8.0, 8.0, 1)
    return _on_grid(noise)


def exact_attribute(X, y):
    coef = _noisy(X)
    return coef, _Fitted(coef_=coef, info={"mean": float(X.mean())})


def private_attribute(X, y):
    coef = _noisy(X)
    return coef, _Fitted(coef_=coef, _mean=float(X.mean()))


def private_attribute_that_is_not_pickled(X, y):
    coef = _noisy(X)
    return coef, _Kept(coef_=coef, _mean=float(X.mean()))


def rarely_exact(X, y):
    """One run in 250 releases the exact sums: far more than a delta of 1e-5, and too rare for any quantile."""
    return _sums(X) if _rng.random() < 0.004 else _noisy(X)


def one_exact_coordinate(X, y):
    return np.append(_noisy(X), float(np.sum(y)))


def warning_about_targets(X, y):
    if np.mean(y) > 0.45:
        warnings.warn("most records are of the second class", stacklevel=2)
    return _noisy(X)


def printed_data(X, y):
    print("largest value", X.max())
    sys.stderr.write(f"{X.min()}\n")
    return _noisy(X)


def error_about_data(X, y):
    if X[0, 0] > 0.9:
        raise ValueError("the first value is large")
    return _noisy(X)


def same_seed(X, y):
    return _sums(X) + np.random.default_rng(1).laplace(0.0, 4.0, X.shape[1])


def seed_of_the_program(X, y):
    return _on_grid(_sums(X) + np.random.laplace(0.0, 4.0, X.shape[1]))  # noqa: NPY002


def fresh(X, y):
    return _on_grid(_sums(X) + np.random.default_rng().laplace(0.0, 4.0, X.shape[1]))


def slow_fresh(X, y):
    time.sleep(0.05)
    return fresh(X, y)


def without_noise(X, y):
    """Weights that follow the labels: a single run tells who is in."""
    sign = np.where(np.asarray(y) == 1, 1.0, -1.0)
    return X.T @ sign + 1e-3 * _rng.standard_normal(X.shape[1])


def two_columns_only(X, y):
    if X.shape[1] != 2:
        raise ValueError("two columns are needed")
    return _noisy(X)


def raises(X, y):
    raise RuntimeError("no licence found")


def hangs(X, y):
    time.sleep(30.0)
    return np.zeros(1)


def hangs_later(X, y):
    time.sleep(30.0 if _started else 0.6)
    _started.append(True)
    return _noisy(X)


def slow_at_first(X, y):
    if not _started:
        _started.append(True)
        time.sleep(0.5)
    return _noisy(X)


def crashes(X, y):
    import os

    os._exit(7)


def kills_itself(X, y):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


def one_argument(X):
    return _noisy(X)


def needs_a_keyword(X, y):
    raise TypeError("needs_a_keyword() got an unexpected keyword")


def nan_on_one_table(X, y):
    return _noisy(X) * (np.nan if X.max() > 0.9 else 1.0)


def longer_on_one_table(X, y):
    return np.append(_noisy(X), _noisy(X)) if X.max() > 0.9 else _noisy(X)


def constant(X, y):
    return np.zeros(X.shape[1])


def one_number(X, y):
    return _noisy(X).sum()


def returns_text(X, y):
    return "weights"


def returns_nan(X, y):
    return np.array([1.0, np.nan])


def returns_nothing(X, y):
    return []


def changes_length(X, y):
    return _rng.random(int(_rng.integers(1, 4)))


not_a_function = 3

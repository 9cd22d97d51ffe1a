"""The repaired bit of the paper keeps epsilon for every public y and both bits; the printed one does not."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.local.one_bit import LATTICE
from dperm.privacy.local.public_noise_bit import REPAIRS, PublicNoiseBit
from dperm.privacy.randomness import RandomSource
from dperm.testing import ContractViolation
from dperm.testing.local import check_one_bit

YS = np.concatenate([np.linspace(-2.0, 3.0, 201), [-1e300, 1e300, 1e-300]])
VS = np.concatenate([np.linspace(0.0, 1.0, 101), [-9.0, 9.0, np.nan]])


def largest_ratio(mechanism):
    k = mechanism.thresholds(VS[:, None], YS[None, :]).astype(np.longdouble)
    ones = k.max(axis=0) / k.min(axis=0)
    zeros = (LATTICE - k.min(axis=0)) / (LATTICE - k.max(axis=0))
    return max(ones.max(), zeros.max())


@pytest.mark.parametrize("repair", REPAIRS)
def test_no_ratio_exceeds_exp_epsilon(repair):
    for epsilon in (1e-3, 0.01, 0.1, 0.3, 0.5, 0.69, 0.7, 1.0, 2.0, 5.0, 10.0, 16.0):
        ratio = float(np.log(largest_ratio(PublicNoiseBit(epsilon, repair))))
        assert ratio <= epsilon
        assert ratio >= 0.99 * epsilon or epsilon > 8.0


def test_the_same_check_fails_on_the_printed_constants():
    class Printed(PublicNoiseBit):
        constant, inner = 0.5, 0.5

    assert np.log(float(largest_ratio(Printed(0.5)))) == pytest.approx(1.046, abs=1e-3)


@pytest.mark.parametrize("repair", REPAIRS)
def test_the_bits_satisfy_epsilon_and_use_all_of_it(repair):
    source, mechanism = RandomSource(1), PublicNoiseBit(1.0, repair)
    check_one_bit(lambda v: mechanism.report(v, np.full(v.size, 1.5), source), (0.0, 1.0, 0.5), 1.0)
    with pytest.raises(ContractViolation):
        check_one_bit(lambda v: mechanism.report(v, np.full(v.size, 1.5), source), (0.0, 1.0), 0.8)


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_decoding(repair, value):
    source, mechanism, n = RandomSource(2), PublicNoiseBit(1.0, repair), 400_000
    y = mechanism.public_noise(n, source)
    decoded = mechanism.decode(mechanism.report(np.full(n, value), y, source), y)
    error = np.sqrt(mechanism.variance(value) / n)
    assert abs(decoded.mean() - value) < 5 * error
    assert decoded.var() == pytest.approx(mechanism.variance(value), rel=0.05)


def test_refusals():
    with pytest.raises(Unsupported, match=r"epsilon 1\.046"):
        PublicNoiseBit(0.5, "printed")
    with pytest.raises(InvalidInput, match="repair"):
        PublicNoiseBit(0.5, "other")

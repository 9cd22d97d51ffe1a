"""One of several events, drawn at random."""

from __future__ import annotations

import math

import pytest

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import (
    ApproximateDP,
    Composed,
    Gaussian,
    OneOf,
    PoissonGaussian,
    Repeat,
    RepeatAndSelect,
    Selection,
    restate,
)
from dperm.privacy.accounting.neighbours import Neighbours

PARTS = (Gaussian(3.0), Composed((Gaussian(6.0), Selection(4.0, 1.0))))


@pytest.mark.parametrize("order", [1.1, 2.0, 9.0, 60.0])
def test_it_covers_every_draw_and_no_more_than_the_largest(order: float) -> None:
    each = [composition.renyi(part, order) for part in PARTS]
    # the moment of a draw that is released with its index is the average of the moments
    mixed = math.log(sum(math.exp((order - 1.0) * one) for one in each) / 2.0) / (order - 1.0)
    assert mixed <= composition.renyi(OneOf(PARTS), order) == max(each)


def test_epsilon_is_that_of_the_largest_curve() -> None:
    bound = composition.epsilon(OneOf(PARTS), 1e-6)
    each = [composition.epsilon(part, 1e-6) for part in PARTS]
    assert bound.epsilon >= max(composition.renyi_epsilon(part, 1e-6) for part in PARTS)
    assert bound.lower == pytest.approx(min(one.lower for one in each))
    assert composition.zcdp(OneOf(PARTS)) == max(composition.zcdp(part) or math.inf for part in PARTS)
    assert composition.zcdp(OneOf((Gaussian(1.0), PoissonGaussian(1.0, 0.1)))) is None


def test_delta_parts_are_not_forgotten() -> None:
    event = OneOf((Gaussian(3.0), Repeat(ApproximateDP(0.1, 1e-8), 2)))
    assert composition.set_aside(event) == pytest.approx(2e-8)
    assert composition.renyi(RepeatAndSelect(event, 3.0), 2.0) == math.inf


def test_restated_part_by_part() -> None:
    swapped = restate(OneOf(PARTS), Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
    assert swapped == OneOf((Gaussian(1.5), Composed((Gaussian(3.0), Selection(4.0, 1.0)))))
    with pytest.raises(Unsupported):
        restate(OneOf((PoissonGaussian(1.0, 0.1),)), Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)


def test_one_of_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one"):
        OneOf(())

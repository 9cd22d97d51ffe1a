"""Chebyshev coefficients of a smooth function of few numbers, and the error of keeping only low degrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["MOST_DEGREES", "chebyshev_expansion"]

#: largest number of degrees per column: half of the nodes at which a function is sampled
MOST_DEGREES = 32
#: nodes per column, for one to three columns
_NODES = (64, 64, 32)
#: points per column at which an expansion is compared with its function
_FINE = (4096, 192, 40)
#: further points, on no grid, at which they are compared
_SCATTERED = 2048
#: a function whose expansion is off by more than this share of the function's range is not smooth enough
_ROUGH = 0.1


def chebyshev_expansion(
    function: Callable[[FloatArray], Any], low: FloatArray, high: FloatArray, n_degrees: int, lipschitz: float | None
) -> tuple[FloatArray, float]:
    """Return a function's coefficients of degrees below ``n_degrees`` in every column, and their error.

    Without a Lipschitz constant the error is an estimate: the sum of all other coefficients, plus the largest error of
    all coefficients together at points between the nodes, on a grid and off it. With a Lipschitz constant it is a bound
    on the largest difference anywhere between the function and the returned expansion: the largest difference on the
    grid, plus what both can change up to the next grid point.
    """
    d = low.size
    nodes, size = _NODES[d - 1], _FINE[d - 1]

    def called(points: FloatArray) -> FloatArray:
        values = np.asarray(function(low + (points + 1.0) / 2.0 * (high - low)), np.float64)
        if values.shape != (len(points),) or not np.isfinite(values).all():
            raise InvalidInput("a query must return one finite number for every record inside the bounds.")
        return values

    def on_grid(axis: FloatArray) -> FloatArray:
        grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
        return called(grid).reshape((len(axis),) * d)

    sampled = on_grid(np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes))
    found = np.asarray(fft.dctn(sampled, type=2) / nodes**d)
    for one in range(d):
        np.moveaxis(found, one, 0)[0] /= 2.0
    asked = found[tuple(slice(n_degrees) for _ in range(d))]
    # the midpoints of equal cells are not Chebyshev nodes, so they show variation between the nodes
    axis = (2.0 * np.arange(size) + 1.0) / size - 1.0
    values = on_grid(axis)
    if lipschitz is not None:
        _check_lipschitz(values, lipschitz, (high - low) / size)

    def miss(coefficients: FloatArray) -> float:
        table = coefficients
        for one in range(d):
            basis = np.polynomial.chebyshev.chebvander(axis, coefficients.shape[one] - 1)
            table = np.moveaxis(np.tensordot(basis, table, axes=(1, one)), 0, one)
        return float(np.abs(values - table).max())

    # points on no grid show functions that vanish on every grid
    points = _scattered(d)
    table = np.tensordot(np.polynomial.chebyshev.chebvander(points[:, 0], nodes - 1), found, axes=(1, 0))
    for one in range(1, d):
        table = np.einsum("mr...,mr->m...", table, np.polynomial.chebyshev.chebvander(points[:, one], nodes - 1))
    elsewhere = float(np.abs(called(points) - table).max())
    between, spread = max(miss(found), elsewhere), float(np.ptp(values))
    if between > _ROUGH * spread + 1e-9 * float(np.abs(values).max()):
        raise InvalidInput(
            f"this function varies too fast for smooth queries: an expansion at {nodes} nodes per column is off by "
            f"{between:.3g}, and the function's values differ by {spread:.3g}."
        )
    if lipschitz is None:
        return asked, between + float(np.abs(found).sum() - np.abs(asked).sum())
    # |T_r'| <= r^2 and |T_r| <= 1 bound how fast the asked part changes
    squares = np.arange(n_degrees, dtype=np.float64) ** 2
    slopes = [float((np.moveaxis(np.abs(asked), one, -1) @ squares).sum()) for one in range(d)]
    steepest = float(np.linalg.norm(np.array(slopes) * 2.0 / (high - low)))
    return asked, miss(asked) + (lipschitz + steepest) * float(np.linalg.norm(high - low)) / (2.0 * size)


def _scattered(d: int) -> FloatArray:
    """Points spread evenly over the cube: multiples of irrational numbers, modulo 1."""
    steps = np.sqrt([2.0, 3.0, 5.0])[:d]
    return np.asarray(2.0 * np.mod(np.arange(1, _SCATTERED + 1)[:, None] * steps, 1.0) - 1.0)


def _check_lipschitz(values: FloatArray, lipschitz: float, apart: FloatArray) -> None:
    """Refuse a Lipschitz constant that contradicts adjacent grid points, which are ``apart`` from each other."""
    rounding = 1e-9 * float(np.abs(values).max())
    for one, step in enumerate(apart):
        most = float(np.abs(np.diff(values, axis=one)).max())
        if most > lipschitz * step + rounding:
            raise InvalidInput(
                f"lipschitz={lipschitz:g} is too small: this function changes by {most / step:.3g} per unit somewhere."
            )

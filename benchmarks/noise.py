"""Measure the speed of noise and of private selection, relative to numpy's generator in the same run.

python benchmarks/noise.py --size 1000000 --repeats 5
"""

from __future__ import annotations

import argparse
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import platform
import time
from collections.abc import Callable

import numpy as np

from dperm.privacy.mechanisms.lattice import Lattice, floor_noise
from dperm.privacy.mechanisms.selection import TwoLevelRace, gumbel_race
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise
from dperm.privacy.randomness import RandomSource

GAUSSIAN_TARGET = 5e6  # samples per second
RACE_TARGET = 0.1  # seconds for a million scores


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Best time of several runs, after a warm-up run."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of noise and of private selection.")
    parser.add_argument("--size", type=int, default=1_000_000, help="coordinates of a release, candidates of a race")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--integer-size", type=int, default=2_000, help="samples of the slow exact sampler")
    arguments = parser.parse_args()
    size, repeats = arguments.size, arguments.repeats

    source = RandomSource()
    generator = np.random.Generator(np.random.PCG64(0))
    value = np.zeros(size)
    scores = generator.normal(size=size)
    reference = seconds(lambda: generator.standard_normal(size), repeats)
    rows: list[tuple[str, float, int, str]] = [("numpy PCG64 standard_normal", reference, size, "")]

    def add(label: str, run: Callable[[], object], n: int, target: Callable[[float], bool] | None = None) -> None:
        taken = seconds(run, repeats)
        verdict = "" if target is None else ("reached" if target(taken) else "MISSED")
        rows.append((label, taken, n, verdict))

    def fast_enough(taken: float) -> bool:
        return size / taken >= GAUSSIAN_TARGET

    add("numpy PCG64 random words", lambda: generator.integers(0, 2**64, size, np.uint64), size)
    add("AES-256 words", lambda: source.words(size), size)
    for kind in ("gaussian", "laplace"):
        scale = Lattice.design(1.0, 1.0, size, 1.0, kind).scale
        target = fast_enough if kind == "gaussian" else None
        add(f"{kind} cells, scale {scale:.2e}", lambda k=kind, s=scale: floor_noise(size, s, source, k), size, target)  # type: ignore[misc]
    for multiplier in (1.0, 40.0):
        add(
            f"Gaussian release, multiplier {multiplier:g}",
            lambda m=multiplier: GaussianNoise(m).apply(value, 1.0, 1.0, source),  # type: ignore[misc]
            size,
            fast_enough,
        )
    add("Laplace release, multiplier 1", lambda: LaplaceNoise(1.0).apply(value, 1.0, 1.0, source), size)
    few = arguments.integer_size
    add("gaussian cells, integer sampler", lambda: floor_noise(few, 1e6, source, sampler="integer"), few)
    add("laplace cells, integer sampler", lambda: floor_noise(few, 1e6, source, "laplace", sampler="integer"), few)

    add("dense race", lambda: gumbel_race(scores, 1.0, source), size, lambda t: t < RACE_TARGET * size / 1e6)
    race = TwoLevelRace(scores, 1.0, 1.0, 10.0)
    add("two-level race, build", lambda: TwoLevelRace(scores, 1.0, 1.0, 10.0), size)
    add("two-level race, select", lambda: [race.select(source) for _ in range(100)], 100)
    changed = generator.choice(size, 100, replace=False)
    add("two-level race, update 100 scores", lambda: race.update(changed, scores[changed]), 100)

    print(f"{platform.processor() or platform.machine()}, numpy {np.__version__}, one thread, size {size:,}\n")
    print(f"{'':40s}{'time':>12s}{'each':>12s}{'million/s':>12s}{'vs numpy':>10s}  target")
    for label, taken, n, verdict in rows:
        ratio = (taken / n) / (reference / size)
        print(
            f"{label:40s}{1e3 * taken:9.3f} ms{1e9 * taken / n:9.1f} ns{n / taken / 1e6:12.2f}{ratio:10.2f}  {verdict}"
        )


if __name__ == "__main__":
    main()

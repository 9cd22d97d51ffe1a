"""Print the test log loss of certified ADMM sharing for rounds and rho, on noise of its own.

`src/dperm/experiments/admm/settings.py` has what came out well on both. The choice is not paid for: the experiments
compare methods at their best, they are no guide to a private fit.
Run: DPERM_DATA=... python benchmarks/admm_settings.py [--epsilons 1 10] [--runs 3]
"""

from __future__ import annotations

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from dperm.experiments.admm.traces import DELTA, objective
from dperm.experiments.datasets import DataFolder
from dperm.experiments.vertical_problems import ShareSize, a9a, digits, whole
from dperm.privacy import Budget
from dperm.solvers.vertical import AdmmSharing

ROUNDS, RHOS = (40, 80, 200, 400), (0.02, 0.01, 0.005, 0.002)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0, 10.0, 100.0, 1000.0])
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    problems = [make(DataFolder.of_environment(), ShareSize(100_000, 100_000)) for make in (a9a, digits)]
    for epsilon in args.epsilons:
        for rounds in ROUNDS:
            for rho in RHOS:
                losses = []
                for problem in problems:
                    task = AdmmSharing(objective(), problem.facts, Budget(epsilon, DELTA), n_rounds=rounds, rho=rho)
                    runs = [problem.test_loss(whole(problem.run(task)[0].weights)) for _ in range(args.runs)]
                    losses.append(f"{problem.name} {np.mean(runs):.4f}")
                print(
                    f"epsilon {epsilon:g}, {rounds} rounds, rho {rho:g}: test log loss {', '.join(losses)}", flush=True
                )


if __name__ == "__main__":
    main()

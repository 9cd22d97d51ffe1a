"""Worker: DP-SGD through Opacus, rows with a constant column, zero start, PRV accountant."""

from __future__ import annotations

import time
import warnings
from functools import cache
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from peers_data import Problem
from peers_worker import Order, Outcome, main
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")  # warnings about secure noise and hooks, irrelevant for the table


@cache
def calibrated(epsilon: float, delta: float, sample_rate: float, epochs: int) -> tuple[float, float]:
    """Return the noise multiplier and the seconds of its search."""
    start = time.perf_counter()
    multiplier = get_noise_multiplier(
        target_epsilon=epsilon, target_delta=delta, sample_rate=sample_rate, epochs=epochs, accountant="prv"
    )
    return multiplier, time.perf_counter() - start


def fit(problem: Problem, X: Any, y: Any, order: Order) -> Outcome:
    """Run DP-SGD once; the noise is found by the same search as in ``make_private_with_epsilon``."""
    options = order.options
    torch.manual_seed(order.seed)
    rows = torch.tensor(np.column_stack([X, np.ones(len(X))]), dtype=torch.float32)
    data = TensorDataset(rows, torch.tensor(y, dtype=torch.float32))
    loader = DataLoader(data, batch_size=min(options["batch"], len(y) // 2))
    searched = calibrated.cache_info().misses
    multiplier, seconds = calibrated(order.epsilon, order.delta, 1.0 / len(loader), options["epochs"])
    if calibrated.cache_info().misses == searched:
        seconds = 0.0
    model = torch.nn.Linear(rows.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimiser = torch.optim.SGD(model.parameters(), lr=options["lr"])
    model, optimiser, loader = PrivacyEngine(accountant="prv").make_private(
        module=model,
        optimizer=optimiser,
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=options["clip"],
    )
    loss = torch.nn.BCEWithLogitsLoss() if problem.task == "logistic" else torch.nn.MSELoss()
    for _ in range(options["epochs"]):
        for batch, target in loader:
            if len(target) == 0:
                continue
            optimiser.zero_grad()
            loss(model(batch).squeeze(1), target).backward()
            optimiser.step()
    weights = model._module.weight.detach().numpy()[0].astype(float)
    return Outcome.linear(weights[:-1], float(weights[-1]), calibration_seconds=seconds)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(fit)

"""Worker of :mod:`scale_memory`: seconds of one epoch of DP-SGD through Opacus; writes them to a file.

``python benchmarks/scale_opacus.py REQUEST RESULT`` runs in the environment of Opacus: batches of 256, one thread.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from opacus import PrivacyEngine
from scale_worker import table
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    warnings.filterwarnings("ignore")  # about secure noise and hooks, irrelevant for the time
    torch.set_num_threads(1)
    request, result = map(Path, sys.argv[1:3])
    asked = json.loads(request.read_text())
    X, y = table(asked["rows"], asked["columns"])
    data = TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32))
    model = torch.nn.Linear(X.shape[1], 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimiser, loader = PrivacyEngine(accountant="prv").make_private(
        module=model,
        optimizer=optimiser,
        data_loader=DataLoader(data, batch_size=256),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    loss, seconds = torch.nn.BCEWithLogitsLoss(), []
    for _ in range(2):  # the first is a warm-up
        start = time.perf_counter()
        for batch, target in loader:
            if len(target):
                optimiser.zero_grad()
                loss(model(batch).squeeze(1), target).backward()
                optimiser.step()
        seconds.append(time.perf_counter() - start)
    result.write_text(json.dumps(float(np.min(seconds))))


if __name__ == "__main__":
    main()

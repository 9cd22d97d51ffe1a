"""Logistic regression by Opacus (DP-SGD), for an audit in Opacus's own environment.

    dperm audit opacus_logistic:fit --epsilon 1 --delta 1e-5 --neighbours add-remove --in-range \\
        --path examples/audit --python path/to/its/python

Opacus claims epsilon for tables in which one record is added or removed. The number of steps is one over the rate of
sampling, so that each run is short; the noise is set from the claim by Opacus's accountant.
"""

from __future__ import annotations

import warnings
from functools import cache

import torch
from opacus.accountants.utils import get_noise_multiplier
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer

warnings.filterwarnings("ignore")

EPSILON, DELTA = 1.0, 1e-5
RATE, STEPS, CLIP = 0.5, 4, 1.0
#: divides every step; a constant, because the number of records is not public when one may be added
EXPECTED_BATCH = 4.0


@cache
def _noise_multiplier():
    return get_noise_multiplier(
        target_epsilon=EPSILON, target_delta=DELTA, sample_rate=RATE, steps=STEPS, accountant="rdp"
    )


def fit(X, y):
    """Return weights and intercept after a few steps on Poisson samples."""
    rows = torch.as_tensor(X, dtype=torch.float32)
    labels = torch.as_tensor(y.astype(float), dtype=torch.float32)
    linear = torch.nn.Linear(rows.shape[1], 1)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    model = GradSampleModule(linear)
    optimiser = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=_noise_multiplier(),
        max_grad_norm=CLIP,
        expected_batch_size=EXPECTED_BATCH,
    )
    for _ in range(STEPS):
        chosen = torch.rand(len(rows)) < RATE
        optimiser.zero_grad()
        # an empty sample still gets its noise
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            model(rows[chosen]).ravel(), labels[chosen], reduction="sum"
        )
        loss.backward()
        optimiser.step()
    return torch.cat([linear.weight.detach().ravel(), linear.bias.detach().ravel()]).double().numpy()

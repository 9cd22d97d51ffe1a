"""The list of all experiments, in the order in which `dperm experiment list` shows them."""

from __future__ import annotations

from dperm.errors import InvalidInput
from dperm.experiments.experiment import Experiment
from dperm.experiments.greedy import table3

__all__ = ["EXPERIMENTS", "experiment_named"]

EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (table3.EXPERIMENT,)}


def experiment_named(name: str) -> Experiment:
    """Return the experiment of a name."""
    if name not in EXPERIMENTS:
        raise InvalidInput(f"no experiment is called {name!r}: choose one of {', '.join(EXPERIMENTS)}, or all.")
    return EXPERIMENTS[name]

"""The list of all experiments, in the order in which `dperm experiment list` shows them."""

from __future__ import annotations

from dperm.errors import InvalidInput
from dperm.experiments.admm import figure1 as admm_figure1
from dperm.experiments.admm import figure2 as admm_figure2
from dperm.experiments.admm import figure3 as admm_figure3
from dperm.experiments.blocks import importance
from dperm.experiments.blocks import table1 as block_table1
from dperm.experiments.experiment import Experiment
from dperm.experiments.frank_wolfe import table1 as frank_wolfe_table1
from dperm.experiments.frank_wolfe import table2 as frank_wolfe_table2
from dperm.experiments.frank_wolfe import uplink
from dperm.experiments.greedy import figure1, figure2, figure3, figure4, table1, table3, table4
from dperm.experiments.local import marginals, projection, queries, risk, server
from dperm.experiments.local import table1 as local_table1

__all__ = ["EXPERIMENTS", "experiment_named"]

_ALL = (
    table1.EXPERIMENT,
    figure1.EXPERIMENT,
    figure2.EXPERIMENT,
    table4.TABLE2,
    table3.EXPERIMENT,
    figure3.EXPERIMENT,
    table4.TABLE4,
    figure4.EXPERIMENT,
    admm_figure1.EXPERIMENT,
    admm_figure2.EXPERIMENT,
    admm_figure3.EXPERIMENT,
    frank_wolfe_table1.EXPERIMENT,
    frank_wolfe_table2.EXPERIMENT,
    uplink.EXPERIMENT,
    block_table1.EXPERIMENT,
    importance.EXPERIMENT,
    local_table1.EXPERIMENT,
    risk.EXPERIMENT,
    server.EXPERIMENT,
    projection.EXPERIMENT,
    marginals.EXPERIMENT,
    queries.EXPERIMENT,
)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _ALL}


def experiment_named(name: str) -> Experiment:
    """Return the experiment of a name."""
    if name not in EXPERIMENTS:
        raise InvalidInput(f"no experiment is called {name!r}: choose one of {', '.join(EXPERIMENTS)}, or all.")
    return EXPERIMENTS[name]

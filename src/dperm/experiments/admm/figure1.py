"""Figure 1 of the ADMM sharing paper: objective and test log loss per epoch on a9a, ADMM and stochastic descent."""

from __future__ import annotations

from dperm.experiments.admm.traces import PAPER, TraceSettings, measure_traces
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.result import Result
from dperm.experiments.vertical_problems import FILES, a9a

__all__ = ["EXPERIMENT"]

_CURVES = "the paper shows curves and prints no number for this data set"
_SAID = {
    "ADMM, averaged step": ("same as SGD", _CURVES),
    "ADMM, printed step": ("same as SGD", _CURVES),
    "SGD": ("same as ADMM", _CURVES),
    "epochs ADMM, averaged step": (
        "slightly more than SGD",
        "with the best rho that we tried it takes few rounds; the paper's rho is not printed",
    ),
    "epochs ADMM, printed step": ("slightly more than SGD", "the printed step needs a larger rho, and so more rounds"),
    "epochs SGD": ("slightly fewer than ADMM", "batch and step are not printed; the best that we tried"),
}


def measure(run: Run) -> Result:
    """Follow the methods on a9a."""
    return measure_traces(run, a9a, _SAID)


EXPERIMENT = Experiment(
    name="admm-figure1",
    paper=PAPER,
    what="objective and test log loss per epoch on a9a, ADMM and SGD",
    minutes=0.4,
    measure=measure,
    full=TraceSettings(epochs=60, rho=0.03, printed_rho=0.3, batch=256, step=1.0, rows=100_000, columns=100_000),
    fast=TraceSettings(epochs=8, rho=0.03, printed_rho=0.3, batch=64, step=1.0, rows=2000, columns=123),
    data=(FILES["a9a"],),
)

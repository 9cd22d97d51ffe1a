"""Figure 2 of the ADMM sharing paper: the same on MNIST 4 against 9 in three parts, in place of gisette."""

from __future__ import annotations

from dperm.experiments.admm.traces import PAPER, TraceSettings, measure_traces
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.result import Result
from dperm.experiments.vertical_problems import FILES, digits

__all__ = ["EXPERIMENT"]

_OTHER = "other data: gisette is not there. MNIST 4 against 9, from which gisette was made, in parts of 2 : 2 : 1"
_SAID = {
    "ADMM, averaged step": (".08", _OTHER),
    "ADMM, printed step": (".08", _OTHER),
    "SGD": (".1", f"{_OTHER}. Our descent is the best of the steps that we tried"),
    "epochs ADMM, averaged step": ("a few", _OTHER),
    "epochs ADMM, printed step": ("a few", _OTHER),
    "epochs SGD": ("many more than ADMM", _OTHER),
}


def measure(run: Run) -> Result:
    """Follow the methods on the digits."""
    return measure_traces(run, digits, _SAID)


EXPERIMENT = Experiment(
    name="admm-figure2",
    paper=PAPER,
    what="the same on MNIST 4 against 9 in three parts, in place of gisette",
    minutes=1.1,
    measure=measure,
    full=TraceSettings(epochs=100, rho=0.01, printed_rho=0.03, batch=128, step=1.0, rows=100_000, columns=100_000),
    fast=TraceSettings(epochs=8, rho=0.01, printed_rho=0.03, batch=64, step=1.0, rows=2000, columns=60),
    data=(FILES["digits"],),
)

"""The local model: every person sends one index and one bit, once; nobody is trusted.

A :class:`Task` says what is asked, a :class:`Sketch` which statistics; :class:`Counts` hold all that was answered.
"""

from dperm.solvers.local.chebyshev import Chebyshev
from dperm.solvers.local.descent import DescentState, GradientCoordinates, LocalDescent
from dperm.solvers.local.forecasts import LocalForecast
from dperm.solvers.local.linear_models import LinearTask
from dperm.solvers.local.moments import Moments
from dperm.solvers.local.parity import Parity
from dperm.solvers.local.quadratic import Estimate
from dperm.solvers.local.sketch import SKETCHES, Sketch
from dperm.solvers.local.task import Counts, Reports, Task
from dperm.solvers.local.theta_grid import ThetaGrid, ThetaGridTask

__all__ = [
    "SKETCHES",
    "Chebyshev",
    "Counts",
    "DescentState",
    "Estimate",
    "GradientCoordinates",
    "LinearTask",
    "LocalDescent",
    "LocalForecast",
    "Moments",
    "Parity",
    "Reports",
    "Sketch",
    "Task",
    "ThetaGrid",
    "ThetaGridTask",
]

"""Methods of the local model: every person sends one index and one bit, once, and no collector is trusted.

A :class:`Task` describes a collection, a :class:`Sketch` its statistics, and :class:`Counts` hold the answers. The
other modules estimate models and queries from counts. Code here may import :mod:`dperm.privacy.local`, randomness and
kernels. Private records enter through ``Task.reports`` and the published algorithms in ``bernstein_mechanisms``;
everything else uses public numbers and counts. A new statistic is a subclass of :class:`Sketch` in its own file; a new
way of collecting is a file here with its proof next to it.
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

"""Published convergence and utility bounds: rates, curvature constants, forecasts and the analysis of Frank-Wolfe.

Nothing here touches data, and no guarantee depends on it: a mistake here can make a forecast wrong, never a fit less
private. It may import the objective, public facts, calibrated plans and :mod:`dperm.solvers.coordinate_sampling`.
Only the ``forecast`` methods of solvers, tests, benchmarks and users import it; ``plan`` and ``solve`` methods never
do. A new bound goes into the file of its method, with its theorem in the docstring; what ``plan`` shows to users goes
into :mod:`~dperm.solvers.theory.forecasts`.
"""

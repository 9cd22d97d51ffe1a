"""The experiments of the paper on Frank-Wolfe over features: Lou and Cheung, AAAI 2018.

``lasso`` is its problem on real columns; each other file is one table or figure. Bounds are in
:mod:`dperm.solvers.theory`.
"""

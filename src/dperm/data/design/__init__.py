"""The design matrix: the user's columns clipped, scaled and rounded to an exact grid by public constants.

``bounds.py`` holds what users declare, ``scaling.py`` the constants and the rounding, ``matrix.py`` the matrix and its
operations (start at :class:`~dperm.data.design.matrix.DesignMatrix`), for all rows or for a block of them. Every
operation returns whole numbers that do not depend on storage or order. May import ``data.tables``,
:mod:`dperm.objective` and :mod:`dperm.kernels`. A new operation goes into ``matrix.py``; a new place to keep rows is an
executor (:mod:`dperm.data.executors`).
"""

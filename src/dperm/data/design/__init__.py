"""The design matrix: the user's columns clipped, scaled and rounded to an exact grid by public constants.

``bounds.py`` holds what users declare, ``scaling.py`` the constants and the rounding, ``matrix.py`` the matrix and its
operations (start at :func:`~dperm.data.design.matrix.build_design`), ``chunked.py`` the same matrix in blocks of rows,
on disk or on a Dask cluster. Every operation returns whole numbers that do not depend on storage or order. May import
``data.tables``, :mod:`dperm.objective` and :mod:`dperm.kernels`. A new way to store rows is a subclass of
:class:`~dperm.data.design.chunked.Blocks`; a new operation goes into ``matrix.py`` and ``chunked.py`` together.
"""

"""The data layer: from a user's table to a private design, and the holder that releases values from it.

``tables`` reads files and tables of other libraries, ``design`` clips and scales them with public constants, ``schema``
declares what is public about named columns, ``executors`` keeps the scaled rows where they are and computes on them
block by block, and ``holding`` keeps the private data and releases query values with noise. Imports point from
``executors`` and ``schema`` to ``holding`` to ``design`` to ``tables``; nothing here imports queries, solvers or
estimators. Names, types and numbers of columns and rows are public, values are not: error messages never contain
one.
"""

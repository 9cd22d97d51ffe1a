"""Inner loops and exact arithmetic: functions of plain arrays and numbers, most of them compiled by numba.

Nothing here knows about people, queries or budgets, and nothing of dperm is imported but ``errors``, ``types`` and
``validation``. Every result must be the same bit for bit at any position, in any order of the rows and with any number
of threads; a module that rounds states why in a ``*.proof.md`` beside it. A new loop over private arrays goes here,
into the module of the data it reads; modules with compiled code are imported inside functions, when they are needed.
"""

"""Where a collector keeps its counts.

A :class:`~dperm.collect.store.store.Store` has four parts: a ``Database`` (SQLite or PostgreSQL), the ``Registry`` of
its collections, the ``Counters``, and the ``Steps`` in which estimates are published. Only this folder writes SQL. It
imports the description of a collection and the counts of the local solvers, never the service. Another database
implements ``Database`` in a module of its own and is chosen in ``open_store``. Every change here needs another look at
``store.proof.md``.
"""

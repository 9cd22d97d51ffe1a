"""Where the rows of a fit are and who computes on them: threads, local files, a Dask cluster, a Spark cluster.

A query is computed block by block: ``query.part`` runs where the rows of a block are, and only exact sums over people
come back (see :class:`~dperm.data.executors.executor.Executor`). Sums of whole numbers do not depend on their order, so
every executor gives the same bits. Start at :func:`~dperm.data.executors.placing.place`, which chooses one. A new
executor subclasses ``Executor`` in a module of its own and gets a line there. Proof: ``executor.proof.md``.
"""

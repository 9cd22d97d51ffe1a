"""Central solvers: one trusted data holder has all records, and everyone may see the model and every released step.

One file per method, with a proof of the same name next to it that says what is released and what it costs. A solver
imports queries, mechanisms, the objective and the interface in :mod:`dperm.solvers.base`, and reaches the data through
``holder.release`` only. A new solver is its file, its proof, and one line in :data:`dperm.solvers.SOLVERS`.
"""

"""Estimators of the local model: linear models and queries fitted from one report per person.

An estimator turns its parameters into a task of :mod:`dperm.solvers.local`, simulates a collection or takes the counts
of a real one, charges the ledger and writes the privacy report. All charging is in
:mod:`~dperm.estimators.local.report`. It may import solvers, data and privacy, never the collector. A new local
estimator is a file here that builds on ``LocalFit`` or ``_LocalQueries``, is named in ``dperm.estimators`` and is
covered by ``linear_models.proof.md``.
"""

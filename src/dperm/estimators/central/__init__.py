"""The central model: private linear models and their tuner, fitted by one holder of all data.

``base.py`` holds the parameters and the request of a fit, ``data_checks.py`` the checks of X and y, ``request.py`` the
plan, ``fit.py`` the fit itself (:class:`FitRun`, one method per stop), ``ranges.py`` the purchase of ranges and
``report.py`` the report; ``search.py`` and ``tuning.py`` repeat fits in one budget, ``scoring.py`` pays for a score.
Data are read through :class:`dperm.data.holding.holder.DataHolder` only, inside a scope of the ledger. May import
``solvers``, ``queries``, ``data``, ``privacy`` and ``estimators/persistence``. A new model subclasses
``PrivateClassifier`` or ``PrivateRegressor`` in a file of its own and is listed in ``estimators/__init__.py``.
"""

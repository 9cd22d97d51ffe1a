"""The automatic rule, ``solver="auto"``: it chooses a solver from public facts, and its own solvers live here.

Public numbers come first: ``constants.py`` (all numbers of the rule), ``scales.py`` (typical sizes of a loss),
``costs.py`` (predicted costs), ``shares.py`` (budget shares); ``rule.py`` chooses. None of them releases anything.
``whitened.py`` then releases, in this order: the target mean or class counts and the target's mean deviation (both in
``starting_point.py``), the mean row length, the second moments (read by ``metric.py``) and ``n_steps`` gradients.
``shrinkage.py`` post-processes the result; in regression ``posterior.py`` and ``column_selection.py`` do. ``wide.py``
and ``pursuit.py`` also begin with ``starting_point.py``: the first then descends without a metric and releases a refit
(``refit.py``, ``class_refit.py``), the second alternates a column selection with one gradient coordinate.
``wide_or_sparse.py`` releases a test and then does what one of these two does, or both.

Modules here touch data through ``holder.release`` only; they may import queries, mechanisms, accounting and
``solvers.base``, never estimators. A new release of the automatic rule goes into three places: the ``plan`` of its
solver (with its budget share, which ``rule.py`` sets), the ``solve`` of the same solver (or ``starting_point.py`` if
all need it), and the solver's proof file.
"""

"""What runs compute: for each method, the handlers that connect its programs with a participant's data and ledger.

To add a vertical training method:

1. write the task and its two programs, with a proof, in ``dperm/solvers/vertical/``, and add one line to ``TASKS``
   there; :mod:`training` serves every task in ``TASKS``, so nothing is needed here.

To add a method that trains no model (as :mod:`connection_test`, :mod:`alignment` and :mod:`prediction`):

1. write its programs and handlers (``PartyHandler`` and ``CoordinatorHandler`` of ``session/spec.py``) in a module
   here, with a proof beside it if it makes a claim;
2. add one line to ``PARTY_HANDLERS`` and one to ``COORDINATOR_HANDLERS`` in :mod:`registry`.

Methods may import ``session`` and the rooms below it, and the configuration and tables of ``participant``, but not its
policy: the policy decides first whether a method is run at all.
"""

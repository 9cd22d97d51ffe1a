"""Contract checks: public, for dperm's own tests and for extensions.

Each check raises :class:`ContractViolation` with one sentence that says what does not hold. The checks test the claims
of the proofs in different ways, because each has found a defect that the others missed:

============================  ==========================================================================
:func:`check_query`           declared sensitivity on random and worst-case neighbours, under both relations
:func:`check_mechanism`       the noise has the claimed distribution (and the test would detect another one)
:func:`check_density`         exact output probabilities in one dimension against the claimed event
:func:`check_choice`          exact choice probabilities of a selection against the claimed event
:func:`check_local_report`    exact ratios, law and decoding of a report that people send themselves
:func:`check_event`           an event's curves are consistent with each other
:func:`check_solver`          ledger equals plan, non-interference, noise-free limit, gradient canary
:func:`check_recorded`        a whole fit: total cost by other libraries, and every sensitivity on neighbouring tables
:func:`check_whole_path`      with blind mechanisms nothing that anybody sees depends on the data, to the last byte
============================  ==========================================================================

A new query, mechanism, solver or report is enrolled by its registry and an example in ``examples.py`` (reports:
``local.py``). Whole paths (estimators, searches, scores, protocols) are listed in ``whole_path/``. A new check goes
into the module of what it checks and into the table above. This package may import everything up to ``estimators``,
``vertical`` and ``collect``; tests and ``dperm.audit`` import it, nothing else.
"""

from dperm.testing._violation import ContractViolation
from dperm.testing.canary import check_gradient_canary
from dperm.testing.density import check_choice, check_density
from dperm.testing.distribution import check_mechanism
from dperm.testing.events import check_event
from dperm.testing.examples import MECHANISM_EXAMPLES, QUERY_EXAMPLES, SOLVER_EXAMPLES
from dperm.testing.local import LOCAL_EXAMPLES, check_local_report
from dperm.testing.replay import check_recorded, check_run
from dperm.testing.sensitivity import check_query
from dperm.testing.solvers import check_ledger_is_plan, check_noise_free_limit, check_non_interference, check_solver
from dperm.testing.whole_path import check_whole_path

__all__ = [
    "LOCAL_EXAMPLES",
    "MECHANISM_EXAMPLES",
    "QUERY_EXAMPLES",
    "SOLVER_EXAMPLES",
    "ContractViolation",
    "check_choice",
    "check_density",
    "check_event",
    "check_gradient_canary",
    "check_ledger_is_plan",
    "check_local_report",
    "check_mechanism",
    "check_noise_free_limit",
    "check_non_interference",
    "check_query",
    "check_recorded",
    "check_run",
    "check_solver",
    "check_whole_path",
]

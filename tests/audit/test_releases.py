"""Every release of dperm against what was charged for it: honest code passes, halved noise is found everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.audit.releases import Verdict, all_cases, audit_case
from dperm.audit.releases.cases import SPARSE
from dperm.audit.releases.moves import GroupSamples, ReportMove
from dperm.audit.releases.whole_run import audit_whole_run
from dperm.errors import Unsupported
from dperm.privacy.local.one_bit import OneBit
from dperm.solvers import SOLVERS
from dperm.testing.local import LOCAL_EXAMPLES, OTHER_LOCAL_EXAMPLES
from dperm.testing.weaker_noise import weaker_noise, weaker_reports

CASES = {case.name: case for case in all_cases()}
CENTRAL = [case.name for case in CASES.values() if case.family == "central"]
RELEASES = {
    "whitened, two classes": ("target moment", "row lengths", "mapped second moment", "mapped gradient"),
    "whitened, three classes": ("class counts", "row lengths", "mapped second moment", "mapped gradient"),
    "auto, numbers": ("target moment", "target deviation", "row lengths", "mapped second moment", "mapped gradient"),
    "wide, two classes": (
        "target moment",
        "row lengths",
        "feature gradient",
        "mapped second moment",
        "mapped gradient",
    ),
    "wide, three classes": ("class counts", "row lengths", "feature gradient", "class score gradient"),
    "wide-or-sparse, two classes": (
        "target moment",
        "row lengths",
        "gradient sparsity",
        "descent or pursuit",
        "mapped second moment",
        "mapped gradient",
    ),
    "pursuit, two classes": ("target moment", "greedy scores", "gradient coordinate"),
    "pursuit, numbers": ("target moment", "target deviation", "greedy scores", "gradient coordinate"),
}


#: releases that cannot come close to their sensitivity on the tables of the audit, and the share that they reach
LOOSE = {
    # its two terms have opposite signs and mostly move together
    "gradient sparsity": 0.1,
    # scores of bounded rows are bounded: no two rows have scores that are clipped and orthogonal to each other
    "mapped second moment": 0.3,
}


def groups(releases):
    """Names in the plan; releases of one name that took different numbers of units are measured one by one."""
    return tuple(dict.fromkeys(one.release.partition(" (")[0] for one in releases))


def test_every_solver_and_every_kind_of_target_has_a_case():
    automatic = {"whitened", "wide", "wide-or-sparse", "pursuit"}
    assert set(CENTRAL) == set(SOLVERS) - automatic | {SPARSE}
    assert set(RELEASES) == {case.name for case in CASES.values() if case.family == "automatic"}


def test_every_kind_of_local_report_has_a_case_and_one_that_cannot_be_measured_is_refused():
    kinds = {**LOCAL_EXAMPLES, **OTHER_LOCAL_EXAMPLES}  # compared with all classes in test_boundary.py
    assert {f"{kind} report" for kind in kinds} <= set(CASES)
    move = ReportMove(OneBit(1.0), 4, np.random.default_rng(0), None)
    with pytest.raises(Unsupported, match="cannot be measured"):
        move.measure(np.zeros((4, 3), np.int64), OneBit(1.0), GroupSamples("report", move.event))


@pytest.mark.parametrize("name", CASES)
def test_honest_code_passes_and_halved_noise_would_be_found(name):
    result = audit_case(CASES[name], confidence=0.9999)
    assert result.verdict is Verdict.NOTHING, result.sentences
    assert result.noise_factor >= 0.5
    assert all(one.found <= one.claimed * (1.0 + 1e-9) for one in result.releases)
    # the least is that of greedy scores at weight zero, where logistic slopes are half of their bound
    assert all(ratio > LOOSE.get(query, 0.49) for query, ratio in result.reached.items()), result.reached


@pytest.mark.parametrize("name", CASES)
def test_halved_noise_is_found_in_every_release(name):
    with weaker_noise(), weaker_reports():
        result = audit_case(CASES[name], confidence=0.9999, power=0.6, real_neighbours=False, whole_runs=0)
    assert {one.release: one.verdict for one in result.releases} == {
        one.release: Verdict.VIOLATION for one in result.releases
    }, result.sentences
    assert all(one.found > one.claimed for one in result.releases)


@pytest.mark.parametrize(("name", "release"), [(name, one) for name, all_of in RELEASES.items() for one in all_of])
def test_halved_noise_of_one_release_of_the_automatic_rule_is_found_and_no_other(name, release):
    with weaker_noise(release):
        result = audit_case(CASES[name], confidence=0.9999, power=0.55, real_neighbours=False, whole_runs=0)
    assert groups(result.releases) == RELEASES[name]
    assert groups(one for one in result.releases if one.verdict is Verdict.VIOLATION) == (release,)


SOLVERS_OF_CASES = {case.solver.name: case.solver for case in CASES.values() if case.solver is not None}


@pytest.mark.parametrize("name", SOLVERS)
def test_halved_noise_is_found_in_whole_runs_of_every_solver(name):
    with weaker_noise():
        found = audit_whole_run(SOLVERS_OF_CASES[name])
    assert found.verdict is Verdict.VIOLATION, found

"""Audits of the examples and of dperm's own estimators: OpenDP and dperm pass, textbook noise does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dperm import estimators
from dperm.audit import AuditSettings, Claim, PublicFacts, Subject, Verdict, run_audit
from dperm.audit.attacks import ATTACKS
from dperm.audit.estimators import ESTIMATORS, own_subject
from dperm.errors import InvalidInput

pytestmark = pytest.mark.long

EXAMPLES = str(Path(__file__).resolve().parents[3] / "examples" / "audit")


#: the noise is fresh: a correct method fails by chance in one of ten million tests. Time is no part of these tests.
HOW = {"confidence": 1.0 - 1e-7, "timeout": 600.0}


def audit(module, function, claim, runs):
    subject = Subject(module, function, path=(EXAMPLES,))
    return run_audit(subject, claim, PublicFacts(), AuditSettings(runs=runs, **HOW))


@pytest.mark.parametrize(
    ("function", "claim"),
    [("laplace_sums", Claim(1.0)), ("gaussian_sums", Claim.gaussian(1.0, 1e-5))],
)
def test_opendp_passes(function, claim):
    found = audit("opendp_laplace", function, claim, 6000)
    assert found.verdict is Verdict.NOTHING, found.to_dict()
    assert found.noise_factor > 0.1


def test_textbook_noise_is_found():
    found = audit("naive_laplace", "fit", Claim(1.0), 20_000)
    assert found.verdict is Verdict.VIOLATION
    assert [one.attack for one in found.attacks if one.verdict is Verdict.VIOLATION] == ["float-grid"]


@pytest.mark.parametrize(
    ("name", "settings", "neighbours"),
    [
        ("DPLogisticRegression", {"solver": "gradient"}, "replace-one"),
        ("DPLogisticRegression", {"solver": "objective"}, "zero-out"),
        ("DPRidge", {}, "replace-one"),
        ("LocalLinearRegression", {}, "replace-one"),
        ("Marginals", {}, "replace-one"),
    ],
)
def test_estimators_of_dperm_pass(name, settings, neighbours):
    own = own_subject(name, settings, PublicFacts(n_rows=4), 1.0, None, neighbours)
    # the error about a record that is not made of bits depends on the data, as it must
    how = AuditSettings(runs=700, in_range=name == "Marginals", **HOW)
    found = run_audit(own.subject, own.claim, own.facts, how, name=own.name)
    assert found.verdict is Verdict.NOTHING, found.to_dict()
    assert len(found.attacks) == len(ATTACKS)


def test_every_estimator_is_audited_by_name():
    public = {name for name in estimators.__all__ if hasattr(getattr(estimators, name), "fit")}
    assert public == set(ESTIMATORS)


def test_the_releases_of_a_search_pass():
    settings = {"parameters": {"strength": [0.1, 1.0]}, "estimator": "DPRidge", "expected_runs": 1.5}
    own = own_subject("DPTuner", settings, PublicFacts(n_rows=4), 1.0, None, "replace-one")
    how = AuditSettings(runs=20, attacks=("releases",), **HOW)  # each run is several fits
    found = run_audit(own.subject, own.claim, own.facts, how, name=own.name)
    assert found.verdict is Verdict.NOTHING, found.to_dict()
    assert "squared errors" in [one["release"] for one in found.attacks[0].detail["releases"]]  # the score


def test_a_search_says_which_estimators_it_can_tune():
    with pytest.raises(InvalidInput, match=r"--set estimator must name one of DP.*DPLogisticRegression.*'Marginals'"):
        own_subject("DPTuner", {"estimator": "Marginals"}, PublicFacts(), 1.0, None, "replace-one")
    own = own_subject("DPTuner", {}, PublicFacts(classes=None), 1.0, None, "replace-one")
    assert "DPLinearRegression" in own.name

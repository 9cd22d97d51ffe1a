"""Every attack finds the violation that was planted for it, and none of them finds one in a right function."""

from __future__ import annotations

from pathlib import Path

import pytest

from dperm.audit import AuditSettings, Claim, PublicFacts, Subject, Verdict, run_audit, runner
from dperm.audit.attacks import ATTACKS
from dperm.audit.attacks.one_run import OneRunAttack
from dperm.audit.pilot import Pilot
from dperm.privacy.accounting import gdp

HERE = str(Path(__file__).parent)


def audit(function, *attacks, runs=3000, claim=None, facts=None, **settings):
    # one worker and a number of runs: the noise of seeded subjects then repeats, on a busy machine too
    how = AuditSettings(attacks=attacks or tuple(ATTACKS), runs=runs, n_workers=1, timeout=600.0, **settings)
    subject = Subject("subjects", function, path=(HERE,))
    return run_audit(subject, claim or Claim(1.0), facts or PublicFacts(n_features=1), how)


def of(result, attack):
    return next(one for one in result.attacks if one.attack == attack)


#: for every attack, functions with a violation that it must find, and words of its sentence
PLANTED = {
    "canary": {"too_little_noise": "results with"},
    "density": {"far_tails": "partition of parameter 0"},
    "float-grid": {"naive_float": "bit"},
    "side-channels": {
        "exact_attribute": "info['mean']",
        "private_attribute": "_mean",
        "one_exact_coordinate": "output[1]",
        "warning_about_targets": "warnings",
        "printed_data": "printed text",
        "nan_on_one_table": "form of the result",
        "longer_on_one_table": "form of the result",
    },
    "determinism": {
        "same_seed": "no fresh noise",
        "right": "every new process makes the same noise",  # seeded where the module is imported
    },
    "one-run": {"without_noise": "guesses"},
}


def test_every_attack_has_a_planted_violation_and_a_line_in_the_documentation():
    assert set(PLANTED) == set(ATTACKS) - {"releases"}  # which has tests of its own, in test_releases.py
    page = (Path(__file__).resolve().parents[3] / "docs" / "audit.md").read_text("utf-8")
    for attack in ATTACKS:
        assert f"| `{attack}` |" in page


@pytest.mark.parametrize(
    ("function", "attack", "words"),
    [(function, attack, words) for attack, planted in PLANTED.items() for function, words in planted.items()],
)
def test_a_planted_violation_is_found(function, attack, words):
    result = audit(function, attack)
    (found,) = result.attacks
    assert found.verdict is Verdict.VIOLATION, found
    assert words.lower() in found.sentence.lower()
    assert result.verdict is Verdict.VIOLATION
    assert "does not hold" in result.sentence()
    assert found.advice == ATTACKS[attack].advice
    if found.epsilon is not None:
        assert found.epsilon > 1.0
        assert result.epsilon_found == found.epsilon


@pytest.mark.parametrize("function", ["right", "right_with_model"])
def test_a_right_function_passes(function):
    others = [name for name in ATTACKS if name != "determinism"]  # its noise is seeded, for this test
    result = audit(function, *others, facts=PublicFacts())
    assert result.verdict is Verdict.NOTHING, result.to_dict()
    assert result.epsilon_found <= 1.0
    assert 0.2 < result.noise_factor < 1.0
    assert "No attack contradicts the claim" in result.sentence()
    assert result.runs <= 3300


def test_a_private_attribute_that_a_pickle_leaves_out_is_no_leak():
    (found,) = audit("private_attribute_that_is_not_pickled", "side-channels").attacks
    assert found.verdict is Verdict.NOTHING, found


@pytest.mark.long
def test_an_exact_result_in_few_runs_is_found():
    (found,) = audit("rarely_exact", "density", runs=90_000, claim=Claim(1.0, 1e-5)).attacks
    assert found.verdict is Verdict.VIOLATION, found
    assert "occur again" in found.sentence


def test_fresh_noise_passes_the_search_for_repeats():
    (found,) = audit("fresh", "determinism").attacks
    assert found.verdict is Verdict.NOTHING, found


def test_noise_that_a_program_can_seed_is_a_weakness():
    (found,) = audit("seed_of_the_program", "determinism").attacks
    assert found.verdict is Verdict.WEAKNESS
    assert "seeds the global generator" in found.sentence
    assert "orked processes" in found.sentence


def test_an_error_that_depends_on_data_is_a_weakness():
    found = of(audit("error_about_data", "side-channels"), "side-channels")
    assert found.verdict is Verdict.WEAKNESS
    assert "owner of the data" in found.sentence


def test_values_outside_the_range_are_tried_unless_the_caller_clips():
    claim = Claim(1.0)
    assert audit("unclipped", "canary", claim=claim).verdict is Verdict.VIOLATION
    assert audit("unclipped", "canary", claim=claim, in_range=True).verdict is Verdict.NOTHING


@pytest.mark.long
def test_the_relation_of_the_claim_is_the_one_that_is_tested():
    added = Claim(1.0, neighbours="add-remove")
    assert audit("sums_of_added_records", "canary", "density", claim=added).verdict is Verdict.NOTHING
    assert audit("sums_of_added_records", "canary", claim=Claim(1.0)).verdict is Verdict.VIOLATION
    # through an empty record two steps are allowed
    assert audit("sums_of_added_records", "canary", claim=Claim(1.0, neighbours="zero-out")).verdict is Verdict.NOTHING


@pytest.mark.long
def test_a_claim_of_gaussian_noise_is_tested_closely():
    claim = Claim.gaussian(gdp.epsilon_of(1.0, 1e-5), 1e-5)
    assert claim.mu == pytest.approx(1.0)
    right = audit("gaussian", "canary", claim=claim, facts=PublicFacts(n_features=1))
    wrong = audit("gaussian_with_half_the_noise", "canary", claim=claim)
    assert right.verdict is Verdict.NOTHING
    assert wrong.verdict is Verdict.VIOLATION
    # epsilon alone, without the form of the claim, shows nothing with so few runs
    pure = audit("gaussian_with_half_the_noise", "canary", claim=Claim(claim.epsilon, 1e-5))
    assert pure.epsilon_found < wrong.epsilon_found


def test_results_of_another_form_on_one_table_stop_no_other_attack():
    result = audit("nan_on_one_table", "side-channels", "canary", facts=PublicFacts())
    assert of(result, "side-channels").verdict is Verdict.VIOLATION
    assert of(result, "canary").verdict is not Verdict.VIOLATION


def test_a_constant_result_is_called_constant():
    for attack in ("determinism", "canary"):
        result = audit("constant", attack)
        assert result.attacks[0].sentence == "The result never changes, on two different tables either."
        assert "there is no noise to measure" in result.sentence()
        assert "--seconds" not in result.sentence()
        assert result.verdict is Verdict.TOO_WEAK


def test_a_function_that_returns_few_numbers_is_told_why_one_run_is_left_out():
    (found,) = audit("one_number", "one-run", facts=PublicFacts()).attacks
    assert found.verdict is Verdict.NOT_RUN
    assert "gave it 2 columns and got 1 number;" in found.sentence


def test_runs_and_times_add_up():
    result = audit("right", "side-channels", "canary", runs=600)
    lines = [result.preparation, *result.attacks]
    assert sum(one.runs for one in lines) == result.runs
    assert sum(one.seconds for one in lines) == pytest.approx(result.seconds, abs=5.0)  # a busy machine
    assert result.to_dict()["preparation"]["runs"] == result.preparation.runs > 0


def test_slow_runs_leave_their_time_to_attacks_with_power():
    subject = Subject("subjects", "slow_fresh", path=(HERE,))
    # a hundred runs or so
    how = AuditSettings(attacks=("determinism", "side-channels", "one-run", "canary"), seconds=4.0, n_workers=1)
    result = run_audit(subject, Claim(1.0), PublicFacts(n_features=1), how)
    assert of(result, "determinism").runs == 8
    assert of(result, "side-channels").runs <= 48
    assert of(result, "one-run").verdict is Verdict.NOT_RUN
    assert result.seconds < 60.0


def test_a_function_of_fixed_width_is_audited_too():
    found = of(audit("two_columns_only", "one-run", facts=PublicFacts()), "one-run")
    assert found.verdict is Verdict.NOTHING


def test_runs_on_wide_tables_do_not_decide_how_many_others_there_are(monkeypatch):
    seen = []
    honest = OneRunAttack.run

    def slow(self, context):
        found = honest(self, context)
        context.pool.seconds_per_run = 1e6  # as after runs on a table that takes days
        return found

    def pilot(pool, *given):
        seen.append(pool.seconds_per_run)
        return Pilot(pool, *given)

    monkeypatch.setattr(OneRunAttack, "run", slow)
    monkeypatch.setattr(runner, "Pilot", pilot)
    audit("right", "one-run", "canary", runs=300)
    assert seen[0] < 1e6

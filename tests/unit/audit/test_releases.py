"""The audit of releases: what each planted bug looks like, and what is no bug."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import private_data
from scipy import special

from dperm.audit import AuditSettings, Claim, PublicFacts, Subject, run_audit
from dperm.audit.estimators import own_subject
from dperm.audit.releases import (
    CaseResult,
    ReleaseAudit,
    ReleaseResult,
    Verdict,
    all_cases,
    audit_case,
    audit_releases,
)
from dperm.audit.releases.cases import SPARSE
from dperm.audit.releases.judging import reused_noise
from dperm.audit.releases.measurements import Choices, NoiseScale
from dperm.audit.releases.page import releases_page
from dperm.data.holding.holder import DataHolder
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.mechanisms import lattice, objective_perturbation, sampled_noise
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective
from dperm.privacy.mechanisms.standard import GaussianNoise, Mechanism
from dperm.privacy.randomness import KeyedWords, RandomSource
from dperm.queries.gradients import GradientBlock
from dperm.testing.weaker_noise import weaker_noise, weaker_reports

CASES = {case.name: case for case in all_cases()}
#: runs before the first attack: two in each of two processes, which differ, and two on the neighbour
WARM_UP = 6


def audit(name, **options):
    return audit_case(CASES[name], **{"real_neighbours": False, "whole_runs": 0, "power": 0.6, **options})


@pytest.mark.parametrize("name", ["newton", "frank-wolfe", "objective", "one-bit report", "admm-sharing"])
def test_honest_code_passes(name):
    result = audit(name, power=0.5)
    assert result.verdict is Verdict.NOTHING, result.sentences
    assert result.noise_factor >= 0.5
    assert all(0.0 < one.found <= one.claimed for one in result.releases)


@pytest.mark.parametrize("name", ["newton", "frank-wolfe", "objective", "admm-sharing", "distributed-frank-wolfe"])
def test_halved_noise_is_found(name):
    with weaker_noise():
        result = audit(name)
    assert all(one.verdict is Verdict.VIOLATION for one in result.releases)
    assert all(one.found > one.claimed for one in result.releases)


def test_halved_noise_of_one_release_is_found_there():
    with weaker_noise("second moment"):
        result = audit("newton")
    assert [one.release for one in result.releases if one.verdict is Verdict.VIOLATION] == ["second moment"]


class TestPlantedBugs:
    """Each at the place where it would be made."""

    def test_a_lattice_with_half_the_noise(self, monkeypatch):
        release = Lattice.release
        monkeypatch.setattr(
            Lattice, "release", lambda self, *given: release(replace(self, scale=0.5 * self.scale), *given)
        )
        assert audit("blocks").verdict is Verdict.VIOLATION

    def test_a_sampler_with_half_the_noise(self, monkeypatch):
        floor_noise = lattice.floor_noise

        def halved(n, scale, *given, **options):
            return floor_noise(n, 0.5 * scale, *given, **options)

        monkeypatch.setattr(lattice, "floor_noise", halved)
        assert audit("newton").verdict is Verdict.VIOLATION

    def test_noise_of_a_perturbed_objective_alone(self, monkeypatch):
        floor_noise = objective_perturbation.floor_noise

        def halved(n, scale, *given, **options):
            return floor_noise(n, 0.5 * scale, *given, **options)

        monkeypatch.setattr(objective_perturbation, "floor_noise", halved)
        result = audit("objective")
        assert "noise: the noise is smaller than charged" in result.releases[0].sentence
        assert "minimiser" not in result.releases[0].sentence

    def test_noise_on_its_minimiser_alone(self, monkeypatch):
        output = PerturbedObjective.output_lattice

        def halved(self, *given):
            honest = output(self, *given)
            return replace(honest, scale=0.5 * honest.scale)

        monkeypatch.setattr(PerturbedObjective, "output_lattice", halved)
        result = audit("objective")
        assert "noise on the minimiser: the noise is smaller than charged" in result.releases[0].sentence

    def test_an_average_of_two_draws(self, monkeypatch):
        draw = GaussianNoise.draw
        monkeypatch.setattr(GaussianNoise, "draw", lambda self, *given: 0.5 * (draw(self, *given) + draw(self, *given)))
        assert audit("gradient", power=0.8).verdict is Verdict.VIOLATION

    def test_one_charge_for_two_uses_of_a_mechanism(self, monkeypatch):
        apply = Mechanism.apply
        monkeypatch.setattr(Mechanism, "apply", lambda self, *given: (apply(self, *given), apply(self, *given))[1])
        assert "2 uses of its mechanism" in audit("newton", n_runs=1).faults[0]

    def test_a_holder_that_uses_no_mechanism(self, monkeypatch):
        monkeypatch.setattr(Mechanism, "apply", lambda self, *given: self.draw(*given))
        assert "0 uses of its mechanism" in audit("newton", n_runs=1).faults[0]

    def test_a_holder_that_mixes_in_the_exact_value(self, monkeypatch):
        release = DataHolder.release

        def mixing(self, query, mechanism, group=None, units=1):
            noisy = release(self, query, mechanism, group, units)
            return 0.5 * (noisy + query.evaluate(private_data(self)))

        monkeypatch.setattr(DataHolder, "release", mixing)
        assert audit("newton").verdict is Verdict.VIOLATION

    def test_a_holder_that_tells_its_mechanism_half_the_sensitivity(self, monkeypatch):
        apply = Mechanism.apply

        def understating(self, value, sensitivity, bound, source):
            return apply(self, value, 0.5 * sensitivity, bound, source)

        monkeypatch.setattr(Mechanism, "apply", understating)
        assert audit("newton").verdict is Verdict.VIOLATION

    def test_the_same_noise_again(self, monkeypatch):
        draw = GaussianNoise.draw

        def repeating(self, value, sensitivity, bound, source):
            return draw(self, value, sensitivity, bound, RandomSource(5))

        monkeypatch.setattr(GaussianNoise, "draw", repeating)
        result = audit("newton")
        assert "not have independent noise" in " ".join(result.sentences)

    @pytest.mark.parametrize("name", ["gradient", "newton"])
    def test_noise_of_the_release_before_the_last(self, name, monkeypatch):
        floor_noise, made = lattice.floor_noise, {}

        def repeating(n, scale, *given, **options):
            before = made.setdefault((n, scale), [])
            fresh = floor_noise(n, scale, *given, **options)
            before.append(before[-2] if len(before) % 4 in (2, 3) else fresh)
            return before[-1]

        monkeypatch.setattr(lattice, "floor_noise", repeating)
        assert "not have independent noise" in " ".join(audit(name).sentences)

    def test_noise_of_one_release_in_many_again_much_later(self, monkeypatch):
        floor_noise, made = lattice.floor_noise, []

        def repeating(n, scale, *given, **options):
            made.append(floor_noise(n, scale, *given, **options))
            return made[20] if len(made) == 60 else made[-1]

        monkeypatch.setattr(lattice, "floor_noise", repeating)
        assert "not have independent noise" in " ".join(audit("gradient").sentences)

    def test_noise_of_one_group_again_in_the_next(self, monkeypatch):
        floor_noise, last = lattice.floor_noise, {}

        def repeating(n, scale, *given, **options):
            noise = floor_noise(n, scale, *given, **options).copy()
            if last and last["scale"] != scale:
                used = min(n, last["units"].size)
                noise[:used] = np.rint(last["units"][:used] * scale)
            last.update(scale=scale, units=noise / scale)
            return noise

        monkeypatch.setattr(lattice, "floor_noise", repeating)
        found = audit("newton")
        assert "second moment and gradient do not have independent noise" in " ".join(found.faults)

    @pytest.mark.parametrize("name", ["gradient", "newton", SPARSE])
    def test_no_noise_on_zeros(self, name, monkeypatch):
        release = Lattice.release
        monkeypatch.setattr(
            Lattice, "release", lambda self, value, *given: np.where(value == 0.0, 0.0, release(self, value, *given))
        )
        assert "on values that are exactly 0 there is less noise" in " ".join(audit(name).sentences)

    @pytest.mark.parametrize("name", ["gradient", "paid score, two classes"])
    def test_no_noise_on_values_at_their_bound(self, name, monkeypatch):
        release = Lattice.release

        def partly(self, value, *given):
            clipped = np.clip(value, -self.bound, self.bound)
            return np.where(np.abs(clipped) >= 0.999 * self.bound, clipped, release(self, value, *given))

        monkeypatch.setattr(Lattice, "release", partly)
        assert "on values at their bound there is less noise" in " ".join(audit(name).sentences)

    @pytest.mark.parametrize("name", ["gradient", "newton"])
    def test_a_tenth_of_the_noise_in_every_16th_release(self, name, monkeypatch):
        floor_noise, count = lattice.floor_noise, iter(range(1, 10**9))

        def rarely(n, scale, *given, **options):
            return floor_noise(n, scale * (0.1 if next(count) % 16 == 0 else 1.0), *given, **options)

        monkeypatch.setattr(lattice, "floor_noise", rarely)
        assert "in some releases there is less noise" in " ".join(audit(name).sentences)

    def test_noise_of_the_right_size_and_another_law(self, monkeypatch):
        """Two values of the right variance: an attacker tells them apart at once."""
        signs = np.random.default_rng(0)

        def two_values(self, value, sensitivity, bound, source):
            scale = self.noise_multiplier * sensitivity
            return np.clip(value, -bound, bound) + scale * signs.choice([-1.0, 1.0], np.shape(value))

        monkeypatch.setattr(GaussianNoise, "draw", two_values)
        assert "not have the charged law" in " ".join(audit("newton").sentences)

    @pytest.mark.long
    def test_a_sample_of_more_people_than_charged(self, monkeypatch):
        sample = sampled_noise.PoissonSample
        monkeypatch.setattr(sampled_noise, "PoissonSample", lambda rate, words: sample(1.3 * rate, words))
        assert "more people are sampled than charged" in " ".join(audit("svrg", n_runs=2).sentences)

    @pytest.mark.long
    def test_the_same_people_in_every_sample(self, monkeypatch):
        sample = sampled_noise.PoissonSample
        monkeypatch.setattr(sampled_noise, "PoissonSample", lambda rate, words: sample(rate, KeyedWords(bytes(32))))
        assert "sampled again" in " ".join(audit("svrg", n_runs=2).sentences)

    def test_a_bit_for_twice_the_epsilon(self, monkeypatch):
        thresholds = OneBit.thresholds
        monkeypatch.setattr(OneBit, "thresholds", lambda self, *given: thresholds(OneBit(2.0 * self.epsilon), *given))
        for name in ("one-bit report", "LocalLogisticRegression"):
            result = audit(name, n_runs=1)
            assert result.verdict is Verdict.VIOLATION
            assert result.releases[0].found > result.releases[0].claimed

    def test_a_bit_for_another_epsilon_than_the_claimed_one(self):
        stated = replace(CASES["one-bit report"], report_epsilon=0.25)
        assert audit_case(stated, n_runs=2).verdict is Verdict.VIOLATION

    def test_a_plan_that_is_not_kept(self, monkeypatch):
        release = DataHolder.release

        def cheaper(self, query, mechanism, group=None, units=1):
            weaker = replace(mechanism, noise_multiplier=0.5 * mechanism.noise_multiplier)
            return release(self, query, weaker, group, units)

        monkeypatch.setattr(DataHolder, "release", cheaper)
        assert "left its plan" in audit("newton", n_runs=1).faults[0]


@pytest.mark.long
def test_an_understated_sensitivity_shows_on_real_neighbours_only(monkeypatch):
    """The noise is half of what it must be, and what the query states about itself hides that."""
    honest = GradientBlock.zero_out_sensitivity
    monkeypatch.setattr(GradientBlock, "zero_out_sensitivity", lambda self, facts: 0.5 * honest(self, facts))
    assert audit("coordinate", power=0.5).verdict is Verdict.NOTHING
    result = audit("coordinate", n_runs=1, real_neighbours=True)
    assert result.verdict is Verdict.VIOLATION
    assert "times what its sensitivity allows" in result.faults[0]


def test_more_noise_than_charged_is_no_violation():
    with weaker_noise(factor=2.0):
        result = audit("newton")
    assert result.verdict is Verdict.WEAKNESS
    assert "accuracy is wasted" in result.sentences[0]


class TestNoiseTests:
    """P-values of honest noise, of the claimed size or larger, are at most p with probability at most p."""

    N_AUDITS, SHARE = 200, 0.05

    @pytest.mark.parametrize("law", ["gaussian", "laplace"])
    @pytest.mark.parametrize("factor", [1.0, 1.5])
    def test_honest_noise(self, law, factor):
        rng = np.random.default_rng(3)
        alarms = np.zeros(2)
        for _ in range(self.N_AUDITS):
            one = NoiseScale(law, 0.0)
            for size in rng.integers(1, 6, 20):
                noise = rng.standard_normal(size) if law == "gaussian" else rng.laplace(size=size)
                one.add(factor * noise, rng.integers(3, size=size))
            alarms += np.array([one.repeats_p_value(), one.missing_p_value()[0]]) <= self.SHARE
        assert (alarms / self.N_AUDITS <= self.SHARE + 0.045).all()  # three standard errors

    def test_the_sequence_of_one_group_is_left_to_the_group(self):
        again = np.arange(5.0)
        assert reused_noise([("a", again), ("a", again)], 1e-3) is None
        assert reused_noise([("a", again), ("b", again)], 1e-3) is not None


class TestPower:
    """The stated power is the real one: noise of that factor is found in 95% of simulated audits, honest noise not."""

    SHARE, N_AUDITS = 1e-3, 2000

    @pytest.mark.parametrize("law", ["gaussian", "laplace"])
    def test_of_a_noise_scale(self, law):
        rng = np.random.default_rng(1)
        draw = rng.standard_normal if law == "gaussian" else rng.laplace
        found = {}
        for factor in (None, 1.0):
            alarms = 0
            for _ in range(self.N_AUDITS):
                one = NoiseScale(law)
                noise = draw(size=40)
                one.add(noise)
                used = one.detectable(self.SHARE) if factor is None else factor
                one.parts = [used * noise]
                alarms += one.p_value() <= self.SHARE
                assert (one.p_value() <= self.SHARE) == (one.largest_factor(self.SHARE) <= 1.0)
            found[factor] = alarms / self.N_AUDITS
        assert abs(found[None] - 0.95) < 0.02
        assert found[1.0] <= 0.006

    def test_of_choices(self):
        rng = np.random.default_rng(2)
        one = Choices(1.5, 0, 200)
        factor = one.detectable(self.SHARE)
        assert 0.5 < factor < 1.0
        alarms = {}
        for used in (factor, 1.0):
            hits = rng.binomial(200, special.expit(1.5 / used), self.N_AUDITS)
            alarms[used] = np.mean([Choices(1.5, int(taken), 200).p_value() <= self.SHARE for taken in hits])
        assert abs(alarms[factor] - 0.95) < 0.02
        assert alarms[1.0] <= 0.006

    def test_too_few_values_find_nothing(self):
        assert Choices(1.5, 3, 4).detectable(1e-6) == 0.0
        assert NoiseScale().detectable(1e-6) == 0.0
        assert Choices(1.5).p_value() == NoiseScale().p_value() == 1.0


def test_cases_share_the_probability_of_a_false_alarm():
    seen = []
    found = audit_releases(
        [CASES["one-bit report"], CASES["randomized-category report"]],
        real_neighbours=False,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 2), (2, 2)]
    assert found.verdict is Verdict.NOTHING
    assert found.to_dict()["cases"][0]["releases"][0]["epsilon_claimed"] == 0.5


class TestAttack:
    """The attack ``releases`` of ``dperm audit``, on an estimator by name."""

    @staticmethod
    def attacked(runs):
        own = own_subject("DPLogisticRegression", {"solver": "coordinate"}, PublicFacts(), 1.0, 1e-5, "replace-one")
        how = AuditSettings(attacks=("releases",), runs=runs, n_workers=1, confidence=1.0 - 1e-7, timeout=600.0)
        result = run_audit(own.subject, own.claim, own.facts, how)
        (found,) = result.attacks
        assert result.runs <= max(runs, found.runs + WARM_UP)
        return found

    @pytest.mark.long
    def test_finds_half_the_noise_of_an_estimator(self):
        with weaker_noise():
            found = self.attacked(60)
        assert found.verdict is Verdict.VIOLATION
        assert "smaller than charged" in found.sentence

    @pytest.mark.long
    def test_finds_nothing_in_the_honest_one(self):
        found = self.attacked(60)
        assert found.verdict is Verdict.NOTHING, found.sentence
        assert found.noise_factor >= 0.5
        assert found.runs == found.detail["runs"] > 1
        assert found.detail["releases"][0]["release"] == "gradient block"

    @pytest.mark.long
    def test_keeps_to_the_number_of_runs(self):
        found = self.attacked(WARM_UP + 1)
        assert found.runs == 1

    def test_is_not_run_on_other_functions(self):
        subject = Subject("subjects", "right", path=(str(Path(__file__).parent),))
        how = AuditSettings(attacks=("releases",), runs=20, n_workers=1)
        (found,) = run_audit(subject, Claim(1.0), PublicFacts(n_features=1), how).attacks
        assert found.verdict is Verdict.NOT_RUN


class TestSentence:
    """The all-clear is given only for what was measured."""

    @staticmethod
    def said(*verdicts, factor=0.5):
        releases = [
            ReleaseResult("s", f"release {k}", "c", verdict, "x", 9, 9, 0.0, 1.0, 0.5, factor * (verdict != "not run"))
            for k, verdict in enumerate(verdicts)
        ]
        found = ReleaseAudit((CaseResult("newton", "central", tuple(releases), (), {}, 1, 0.0),), 0.9999, 0.0)
        return found.sentence()

    def test_nothing_found(self):
        assert self.said(Verdict.NOTHING) == (
            "Every release has at least the noise that was charged for it. Noise 2 times too small would have been "
            "found in any with probability .95."
        )

    def test_not_run(self):
        everything = self.said(Verdict.NOT_RUN)
        assert everything == "No release was measured: nothing is known. Not measured: newton: release 0."
        part = self.said(Verdict.NOTHING, Verdict.NOT_RUN)
        assert part.startswith("Every release that was measured has at least the noise")
        assert "Noise 2 times too small" in part
        assert part.endswith("Not measured: newton: release 1.")
        assert "nothing is known" in ReleaseAudit((), 0.9999, 0.0).sentence()

    def test_weakness(self):
        assert self.said(Verdict.WEAKNESS, Verdict.NOTHING).endswith(
            "with probability .95. Some have more, which wastes accuracy: newton."
        )

    def test_violation(self):
        said = self.said(Verdict.VIOLATION, Verdict.NOT_RUN)
        assert said.startswith("Releases do not have what was charged for them: newton.")
        assert said.endswith("Not measured: newton: release 1.")

    def test_without_power(self):
        assert "find no lack of noise in some of them" in self.said(Verdict.NOTHING, factor=0.0)


def test_a_fast_audit_has_a_case_of_every_kind():
    assert {case.family for case in CASES.values() if case.quick} == {"central", "automatic", "local", "vertical"}
    assert sum(case.quick for case in CASES.values()) == 6


def test_local_reports_are_told_by_the_subject_not_by_its_delta():
    own = own_subject("LocalLogisticRegression", {}, PublicFacts(), 1.0, None, "replace-one")
    assert own.subject.local
    central = own_subject("DPLogisticRegression", {"solver": "frank-wolfe"}, PublicFacts(), 1.0, 1e-5, "replace-one")
    assert not central.subject.local


def test_the_page_shows_every_release_and_every_problem():
    with weaker_reports():
        found = audit_releases([CASES["one-bit report"]])
    page = releases_page(found)
    assert "one-bit report" in page
    assert "Violation." in page
    assert "more closely than charged" in page
    assert page.count("<rect") == 1

"""Mutation testing finds the gap of a small library; its results and explanations are about the present code."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

if not os.environ.get("CI"):
    pytest.importorskip("cosmic_ray", reason="no Cosmic Ray: install the extra `mutants`")

sys.path.insert(0, str(ROOT))
from tools.mutants import explained, measure, report, sampling  # noqa: E402
from tools.mutants import run as run_module  # noqa: E402
from tools.mutants.coverage_map import CoverageMap  # noqa: E402
from tools.mutants.operators import OPERATORS, DeleteCall, ReplaceByOpposite, operator  # noqa: E402
from tools.mutants.run import Run  # noqa: E402
from tools.mutants.runner import Runner  # noqa: E402
from tools.mutants.selection import selected  # noqa: E402

SOURCE = ROOT / "src" / "dperm"

NOISE = '''
"""A small library."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

LIMIT = 4.0


@dataclass(frozen=True)
class Noise:
    scale: int | None = field(default=2, repr=False)

    def __repr__(self) -> str:
        return "Noise" * (1 + 1)

    def charge(self, paid: list[float], *, again: None = None) -> float:
        paid.append(self.cost())
        return min(sum(paid), LIMIT)

    def cost(self) -> float:
        if self.scale < 1:
            warnings.warn(f"scale {1 + 1}", stacklevel=2 + 1)
            raise ValueError("scale is " + "small" * 2)
        return 1.0 / self.scale


def halvings(value: float) -> int:
    count = 0
    while value > 1.0:
        value, count = value / 2.0, count + 1
    return count
'''

TESTS = """
import pytest
from dperm.privacy.noise import Noise, halvings


@pytest.fixture(scope="module")
def paid():
    paid = []
    Noise().charge(paid)
    return paid


def test_halvings():
    assert halvings(8.0) == 3


def test_cost():
    assert Noise(4).cost() == 0.25


def test_refusal():
    with pytest.raises(ValueError), pytest.warns(UserWarning):
        Noise(0).cost()


def test_charge(paid):
    assert paid == [0.5]


def test_nothing():
    assert Noise(1).charge([]) is not None
"""


@pytest.fixture(scope="module")
def small_library(tmp_path_factory):
    """A repository with one module, whose tests leave a gap: the limit of what is paid."""
    root = tmp_path_factory.mktemp("library")
    for name, text in {
        "src/dperm/__init__.py": "",
        "src/dperm/privacy/__init__.py": "",
        "src/dperm/privacy/noise.py": NOISE,
        "tests/unit/privacy/test_noise.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def results(small_library):
    """All mutants of the small library with what came of them, and the run."""
    run = Run(small_library, small_library / ".mutants")
    known, chosen = run.coverage(), sampling.sample(run.source, {"privacy": 1000})
    with contextlib.closing(run.session(chosen, known)) as session, _runner(run) as runner:
        run.run(chosen, known, session, 10.0, runner)
    return run, known, {one: session.outcome(one) for one in chosen}


def _runner(run):
    return contextlib.closing(Runner(run.tree, warm=False, some=1.0))


def outcomes(results, line):
    return {one.after.strip(): found for one, found in results[2].items() if one.before.strip() == line}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_exists_and_does_what_its_example_says(name):
    tool = operator(name)
    for example in type(tool).examples():
        changed = sampling.mutate_code(example.pre_mutation_code, tool, example.occurrence)
        assert (changed or example.pre_mutation_code).split() == example.post_mutation_code.split()


def test_mutants_are_killed_by_the_tests_that_run_their_line(results):
    found = outcomes(results, "return 1.0 / self.scale")["return 1.0 * self.scale"]
    assert found["outcome"] == "killed"
    assert found["by"] in {f"tests/unit/privacy/test_noise.py::test_{name}" for name in ("cost", "charge")}


def test_a_deleted_charge_is_noticed_through_a_shared_fixture(results):
    assert outcomes(results, "paid.append(self.cost())")["pass"]["by"].endswith("::test_charge")


def test_an_endless_loop_ends(results):
    found = outcomes(results, "value, count = value / 2.0, count + 1")
    assert found["value, count = value * 2.0, count + 1"]["outcome"] in ("timeout", "killed")
    assert found["value, count = value / 2.0, count - 1"]["outcome"] == "killed"


def test_a_gap_of_the_tests_is_found(results):
    assert outcomes(results, "return min(sum(paid), LIMIT)")["return max(sum(paid), LIMIT)"]["outcome"] == "survived"
    limits = outcomes(results, "LIMIT = 4.0")
    assert {found["outcome"] for found in limits.values()} == {"survived"}
    assert all(found["ran"] == 2 for found in limits.values())  # the tests of the line that uses the limit


def test_nothing_is_changed_where_nothing_private_is_computed(results):
    lines = {one.before.strip() for one in results[2]}
    assert lines == {
        "LIMIT = 4.0",
        "scale: int | None = field(default=2, repr=False)",
        "paid.append(self.cost())",
        "return min(sum(paid), LIMIT)",
        "if self.scale < 1:",
        "return 1.0 / self.scale",
        "count = 0",
        "while value > 1.0:",
        "value, count = value / 2.0, count + 1",
    }


def test_results_are_kept_until_code_or_tests_change(results, small_library):
    run, known, found = results
    with contextlib.closing(run.session(list(found), known)) as session:
        assert all(session.outcome(one) is not None for one in found)
    test = small_library / "tests" / "unit" / "privacy" / "test_noise.py"
    test.write_text(TESTS + "\n\ndef test_limit():\n    assert Noise(1).charge([9.0]) == 4.0\n")
    again = Run(small_library, small_library / ".mutants")
    survivors = [one for one in found if one.before.strip() == "return min(sum(paid), LIMIT)"]
    known = again.coverage()
    with contextlib.closing(again.session(list(found), known)) as session, _runner(again) as runner:
        assert all(session.outcome(one) is None for one in survivors)
        again.run(survivors, known, session, 10.0, runner)
    assert {session.outcome(one)["by"] for one in survivors} == {"tests/unit/privacy/test_noise.py::test_limit"}


def test_a_killer_that_fails_without_a_mutant_is_noticed(results):
    run, known, _ = results
    with (
        _runner(run) as runner,
        runner.changed("privacy/noise.py", NOISE.replace("/ self.scale", "* self.scale")),
        pytest.raises(SystemExit, match="fails on the original code"),
    ):
        run._check(known.cost, runner)


def test_the_report_lists_survivors_and_explanations(results, tmp_path):
    _, _, found = results
    survivor = next(one for one, result in found.items() if result["outcome"] == "survived")
    reason = explained.Explanation(
        survivor.file,
        survivor.where,
        survivor.before.strip(),
        survivor.after.strip(),
        "utility",
        "Nobody pays so much.",
    )
    rows = report.rows(list(found), {one.key: result for one, result in found.items()}, [reason], tmp_path / "none")
    report.write(tmp_path, rows, {"seed": 1})
    text, data = (tmp_path / "mutants.md").read_text(), json.loads((tmp_path / "mutants.json").read_text())
    assert "utility: Nobody pays so much." in text
    assert survivor.diff in text
    assert [one["explained"] for one in data["mutants"] if one["key"] == survivor.key] == ["utility"]
    assert sum(row.unexplained for row in rows) == sum(r["outcome"] == "survived" for r in found.values()) - 1
    # the next report tells which survivors have been killed since
    killed = {one.key: {"outcome": "killed", "by": "a new test"} for one in found}
    assert "killed by `a new test`" in report.text(
        report.rows(list(found), killed, [], tmp_path / "mutants.json"), {"seed": 1}
    )


def test_lines_are_found_again_when_they_move(results):
    _, known, found = results
    moved = CoverageMap(dict(known.files), dict(known.sources), list(known.tests), list(known.seconds))
    moved.lines = {file: dict(lines) for file, lines in known.lines.items()}
    moved.move_to({**known.sources, "privacy/noise.py": "# a new line\n" + known.sources["privacy/noise.py"]})
    line = next(one.line for one in found if one.before.strip() == "return 1.0 / self.scale")
    assert moved.of("privacy/noise.py", [line + 1]) == known.of("privacy/noise.py", [line]) != set()


def test_the_fastest_tests_come_first(results):
    _, known, found = results
    one = next(one for one in found if one.before.strip() == "if self.scale < 1:")
    tests = selected(one, known, 60.0)
    assert list(tests) == sorted(tests, key=lambda test: (known.cost[test], test))
    assert len(tests) == 4


def test_the_sample_repeats_and_follows_the_seed():
    small = {"data/holding": 6}
    first, again, other = (sampling.sample(SOURCE, small, seed) for seed in (1, 1, 2))
    assert [one.key for one in first] == [one.key for one in again] != [one.key for one in other]
    assert len({(one.file, one.position.start) for one in first}) == 6


def test_our_own_operators_leave_other_code_alone():
    for tool, code in ((DeleteCall(), "x = check(y)\n"), (ReplaceByOpposite(), "least = data.min\n")):
        assert sampling.mutate_code(code, tool, 0) is None


def test_explanations_are_about_code_that_exists():
    known = explained.explanations()
    assert known
    assert explained.stale(known, SOURCE) == []
    invented = explained.Explanation("privacy/randomness.py", "", "no such line", "", "utility", "A wrong one.")
    assert len(explained.stale([invented], SOURCE)) == 1
    with pytest.raises(ValueError, match="kind"):
        explained.Explanation("privacy/randomness.py", "", "", "", "boring", "")


def test_a_test_is_not_stopped_inside_coverage():
    def ask_again(seconds):
        made.append(seconds)

    made = []
    inside, outside = {"measure": measure}, {"measure": measure}
    text = "import sys\nmeasure._stop(0, sys._getframe())"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure.signal, "setitimer", lambda kind, seconds: ask_again(seconds))
        exec(compile(text, measure._COVERAGE + "collector.py", "exec"), inside)
        assert made == [measure._SOON]
        with pytest.raises(measure.TooLong):
            exec(compile(text, "elsewhere.py", "exec"), outside)


@pytest.mark.long
def test_a_test_file_that_hangs_is_left_out(small_library, tmp_path, monkeypatch, capsys):
    tests = sorted(path for path in (small_library / "tests").rglob("test_*.py"))
    hanging = tests[0].with_name("test_hanging.py")
    hanging.write_text("import time\n\n\ndef test_nothing():\n    time.sleep(600)\n")
    monkeypatch.setattr(run_module, "_LONGEST_FILE", 15.0)
    try:
        known = Run(small_library, tmp_path / "work").coverage()
    finally:
        hanging.unlink()  # other tests share the library
    assert "test_hanging.py does not end" in capsys.readouterr().out
    assert any(known.cost)
    assert not any("hanging" in test for test in known.cost)


def test_the_recorded_run_is_whole_and_keeps_its_bar():
    recorded = json.loads((ROOT / "benchmarks" / "results" / "mutants.json").read_text("utf-8"))
    mutants = recorded["mutants"]
    left = [one for one in mutants if one["outcome"] == "survived" and one["explained"] is None]
    assert recorded["mutants without a result"] == 0
    assert len(mutants) >= 300
    assert len(left) < report.LARGEST_UNEXPLAINED * len(mutants)

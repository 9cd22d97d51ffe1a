"""Errors of audited functions are one sentence; answers come in order; another interpreter needs no dperm."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dperm.audit import AuditSettings, Claim, PublicFacts, Subject, run_audit
from dperm.audit.pool import Limits, Pool
from dperm.audit.tables import AuditTable
from dperm.errors import InvalidBudget, InvalidInput, SubjectFailed

HERE = str(Path(__file__).parent)
TABLE = AuditTable(np.zeros((4, 1)), np.array([0, 1, 0, 1]))


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("raises", "subjects:raises raised RuntimeError: no licence found (subjects.py, line "),
        ("crashes", "the process of subjects:crashes ended with code 7."),
        ("returns_text", "it returned str, which is not a vector of numbers; it fails on every table of the audit"),
        (
            "returns_nan",
            "it returned NaN or an infinite number; it fails on every table of the audit, first on 8 rows ",
        ),
        ("returns_nothing", "it returned an empty vector; it fails on every table"),
        ("changes_length", "it returned vectors of different lengths; it fails on every table"),
        ("returns_nan", "Call it on such a table yourself, or say with --rows"),
        ("crashes", "Call it by itself on a table of 8 rows and 2 columns: it must return, not end the process."),
        ("kills_itself", "was ended by signal 11 (a crash of compiled code, or too little memory)."),
        ("one_argument", "it must take fit(X, y), a table and its target, but takes one_argument(X)."),
        ("not_a_function", "module 'subjects' has no function 'not_a_function'."),
        ("missing", "module 'subjects' has no function 'missing'."),
        ("needs_a_keyword", "raised TypeError: needs_a_keyword() got an unexpected keyword (subjects.py, line "),
    ],
)
def test_an_unusable_function_is_one_sentence(function, sentence):
    with pytest.raises(SubjectFailed) as failed:
        run_audit(
            Subject("subjects", function, path=(HERE,)),
            Claim(1.0),
            PublicFacts(),
            AuditSettings(runs=100, n_workers=1, attacks=("canary",)),
        )
    assert sentence in str(failed.value)
    assert "\n" not in str(failed.value)
    assert "<string>" not in str(failed.value)
    assert failed.value.exit_code == 2


def pool_of(function, n_workers=1, **limits):
    return Pool(Subject("subjects", function, path=(HERE,)), n_workers=n_workers, limits=Limits(**limits))


def test_a_first_run_that_hangs_is_stopped(monkeypatch):
    monkeypatch.setattr("dperm.audit.pool._FIRST_RUN_SECONDS", 0.1)
    sentence = (
        r"the first run of subjects:hangs took longer than --timeout 0.2 s and 0.1 s for imports: raise --timeout"
    )
    with pool_of("hangs", run=0.2) as pool, pytest.raises(SubjectFailed, match=sentence):
        pool.outputs(TABLE, 1)


def test_a_later_run_has_the_limit_of_one_run_however_long_the_first_took():
    with pool_of("hangs_later", run=0.3) as pool:
        pool.first_runs(TABLE, 1)
        pool.seconds_per_run = 100.0  # as if the first run had taken so long
        with pytest.raises(SubjectFailed, match=r"one run took longer than 0.3 seconds: raise --timeout"):
            pool.outputs(TABLE, 2)


def test_a_run_that_takes_longer_than_the_audit_is_told_at_once():
    notes = []
    with pool_of("hangs_later", 2, run=60.0, audit=0.3, note=notes.append) as pool:
        pool.first_runs(TABLE, 1)
        (note,) = notes  # not one from each process
        assert note.startswith("the first run takes longer than the whole audit should (0.3 s)")
        with pytest.raises(
            SubjectFailed, match=r"one run takes longer than the whole audit should: raise --seconds 0.3"
        ):
            pool.outputs(TABLE, 2)


def test_the_first_run_of_every_worker_may_take_longer():
    with pool_of("slow_at_first", 2, run=0.1) as pool:
        assert len(pool.first_runs(TABLE, 1)) == 2


def test_the_time_for_a_first_run_is_not_given_again(monkeypatch):
    asked, timer = [], threading.Timer

    def recorded(seconds, stop):
        asked.append(seconds)
        return timer(600.0, stop)

    monkeypatch.setattr("dperm.audit.pool.threading.Timer", recorded)
    with pool_of("right", run=1.0) as pool:
        asked.clear()
        for _ in range(2):
            pool.seeded(TABLE, 0, 1)
    _, told, first, second = asked  # the table, what is told of a long first run, and two runs
    assert (told, first, second) == (math.inf, 121.0, 1.0)


def test_missing_modules_are_told_from_missing_dependencies(tmp_path):
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "broken.py").write_text("fit = 1 +\n")
    for module, sentence in (
        ("no_such_module", "there is no module 'no_such_module' in this environment or in --path."),
        ("needs_more", "module 'needs_more' needs 'not_installed_anywhere', which is not installed here."),
        ("broken", "module 'broken' cannot be imported: SyntaxError"),
    ):
        with pytest.raises(SubjectFailed) as failed, Pool(Subject(module, "fit", path=(str(tmp_path),)), n_workers=1):
            pass
        assert sentence in str(failed.value)


def test_an_interpreter_that_is_missing_or_has_no_numpy_is_named(tmp_path):
    with pytest.raises(SubjectFailed, match="'/no/python' cannot be started: No such file"):
        Pool(Subject("subjects", "right", "/no/python"), n_workers=1).__enter__()
    shell = tmp_path / "python"
    shell.write_text("#!/bin/sh\necho no numpy here >&2\nexit 3\n")
    shell.chmod(0o755)
    with pytest.raises(SubjectFailed, match=r"ended with code 3: no numpy here\."):
        Pool(Subject("subjects", "right", str(shell)), n_workers=1).__enter__()


def test_runs_are_shared_and_answers_stay_in_order(tmp_path):
    (tmp_path / "echo.py").write_text("def fit(X, y):\n    X += 1\n    return X[0]\n")
    tables = [AuditTable(np.full((1, 2), float(k)), np.array([0])) for k in range(3)]
    with Pool(Subject("echo", "fit", sys.executable, (str(tmp_path),)), n_workers=2) as pool:
        for _ in range(2):  # the function changes its argument, not the table
            found = pool.outputs_of(tables, 25)
            assert [np.unique(one).tolist() for one in found] == [[1.0], [2.0], [3.0]]
        assert pool.n_runs == 150


def test_the_worker_needs_only_numpy():
    source = (Path(sys.modules["dperm.audit.pool"].__file__).parent / "worker.py").read_text()
    assert "import dperm" not in source
    assert "from dperm" not in source


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Claim(-1.0), InvalidBudget, "--epsilon must be a finite number above 0"),
        (lambda: Claim(1.0, 1.0), InvalidBudget, "--delta must be at least 0 and below 1"),
        (lambda: Claim(1.0, neighbours="near"), InvalidInput, "neighbours must be one of"),
        (
            lambda: Claim.gaussian(1.0, 0.0),
            InvalidBudget,
            "Gaussian noise has no guarantee at delta 0",
        ),
        (lambda: PublicFacts(n_rows=0), InvalidInput, "--rows must be 1 or more"),
        (lambda: PublicFacts(n_features=0), InvalidInput, "--features must be 1 or more"),
        (lambda: PublicFacts(feature_range=(1.0, 0.0)), InvalidInput, "--range needs two finite numbers"),
        (lambda: PublicFacts(classes=(1, 1)), InvalidInput, "--classes needs two or more different labels"),
        (lambda: AuditSettings(attacks=("magic",)), InvalidInput, "--attacks must be among"),
        (lambda: AuditSettings(confidence=1.0), InvalidInput, "--confidence must be"),
        (lambda: AuditSettings(seconds=0.0), InvalidInput, "--seconds must be above 0"),
        (lambda: AuditSettings(runs=0), InvalidInput, "--runs must be above 0"),
        (lambda: AuditSettings(runs=20), InvalidInput, "--runs 20 are too few: these attacks need"),
        (lambda: AuditSettings(timeout=-1.0), InvalidInput, "--timeout must be above 0"),
        (lambda: AuditSettings(n_workers=0), InvalidInput, "--workers must be above 0"),
    ],
)
def test_bad_settings_are_refused(make, error, sentence):
    with pytest.raises(error, match=f"^{sentence}"):
        make()

"""The mechanism boundary: only checks observe it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import dperm
from dperm.privacy import local
from dperm.privacy.boundary import Observer, observing
from dperm.privacy.local.categories import LocalHashing, RandomizedCategory
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.randomness import RandomSource
from dperm.testing.local import LOCAL_EXAMPLES, OTHER_LOCAL_EXAMPLES

SOURCES = Path(dperm.__file__).parent
CHECKS = ("testing", "audit")
BOUNDARY, RECORDER = SOURCES / "privacy" / "boundary.py", SOURCES / "privacy" / "recording.py"


def test_only_checks_say_where_keys_come_from():
    for path in SOURCES.rglob("*.py"):
        if path.relative_to(SOURCES).parts[0] == "testing" or path == SOURCES / "privacy" / "randomness.py":
            continue
        text = path.read_text()
        assert "keys_from" not in text, path
        assert "_fresh_key" not in text, path


def test_only_checks_observe_and_nobody_looks_into_the_interpreter():
    forbidden = {"__closure__", "cell_contents", "get_referrers", "getclosurevars", "_OBSERVER"}
    for path in SOURCES.rglob("*.py"):
        room = path.relative_to(SOURCES).parts[0]
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if path == BOUNDARY:
            continue
        assert not names & forbidden, path
        assert not any(name.startswith("_DataHolder__") for name in names), path
        if room in CHECKS or path == RECORDER:  # the recorder, which changes no value
            continue
        assert not names & {"observing", "recording"}, path


def local_reports():
    """Every class of ``dperm.privacy.local`` that makes reports."""
    found = set()
    for module in pkgutil.iter_modules(local.__path__, "dperm.privacy.local."):
        for cls in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(cls) and cls.__module__ == module.name and "report" in vars(cls):
                found.add(cls)
    return {cls for cls in found if not inspect.isabstract(cls)}


def test_every_local_report_is_observed():
    class Counts(Observer):
        def __init__(self):
            self.kinds = []

        def report(self, kind, values, draw):
            self.kinds.append(type(kind))
            return draw(values)

    examples = [example for group in (LOCAL_EXAMPLES, OTHER_LOCAL_EXAMPLES) for example, *_ in group.values()]
    assert {type(example) for example in examples} == local_reports()
    for example in examples:
        public = ([1.0, -1.0],) if isinstance(example, PublicNoiseBit) else ()
        counts = Counts()
        with observing(counts):
            example.report([0, 1], *public, RandomSource())
        # the bucket of a hash is reported as a category
        inner = [RandomizedCategory] if isinstance(example, LocalHashing) else []
        assert counts.kinds == [type(example), *inner]


def test_a_report_that_nobody_sees_is_noticed(monkeypatch):
    monkeypatch.setattr(OneBit, "report", OneBit.report.__wrapped__)
    with pytest.raises(AssertionError):
        test_every_local_report_is_observed()

"""Only registered queries and mechanisms may touch private values, wherever another class is defined."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dperm
from dperm.data.holding.holder import Query
from dperm.objective import Logistic
from dperm.privacy.mechanisms import standard
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise, Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.queries import QUERIES, gradients
from dperm.queries.gradients import FullGradient
from dperm.testing import ContractViolation
from dperm.testing.registered import (
    OTHER_MECHANISMS,
    OTHER_QUERIES,
    SHARED_QUERIES,
    RegisteredOnly,
    demand_registered,
    demand_registered_query,
)

GRADIENT = FullGradient(Logistic(), np.zeros(3), None)


def concrete(base):
    """Every class of dperm that derives from ``base`` and can be used."""
    for module in pkgutil.walk_packages(dperm.__path__, "dperm."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError:  # of an optional package
                continue
    found, new = set(), [base]
    while new:
        new = [sub for cls in new for sub in cls.__subclasses__()]
        found |= {cls for cls in new if not inspect.isabstract(cls)}
    return {cls for cls in found if _of_dperm(cls)}


def _of_dperm(cls):
    """Whether a module of dperm has the class under its name; tests define others."""
    return cls.__module__.startswith("dperm.") and getattr(sys.modules[cls.__module__], cls.__qualname__, None) is cls


def test_every_query_is_registered_or_listed_with_its_reason():
    assert concrete(Query) == {*QUERIES.values(), *OTHER_QUERIES, *SHARED_QUERIES}


def test_every_mechanism_is_registered_or_listed_with_its_reason():
    assert concrete(Mechanism) == {*MECHANISMS.values(), *OTHER_MECHANISMS}


def planted_beside(base, module, monkeypatch, **methods):
    """A class that stands in dperm's own module, under its name, and is in no registry."""
    cls = type("Planted", (base,), {"__module__": module.__name__, "__qualname__": "Planted", **methods})
    monkeypatch.setattr(module, "Planted", cls, raising=False)
    return cls


def test_a_query_in_the_right_folder_is_refused_if_it_is_not_registered(monkeypatch):
    demand_registered_query(GRADIENT)
    planted = planted_beside(FullGradient, gradients, monkeypatch, evaluate=lambda self, data: data.target)
    with pytest.raises(ContractViolation, match="not in QUERIES"):
        demand_registered_query(planted(**vars(GRADIENT)))
    assert planted in concrete(Query)  # the test above would name it


def test_a_query_with_another_part_of_its_evaluation_is_refused(monkeypatch):
    planted = planted_beside(FullGradient, gradients, monkeypatch, zero_out_sensitivity=lambda self, facts: 1e-9)
    with pytest.raises(ContractViolation, match="not in QUERIES"):
        demand_registered_query(planted(**vars(GRADIENT)))


@pytest.mark.parametrize("query", SHARED_QUERIES)
def test_a_shared_query_is_not_released(query):
    with pytest.raises(ContractViolation, match="not in QUERIES"):
        demand_registered_query(object.__new__(query))


def test_a_mechanism_in_the_right_folder_is_refused_if_it_is_not_registered(monkeypatch):
    demand_registered(GaussianNoise(1.0))
    planted = planted_beside(GaussianNoise, standard, monkeypatch, draw=lambda self, value, *rest: value)
    with pytest.raises(ContractViolation, match="not in MECHANISMS"):
        demand_registered(planted(1.0))
    assert planted in concrete(Mechanism)


def test_a_mechanism_with_a_method_of_its_own_is_refused():
    noise = GaussianNoise(1.0)
    vars(noise)["draw"] = lambda value, *rest: value
    with pytest.raises(ContractViolation, match="not in MECHANISMS"):
        demand_registered(noise)


def test_threads_do_not_mix_up_their_charges():
    observer, noise, other, source = RegisteredOnly(), GaussianNoise(1.0), GaussianNoise(2.0), RandomSource()

    def begin(mechanism):
        observer.evaluated(GRADIENT, np.zeros(3), None)
        observer.charged("gradient", mechanism.event(GRADIENT.replacement_ratio))

    begin(noise)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(begin, other).result()
        observer.apply(noise, np.zeros(3), 1.0, 1.0, source)  # the charge of the other thread is not its own
        with pytest.raises(ContractViolation, match="no registered mechanism"):
            observer.finish()
        pool.submit(observer.apply, other, np.zeros(3), 1.0, 1.0, source).result()
    observer.finish()


def test_a_charge_that_no_mechanism_used_is_found_at_the_next_one():
    observer = RegisteredOnly()
    observer.charged("gradient", GaussianNoise(1.0).event(2.0))
    with pytest.raises(ContractViolation, match="no registered mechanism"):
        observer.charged("gradient", GaussianNoise(1.0).event(2.0))

"""Checks of single recorded releases: the event states no more noise than there is, and that noise was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from dperm.privacy.accounting.composition import leaves
from dperm.privacy.accounting.events import Event, Gaussian, ObjectivePerturbation, PoissonGaussian
from dperm.privacy.mechanisms.lattice import most_extra
from dperm.privacy.recording import RecordedRelease
from dperm.testing._violation import demand
from dperm.testing.distribution import check_mechanism

__all__ = ["check_drawn_noise", "check_events"]

_REJECT = 1e-9
_LAWS: dict[str, Any] = {"gaussian": stats.norm, "laplace": stats.laplace}
_EVENTS = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "selection": "Selection",
    "joint selection": "Selection",
    "poisson-gaussian": "PoissonGaussian",
    "objective": "ObjectivePerturbation",
}


def check_events(entries: Sequence[RecordedRelease]) -> None:
    """Demand that every event is of its mechanism's kind and states the noise that sensitivity and scale give."""
    for entry in entries:
        demand(entry.charged, f"{entry.query}: a value was released that was not charged.")
        found = [leaf for leaf in leaves(entry.event) if type(leaf).__name__ == _event_name(entry)]
        demand(len(found) == 1, f"{entry.query!r} is charged as {entry.event}, not as noise of kind {entry.kind!r}.")
        stated = found[0].noise_multiplier  # type: ignore[attr-defined]
        real = entry.noise_scale / entry.sensitivity
        demand(
            stated <= real * (1.0 + 1e-12),
            f"{entry.query!r} is charged for noise of {stated:.6g} sensitivities but has {real:.6g}.",
        )
        extra = most_extra(stated, entry.size, "laplace" if entry.kind == "laplace" else "gaussian")
        demand(
            real <= stated * (1.0 + extra) * (1.0 + 1e-12),
            f"{entry.query!r} has noise of {real:.6g} sensitivities but is charged for {stated:.6g} only.",
        )
        _check_details(entry, found[0])


def _event_name(entry: RecordedRelease) -> str | None:
    return "Gaussian" if entry.kind == "poisson-gaussian" and entry.rate == 1.0 else _EVENTS.get(entry.kind)


def _check_details(entry: RecordedRelease, leaf: Event) -> None:
    if isinstance(leaf, PoissonGaussian):
        demand(leaf.rate >= entry.rate, f"{entry.query!r} samples more people than its event states.")
    if isinstance(leaf, ObjectivePerturbation):
        stated = [one.noise_multiplier for one in leaves(entry.event) if isinstance(one, Gaussian)]
        ratio, output = entry.curvature_ratio, entry.output_multiplier
        demand(
            ratio is not None and leaf.curvature_ratio >= ratio,
            f"{entry.query!r} states a smaller curvature ratio than it has.",
        )
        demand(
            output is not None and len(stated) == 1 and stated[0] <= output * (1.0 + 1e-12),
            f"{entry.query!r} states more noise on its minimiser than there is.",
        )


def check_drawn_noise(entries: Sequence[RecordedRelease]) -> None:
    """Demand that released minus exact values have the recorded scale, and that every mechanism draws what it states.

    A few coordinates cannot tell much, so every distinct mechanism is also used on constants many times
    (:func:`~dperm.testing.check_mechanism`, which must detect noise of half the scale).
    """
    for kind, law in _LAWS.items():
        parts = [
            np.ravel(entry.output - np.clip(entry.value, -entry.bound, entry.bound)) / entry.noise_scale
            for entry in entries
            if entry.kind == kind
        ]
        if not parts:
            continue
        levels = law.cdf(np.concatenate(parts))
        # of the size of the noise: 2 |level - 1/2| is uniform; halved noise concentrates it near 0
        p_value = stats.kstest(np.abs(2.0 * levels - 1.0), "uniform").pvalue if levels.size > 1 else 1.0
        demand(p_value > _REJECT, f"the {kind} noise of the run does not have its recorded scale (p = {p_value:.2g}).")
    distinct = {(type(entry.mechanism), entry.kind): entry.mechanism for entry in entries}
    for (_, kind), mechanism in distinct.items():
        if kind in _EVENTS and kind != "joint selection":  # its parts have tests of their own
            # a seeded source repeats the draws of a named stream, which a check must not
            check_mechanism(
                replace(mechanism, stream=None) if mechanism.kind == "selection" else mechanism, n_samples=6_000
            )

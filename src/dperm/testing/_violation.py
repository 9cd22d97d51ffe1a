"""The exception that all contract checks raise."""

from __future__ import annotations

__all__ = ["ContractViolation", "demand"]


class ContractViolation(AssertionError):
    """A promise that a query, a mechanism, an event or a solver makes does not hold."""


def demand(holds: bool, sentence: str) -> None:
    """Raise :class:`ContractViolation` unless ``holds``."""
    if not holds:
        raise ContractViolation(sentence)

"""The neighbouring relation: which two data sets a guarantee compares.

Both relations keep the number of records ``n`` public.

``replace-one``
    one person's record is replaced by any other allowed record.
``zero-out``
    one person's record is replaced by an empty one that contributes zero to every query (the usual meaning of
    add-or-remove when ``n`` is public).

Two records that differ under ``replace-one`` are two ``zero-out`` steps apart, so a ``zero-out`` guarantee
implies a ``replace-one`` guarantee with the sensitivities at most doubled (the exact ratio is a fact of each
query, carried by its event).
"""

from __future__ import annotations

from enum import StrEnum

from dperm.errors import InvalidInput

__all__ = ["Neighbours"]


class Neighbours(StrEnum):
    """The neighbouring relation of a guarantee."""

    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"

    @classmethod
    def parse(cls, value: str | Neighbours) -> Neighbours:
        """Return the relation named ``value``.

        >>> Neighbours.parse("zero-out")
        <Neighbours.ZERO_OUT: 'zero-out'>
        """
        try:
            return cls(value)
        except ValueError:
            names = " or ".join(repr(str(m)) for m in cls)
            raise InvalidInput(f"neighbours must be {names}, not {value!r}.") from None

    @property
    def records_apart(self) -> int:
        """How many records' contributions to a sum may change: 2 when one record replaces another, else 1."""
        return 2 if self is Neighbours.REPLACE_ONE else 1

    def describe(self) -> str:
        """Return in words what is protected."""
        if self is Neighbours.REPLACE_ONE:
            return "one person's record replaced by any other, the number of records public"
        return "one person's record replaced by an empty one, the number of records public"

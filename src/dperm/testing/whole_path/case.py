"""One path through dperm that is checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dperm.testing._violation import demand
from dperm.testing.whole_path.check import check_whole_path
from dperm.testing.whole_path.seeing import Run

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A run and the tables on which it must show the same.

    Parameters
    ----------
    name : str
        Name in the list of all cases.
    tables : callable
        Makes the tables.
    run : callable
        The run, see :func:`~dperm.testing.whole_path.check_whole_path`.
    estimator : str, optional
        Class that the run fits, for the test that none is missing.
    refused : callable
        Whether dperm refuses this combination before anything happens, so that there is nothing to check.
    fields_are_public : bool
        As in the check.
    owner_only, levels : tuple of str
        As in the check.
    """

    name: str
    tables: Callable[[], Mapping[str, Any]]
    run: Run
    estimator: str | None = None
    refused: Callable[[], bool] = lambda: False
    fields_are_public: bool = True
    owner_only: tuple[str, ...] = ()
    levels: tuple[str, ...] = ("steady", "mixed")

    def check(self, levels: Sequence[str] | None = None, seeds: Sequence[int] = (0,)) -> None:
        """Check the case at these levels, its own by default."""
        demand(not self.refused(), f"dperm refuses {self.name!r} before anything happens: there is nothing to check.")
        check_whole_path(
            self.run,
            self.tables(),
            levels=self.levels if levels is None else levels,
            seeds=seeds,
            fields_are_public=self.fields_are_public,
            owner_only=self.owner_only,
        )

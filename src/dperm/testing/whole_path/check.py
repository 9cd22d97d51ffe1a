"""The check of a whole path: nothing that anybody sees depends on the data, except through mechanisms.

Every mechanism's input is replaced by a value that ignores the data (``blind.py``), and the same noise is drawn again
for every table. Tables with the same public facts must then give the same bytes everywhere: attributes, pickles, files,
reports, pages, warnings, texts, log records, errors, progress and ledger rows (``seeing.py``).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dperm.testing._violation import ContractViolation, demand
from dperm.testing.whole_path.blind import BlindMechanisms
from dperm.testing.whole_path.forms import differences
from dperm.testing.whole_path.seeing import PRIVATE, Run, Seen, see

__all__ = ["check_whole_path"]

#: most differences that an error lists
_MOST_LISTED = 6


def check_whole_path(
    run: Run,
    tables: Mapping[str, Any],
    *,
    levels: Sequence[str] = ("steady", "mixed"),
    seeds: Sequence[int] = (0,),
    fields_are_public: bool = True,
    owner_only: Sequence[str] = (),
) -> None:
    """Check that a run on any of the tables shows the same, bit for bit, when mechanisms ignore their input.

    Also every evaluation of a query must have been charged, or its value have stayed inside a declared trusted domain.

    Parameters
    ----------
    run : callable
        Takes a table and an empty folder, and returns all that is to be compared. Files that it leaves in the folder
        are compared too, except those in ``folder / PRIVATE``; ledgers (``*.db``) are compared as they are exported.
    tables : mapping of str to object
        At least two tables with the same public facts.
    levels, seeds : sequences
        Which values stand in for the true ones, see :class:`~dperm.testing.whole_path.blind.BlindMechanisms`.
    fields_are_public : bool
        Whether fields of queries are compared; inside a trusted domain they may be private.
    owner_only : sequence of str
        Beginnings of paths that are shown to the data's owner alone and may differ.

    Raises
    ------
    ContractViolation
        Something differs; the message names the places and no value.
    """
    demand(len(tables) > 1, "a check of non-interference needs two tables at least.")
    first, *others = tables
    with tempfile.TemporaryDirectory() as place:

        def seen(name: str, level: str, seed: int) -> Seen:
            folder = Path(place) / "run"
            (folder / PRIVATE).mkdir(parents=True)
            blind = BlindMechanisms(level, seed, fields_are_public=fields_are_public)
            found = see(run, tables[name], folder, blind, f"{level} {seed}")
            shutil.rmtree(folder)
            if found.error is not None:
                raise ContractViolation(f"the run on the table {name!r} was refused.") from found.error
            demand(
                found.evaluations == found.charges + found.shared,
                f"{found.evaluations} queries were evaluated on the table {name!r} and {found.charges} were charged, "
                f"{found.shared} more stayed inside a trusted domain.",
            )
            return found

        # the first run also fills caches, so that no later run differs by them
        once, usual = seen(first, levels[0], seeds[0]), seen(first, levels[0], seeds[0])
        _demand_equal(once, usual, (), "on the same table twice, so that nothing can be compared")
        for level in dict.fromkeys(levels):  # one that is named twice is checked once
            for seed in dict.fromkeys(seeds):
                if (level, seed) != (levels[0], seeds[0]):
                    usual = seen(first, level, seed)
                for name in others:
                    where = f"on the tables {first!r} and {name!r} (stand-in values {level!r}, seed {seed})"
                    _demand_equal(usual, seen(name, level, seed), owner_only, where)


def _demand_equal(one: Seen, two: Seen, owner_only: Sequence[str], where: str) -> None:
    found = [path for path in differences(one.leaves, two.leaves) if not path.startswith(tuple(owner_only))]
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    demand(not found, f"these differ {where}: {', '.join(found[:_MOST_LISTED])}{more}.")

"""Rows of a run: of the same people at every participant, and the same ones from its beginning to its end."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

from dperm.errors import DpermError, DpermWarning, InvalidInput, StateLost
from dperm.vertical.session.run_folder import RunFolder
from dperm.vertical.session.spec import RunSpec

__all__ = [
    "ALIGNMENT",
    "refuse_changed_rows",
    "refuse_different_rows",
    "refuse_undeclared_rows",
    "warn_of_runs_under_way",
]

#: the fact by which a party says which alignment ordered its rows; empty where none did
ALIGNMENT = "alignment"


def refuse_different_rows(spec: RunSpec, own: str | None = None) -> None:
    """Refuse parties whose rows are not those of the same people, as far as they declared, before anything is charged.

    ``own`` is the alignment of the coordinator's own table, if it has one: "" where its rows were never aligned.
    """
    counts = {name: facts.get("n") for name, facts in spec.facts.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise InvalidInput(f"the parties do not have the same rows ({said}): align them with `dperm vertical align`.")
    orders = {name: facts.get(ALIGNMENT, "") for name, facts in spec.facts.items()}
    if own is not None:
        orders["the label holder"] = own
    if len(set(orders.values())) > 1:
        said = ", ".join(f"{name} has {order or 'none'}" for name, order in orders.items())
        raise InvalidInput(
            f"the rows are not in the order of one alignment ({said}): align all again with `dperm vertical align`."
        )


def refuse_undeclared_rows(spec: RunSpec, party: str, n: int, alignment: str) -> None:
    """Refuse a party's table that is not in the order it declared when it joined: somebody aligned again since."""
    declared = spec.facts[party]
    if (declared.get("n"), declared.get(ALIGNMENT, "")) != (n, alignment):
        raise _changed(spec.run)


def refuse_changed_rows(run: str, kept: str | None, now: str | None) -> None:
    """Refuse a table that is not the one with which the run began; ``kept`` is None before that.

    What a participant keeps about a person between rounds stands at the person's row. On other rows it would be used
    with other people's values, and one person would enter a release in two places: see ``run_folder.proof.md``.
    """
    if kept is not None and kept != now:
        raise _changed(run)


def warn_of_runs_under_way(root: Path) -> None:
    """Say before an alignment which runs in the coordinator's folder could not go on after it."""
    bound = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        with contextlib.suppress(DpermError):  # no run, or one that is damaged and goes on under no order
            record = RunFolder(root, path.name).load()
            # kept from the check of a training run to its end
            if record is not None and record.blobs.get("rows"):
                bound.append(repr(path.name))
    if bound:
        which = f"runs {', '.join(bound)} are" if len(bound) > 1 else f"run {bound[0]} is"
        warnings.warn(
            f"{which} not finished and would need the order from before this alignment to go on: stop here to finish "
            "first, or have everybody put the order before, which is kept beside the new one, back for it.",
            DpermWarning,
            stacklevel=2,
        )


def _changed(run: str) -> StateLost:
    return StateLost(
        f"the rows or columns of this participant's table are not those with which run {run!r} began: restore the "
        "table and its order file as they were (an alignment keeps the order before beside the new one, under its "
        "name), or start a run under another name; nothing was answered."
    )

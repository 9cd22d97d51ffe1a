"""Checks of rows: all participants have the same people in the same order, and no table changes during a run."""

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
    "warn_about_unfinished_runs",
]

#: name of the fact with which a party declares the alignment that ordered its rows; empty if none did
ALIGNMENT = "alignment"


def refuse_different_rows(spec: RunSpec, own: str | None = None) -> None:
    """Refuse parties whose declared row counts or alignments differ, before anything is charged.

    ``own`` is the alignment of the coordinator's own table, if it has one: "" if its rows were never aligned.
    """
    counts = {name: facts.get("n") for name, facts in spec.facts.items()}
    if len(set(counts.values())) > 1:
        declared = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise InvalidInput(
            f"the parties have different numbers of rows ({declared}): align them with `dperm vertical align`."
        )
    orders = {name: facts.get(ALIGNMENT, "") for name, facts in spec.facts.items()}
    if own is not None:
        orders["the label holder"] = own
    if len(set(orders.values())) > 1:
        declared = ", ".join(f"{name} has {order or 'none'}" for name, order in orders.items())
        raise InvalidInput(
            f"the tables have orders of different alignments ({declared}): align all again with `dperm vertical align`."
        )


def refuse_undeclared_rows(spec: RunSpec, party: str, n: int, alignment: str) -> None:
    """Refuse a party's table that differs from what it declared when it joined: it was aligned again since."""
    declared = spec.facts[party]
    if (declared.get("n"), declared.get(ALIGNMENT, "")) != (n, alignment):
        raise _changed(spec.run)


def refuse_changed_rows(run: str, kept: str | None, now: str | None) -> None:
    """Refuse a table that changed since the run began; ``kept`` is None before that.

    A participant stores its numbers about a person by row. With changed rows they would be combined with another
    person's values, and one person would enter a release in two places: see ``run_folder.proof.md``.
    """
    if kept is not None and kept != now:
        raise _changed(run)


def warn_about_unfinished_runs(root: Path) -> None:
    """Warn before an alignment about runs in the coordinator's folder that could not continue after it."""
    unfinished = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        with contextlib.suppress(DpermError):  # not a run, or a damaged one that cannot continue anyway
            record = RunFolder(root, path.name).load()
            # a training run stores this from its check to its end
            if record is not None and record.blobs.get("rows"):
                unfinished.append(repr(path.name))
    if unfinished:
        which = f"runs {', '.join(unfinished)} are" if len(unfinished) > 1 else f"run {unfinished[0]} is"
        warnings.warn(
            f"{which} not finished and cannot continue with the order of a new alignment: stop now and finish first, "
            "or have every participant restore the previous order file (kept beside the new one) to resume.",
            DpermWarning,
            stacklevel=2,
        )


def _changed(run: str) -> StateLost:
    return StateLost(
        f"this participant's table changed since run {run!r} began: restore its rows, columns and order file (an "
        "alignment keeps the previous order file beside the new one, under that alignment's name), or start a run "
        "under another name; nothing was answered."
    )

"""Views: against whom the guarantee of a vertical run holds. All views are registered here.

A task names its view, and :data:`VIEWS` says what follows: who may see per-person values, what the report says, which
neighbouring relations are proved, and which bytes the contract suite compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting.neighbours import Neighbours

__all__ = ["PLANNED", "VIEWS", "View", "view_of"]


@dataclass(frozen=True)
class View:
    """A view and its consequences.

    Attributes
    ----------
    name : str
        Name of the view.
    audience : str
        Against whom the guarantee holds, for the lines of a report.
    covers_participants : bool
        Whether every message is covered. If not, participants form a trusted domain in which per-person values travel.
    neighbours : tuple of Neighbours
        Neighbouring relations for which it is proved.
    assumptions, not_covered : tuple of str
        Sentences of the report in addition to those of every vertical run.
    """

    name: str
    audience: str
    covers_participants: bool
    neighbours: tuple[Neighbours, ...]
    assumptions: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        View(
            "model",
            "everyone who sees the model or any step",
            covers_participants=False,
            neighbours=tuple(Neighbours),
            assumptions=("the participants may see each other's per-person values",),
            not_covered=(
                "the participants themselves (model view): partial scores, residuals and shared columns travel between "
                "them without noise, and after a few dozen rounds a participant can reconstruct other parties' rows "
                "and the labels",
            ),
        ),
        View(
            "transcript",
            "everyone who sees a message",
            covers_participants=True,
            neighbours=(Neighbours.REPLACE_ONE,),
        ),
    )
}

#: views that are planned but not implemented, without any claim. In the encrypted view scores and residuals would
#: travel encrypted, and a key holder without data would decrypt noisy sums only
PLANNED = frozenset({"encrypted"})


def view_of(name: str) -> View:
    """Return a view.

    >>> view_of("model").covers_participants
    False
    """
    known = " or ".join(map(repr, VIEWS))
    if isinstance(name, str) and name in PLANNED:
        raise Unsupported(f"the {name} view is not implemented yet: view must be {known}.")
    if not isinstance(name, str) or name not in VIEWS:
        raise InvalidInput(f"view must be {known}, not {name!r}.")
    return VIEWS[name]

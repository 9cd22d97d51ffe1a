"""Views: whom the guarantee of a vertical run covers. A view is registered here and nowhere else.

A task names its view and takes everything that follows from it from :data:`VIEWS`: who may see per-person values, what
the report says, which neighbours are proved, and which bytes the contract suite compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting.neighbours import Neighbours

__all__ = ["PLANNED", "VIEWS", "View", "view_of"]


@dataclass(frozen=True)
class View:
    """What follows from a view.

    Attributes
    ----------
    name : str
    audience : str
        Whom the guarantee covers, for the lines of a report.
    covers_participants : bool
        Whether every message is covered. If not, participants form a trusted domain in which per-person values travel.
    neighbours : tuple of Neighbours
        What is proved.
    assumptions, not_covered : tuple of str
        Sentences of the report beside those of every vertical run.
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
            assumptions=("the participants may see per-person values of each other",),
            not_covered=(
                "the participants themselves (model view): partial scores, residuals and shared columns travel between "
                "them without noise, and from a few dozen rounds a participant can reconstruct other parties' rows and "
                "the labels",
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

#: views that are planned: nothing of them is offered, and nothing is claimed. In the encrypted one scores and residuals
#: would travel encrypted, and a key holder without data would open noised sums only
PLANNED = frozenset({"encrypted"})


def view_of(name: str) -> View:
    """Return a view.

    >>> view_of("model").covers_participants
    False
    """
    known = " or ".join(map(repr, VIEWS))
    if isinstance(name, str) and name in PLANNED:
        raise Unsupported(f"the {name} view is planned, and nothing is claimed for it yet: view must be {known}.")
    if not isinstance(name, str) or name not in VIEWS:
        raise InvalidInput(f"view must be {known}, not {name!r}.")
    return VIEWS[name]

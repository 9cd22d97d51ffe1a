"""Why a survivor is no gap of the tests, by content: an explanation holds as long as the line is as it was.

``explained.toml`` has one table for each:

    [[survivor]]
    file = "privacy/accounting/gdp.py"
    where = "mu_of"
    before = "low /= 2.0"
    after = "low /= 4.0"
    kind = "equivalent"
    why = "Only where the search for a bracket starts; the bisection after it ends at the same double."

Kinds: ``equivalent`` (nothing that is computed changes), ``stricter`` (more noise, a larger charge or an earlier
refusal: the promise still holds), ``utility`` (another model or another speed; what is promised and charged stays).
"""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

from .sampling import Mutant

FILE = Path(__file__).with_name("explained.toml")
KINDS = ("equivalent", "stricter", "utility")


@dataclass(frozen=True)
class Explanation:
    file: str
    where: str
    before: str
    after: str
    kind: str
    why: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{FILE.name}: kind {self.kind!r} of {self.file} is not one of {', '.join(KINDS)}.")


def explanations(path: Path = FILE) -> list[Explanation]:
    found = tomllib.loads(path.read_text("utf-8")).get("survivor", [])
    return [Explanation(**{name: _plain(text) for name, text in one.items()}) for one in found]


def explanation(mutant: Mutant, known: list[Explanation]) -> Explanation | None:
    content = (mutant.file, mutant.where, _plain(mutant.before), _plain(mutant.after))
    return next((one for one in known if (one.file, one.where, one.before, one.after) == content), None)


def stale(known: list[Explanation], source: Path) -> list[str]:
    """Return what no longer names code: the file or its line is gone."""
    found = []
    for one in known:
        path = source / one.file
        text = path.read_text("utf-8") if path.is_file() else ""
        lines = [line.strip() for line in text.splitlines()]
        wanted = [line.strip() for line in one.before.splitlines()]
        if not any(lines[at : at + len(wanted)] == wanted for at in range(len(lines))):
            found.append(f"{one.file}, {one.where}: {one.before}")
    return found


def _plain(text: str) -> str:
    return textwrap.dedent(text).strip()

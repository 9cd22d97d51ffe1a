"""The results as ``benchmarks/results/mutants.json`` and, for reading, ``mutants.md``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .explained import Explanation, explanation
from .sampling import SHARES, Mutant

LARGEST_UNEXPLAINED = 0.05


@dataclass(frozen=True)
class Row:
    """What came of one mutant."""

    mutant: Mutant
    outcome: str  # killed, timeout or survived
    by: str | None  # the test that killed it
    explained: Explanation | None
    survived_before: bool

    @property
    def unexplained(self) -> bool:
        return self.outcome == "survived" and self.explained is None


def rows(
    chosen: Iterable[Mutant], results: dict[str, dict[str, Any]], known: list[Explanation], before: Path
) -> list[Row]:
    """Join mutants, results, explanations and the report before this one."""
    earlier = json.loads(before.read_text("utf-8"))["mutants"] if before.exists() else []
    survived = {one["key"] for one in earlier if one["outcome"] == "survived" or one["survived_before"]}
    return [
        Row(
            one,
            results[one.key]["outcome"],
            results[one.key]["by"],
            explanation(one, known) if results[one.key]["outcome"] == "survived" else None,
            one.key in survived,
        )
        for one in chosen
        if one.key in results
    ]


def write(folder: Path, found: list[Row], facts: dict[str, Any]) -> None:
    """Write both files."""
    listed = [
        {
            "key": row.mutant.key,
            "file": row.mutant.file,
            "where": row.mutant.where,
            "line": row.mutant.line,
            "operator": row.mutant.position.operator,
            "outcome": row.outcome,
            "by": row.by,
            "survived_before": row.survived_before,
            "explained": row.explained.kind if row.explained else None,
        }
        for row in sorted(found, key=lambda row: (row.mutant.file, row.mutant.line, row.mutant.key))
    ]
    (folder / "mutants.json").write_text(json.dumps({**facts, "mutants": listed}, indent=1) + "\n", "utf-8")
    (folder / "mutants.md").write_text(text(found, facts), "utf-8")


def text(found: list[Row], facts: dict[str, Any]) -> str:
    """Return the report in Markdown."""
    left = [row for row in found if row.unexplained]
    lines = [
        "# Mutants",
        "",
        "Each mutant is one small change of a line that privacy rests on. Tests that run the line should fail.",
        "`make mutants` makes this page; what is changed and what is not is said in `tools/mutants/`.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        f"- unexplained survivors: {len(left)} of {len(found)} ({len(left) / max(len(found), 1):.1%})",
        "",
        "| folder | mutants | killed | no end | survived | equivalent | stricter | utility | unexplained |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_numbers(folder, [row for row in found if row.mutant.folder == folder]) for folder in SHARES),
        _numbers("all", found),
        "",
        "*No end*: the tests ran into their time limit, which counts as killed. *Equivalent*: nothing that is computed",
        "changes. *Stricter*: more noise, a larger charge or an earlier refusal. *Utility*: another model or another",
        "speed; what is promised and charged stays.",
        "",
    ]
    lines += _section("Unexplained survivors", left, lambda row: "")
    lines += _section(
        "Explained survivors",
        [row for row in found if row.explained],
        lambda row: f"{row.explained.kind}: {row.explained.why}" if row.explained else "",
    )
    lines += _section(
        "Survivors of an earlier run that a test now kills",
        [row for row in found if row.survived_before and row.outcome != "survived"],
        lambda row: f"killed by `{row.by}`",
    )
    return "\n".join(lines) + "\n"


def _numbers(folder: str, found: list[Row]) -> str:
    outcomes, kinds = (
        Counter(row.outcome for row in found),
        Counter(row.explained.kind for row in found if row.explained),
    )
    numbers = [
        len(found),
        *(outcomes[name] for name in ("killed", "timeout", "survived")),
        *(kinds[name] for name in ("equivalent", "stricter", "utility")),
        sum(row.unexplained for row in found),
    ]
    return f"| {folder} | " + " | ".join(map(str, numbers)) + " |"


def _section(title: str, found: list[Row], remark: Any) -> list[str]:
    if not found:
        return []
    lines = [f"## {title}", ""]
    for row in sorted(found, key=lambda row: (row.mutant.file, row.mutant.line, row.mutant.key)):
        lines += [f"`{row.mutant.file}`, {row.mutant.where or 'module'} (`{row.mutant.key}`)", ""]
        lines += ["```diff", row.mutant.diff, "```", ""]
        if said := remark(row):
            lines += [said, ""]
    return lines

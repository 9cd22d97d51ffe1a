"""Write a result as Markdown, JSON and SVG."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dperm.atomic_files import write_atomically
from dperm.experiments.charts import picture
from dperm.experiments.experiment import Experiment
from dperm.experiments.result import Baseline, Result, shown

__all__ = ["BASELINE_COLUMNS", "FORMATS", "ROW_COLUMNS", "as_markdown", "baseline_cells", "row_cells", "write"]

#: endings of the files; a result without panels has no picture
FORMATS = ("md", "json", "svg")

ROW_COLUMNS = ("what", "ours, certified", "ours, printed noise", "ours, no noise", "paper", "why they differ")
BASELINE_COLUMNS = ("problem", "data", "seed", "n", "p", "measure", "without privacy", "null model", "null error")


def write(experiment: Experiment, result: Result, facts: Mapping[str, Any], files: Sequence[Path]) -> list[Path]:
    """Write the three files of a result; ``facts`` is what the run knew: settings, data, versions, seconds."""
    markdown, as_json, svg = files
    written = []
    if result.panels:
        written.append(
            write_atomically(svg, picture(result.panels, f"{experiment.name}: {experiment.what}", result.columns))
        )
    content = {"paper": experiment.paper, "what": experiment.what, **facts, **_plain(result)}
    written.append(write_atomically(as_json, json.dumps(content, indent=1, allow_nan=False) + "\n"))
    picture_file = svg.name if result.panels else None
    written.append(write_atomically(markdown, as_markdown(experiment, result, facts, picture_file)))
    return written


def _plain(result: Result) -> dict[str, Any]:
    content = asdict(result)
    for baseline, one in zip(content["baselines"], result.baselines, strict=True):
        baseline["null_error"] = one.null_error
    return content


def as_markdown(experiment: Experiment, result: Result, facts: Mapping[str, Any], picture_file: str | None) -> str:
    """Return the page of a result."""
    kind = "Fast run: too few repetitions for its numbers to count. " if facts["fast"] else ""
    lines = [
        f"# {experiment.name}",
        "",
        f"{experiment.what} ({experiment.paper}).",
        "",
        f"{kind}`dperm experiment run {experiment.name}{' --fast' if facts['fast'] else ''}`, {facts['seconds']} "
        f"seconds, dperm {facts['dperm']}, Python {facts['python']}. Noise is fresh in every run; the data are fixed.",
        "",
    ]
    if picture_file:
        lines += [f"![{experiment.what}]({picture_file})", ""]
    lines += _table(ROW_COLUMNS, [row_cells(row) for row in result.rows])
    if result.baselines:
        lines += ["", *_table(BASELINE_COLUMNS, [baseline_cells(one) for one in result.baselines])]
    if result.no_data:
        lines += ["", f"No data: {result.no_data}"]
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    settings = ", ".join(f"{name} {value!r}" for name, value in facts["settings"].items())
    return "\n".join([*lines, *(["", f"Settings: {settings}."] if settings else []), ""])


def row_cells(row: Any) -> list[str]:
    """Return the cells of a row, in the order of :data:`ROW_COLUMNS`."""
    ours = [shown(one) for one in (row.certified, row.printed, row.without_noise)]
    return [row.what, *ours, shown(row.paper), row.difference]


def baseline_cells(one: Baseline) -> list[str]:
    """Return the cells of a baseline, in the order of :data:`BASELINE_COLUMNS`."""
    seed = "-" if one.seed is None else str(one.seed)
    numbers = [f"{one.non_private:.6g}", f"{one.null:.6g}", f"{one.null_error:.4g}"]
    return [one.problem, one.data, seed, str(one.n), str(one.p), one.measure, *numbers]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    out = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    return out + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]

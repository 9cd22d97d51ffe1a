"""Write the comparison with peers as Markdown: scores, train losses, differences, relations, time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from peers_data import DESCRIPTIONS, SCORES
from peers_methods import Method

Record = dict[str, Any]


def by_split(records: Iterable[Record], value: str) -> dict[int, list[float]]:
    """Values of all fits, split by split."""
    splits: dict[int, list[float]] = {}
    for record in records:
        splits.setdefault(record["split"], []).append(record[value])
    return splits


def mean_and_error(records: list[Record], value: str) -> tuple[float, float]:
    """Mean over all fits, and its standard error: over the means of splits, or over noise if there is one split."""
    splits = by_split(records, value)
    parts = [float(np.mean(one)) for one in splits.values()] if len(splits) > 1 else next(iter(splits.values()))
    error = float(np.std(parts, ddof=1) / np.sqrt(len(parts))) if len(parts) > 1 else float("nan")
    return float(np.mean(parts)), error


def difference(ours: list[Record], theirs: list[Record]) -> tuple[float, float]:
    """Mean difference in score with its standard error, paired by split where there are several."""
    first, second = by_split(ours, "score"), by_split(theirs, "score")
    if len(first) > 1:
        parts = [float(np.mean(first[split]) - np.mean(second[split])) for split in first if split in second]
        return float(np.mean(parts)), float(np.std(parts, ddof=1) / np.sqrt(len(parts)))
    mean, error = mean_and_error(ours, "score")
    other, other_error = mean_and_error(theirs, "score")
    return mean - other, float(np.hypot(error, other_error))


def _with_error(mean: float, error: float, sign: str = "") -> str:
    return f"{mean:{sign}.4f}" + ("" if np.isnan(error) else f" ± {error:.4f}")


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


class Report:
    """All measurements, and their Markdown."""

    def __init__(self, run: dict[str, Any], methods: list[Method]) -> None:
        self.facts, self.records, self.timing = run["facts"], run["records"], run["timing"]
        self.skipped = run["skipped"]
        self.methods = methods

    def _cell(self, name: str, method: str, epsilon: float | None) -> list[Record]:
        wanted = (name, method, epsilon)
        found = [one for one in self.records if (one["set"], one["method"], one["epsilon"]) == wanted]
        return [one for one in found if "failed" not in one]

    def _epsilons(self, name: str) -> list[float]:
        return sorted({one["epsilon"] for one in self.records if one["set"] == name and one["epsilon"] is not None})

    def _values(self, name: str, value: str) -> list[list[str]]:
        rows = []
        for method in self.methods:
            epsilons = self._epsilons(name) if method.is_private else [None] * len(self._epsilons(name))
            cells = [self._cell(name, method.key, epsilon) for epsilon in epsilons]
            if any(cells):
                shown = [_with_error(*mean_and_error(cell, value)) if cell else "-" for cell in cells]
                rows.append([method.label, method.neighbours, *shown])
        return rows

    def _differences(self, name: str) -> list[list[str]]:
        rows = []
        for other in ("opacus", "opacus-oracle", "opacus-best", "adassp", "ebm", "scikit-learn"):
            label = next(method.label for method in self.methods if method.key == other)
            shown = []
            for epsilon in self._epsilons(name):
                ours = self._cell(name, "dperm", epsilon)
                theirs = self._cell(name, other, None if other == "scikit-learn" else epsilon)
                shown.append(_with_error(*difference(ours, theirs), sign="+") if ours and theirs else "-")
            if set(shown) != {"-"}:
                rows.append([f"dperm (zero-out) minus {label}", *shown])
        return rows

    def _set(self, name: str) -> list[str]:
        facts, epsilons = self.facts["sets"][name], self._epsilons(name)
        head = [f"epsilon {epsilon:g}" for epsilon in epsilons]
        lines = [f"## {DESCRIPTIONS[name]}", ""]
        lines += [f"{facts['splits']} split(s), {facts['seeds']} noise seed(s) each, delta = {facts['delta']:.3g}.", ""]
        lines += [f"{SCORES[facts['task']]}:", ""]
        lines += [*_table(["method", "neighbours", *head], self._values(name, "score")), ""]
        differences = self._differences(name)
        if differences:
            lines += ["Differences, on the same splits:", "", *_table(["", *head], differences), ""]
        lines += ["Mean loss of the train rows, without penalty:", ""]
        lines += [*_table(["method", "neighbours", *head], self._values(name, "train_loss")), ""]
        for method in (one for one in self.methods if one.tuned_on is not None):
            cells = {epsilon: self._cell(name, method.key, epsilon) for epsilon in epsilons}
            chosen = [
                f"epsilon {epsilon:g}: {', '.join(f'{key} {value:g}' for key, value in cell[0]['options'].items())}"
                for epsilon, cell in cells.items()
                if cell
            ]
            if chosen:
                lines += [f"{method.label} chose {'; '.join(chosen)}.", ""]
        return lines

    def _translation(self) -> list[str]:
        lines = ["## The same fits under the other relation", ""]
        lines += [
            "zero-out: one record is replaced by an empty one (n public; the usual reading of add-or-remove). "
            "replace-one: by any other record. Cells hold an epsilon that the row certainly has under the relation it "
            "was not run with, and its delta as a multiple of the declared one.",
            "",
        ]
        for name in self.facts["sets"]:
            epsilons, delta = self._epsilons(name), self.facts["sets"][name]["delta"]
            rows = []
            for method in self.methods:
                cells = {epsilon: self._cell(name, method.key, epsilon) for epsilon in epsilons}
                if not method.is_private or not any(cells.values()):
                    continue
                shown = []
                for epsilon, cell in cells.items():
                    if cell:
                        other, other_delta = method.elsewhere(epsilon, delta, cell[0]["mu"])
                        shown.append(f"{other:.3g} ({other_delta / delta:.3g} delta)")
                    else:
                        shown.append("-")
                under = "replace-one" if method.neighbours == "zero-out" else "zero-out"
                rows.append([method.label, under, *shown])
            head = ["method", "now under", *[f"epsilon {epsilon:g}" for epsilon in epsilons]]
            lines += [f"{name}:", "", *_table(head, rows), ""]
        return lines

    def _time(self) -> list[str]:
        if not self.timing:
            return []
        rows = [
            [str(number), *(f"{one[key]:.3g}" for key in ("opacus", "dperm", "ratio", "cpu_ratio"))]
            for number, one in enumerate(self.timing, 1)
        ]
        ratio = float(np.median([one["ratio"] for one in self.timing]))
        cpu = float(np.median([one["cpu_ratio"] for one in self.timing]))
        head = ["repeat", "Opacus with calibration (s)", "dperm (s)", "ratio", "ratio of processor time"]
        return [
            "## Time of one fit of a9a at epsilon 1",
            "",
            "One thread each, run in turn; Opacus in a new process each time, dperm the median of three fits after one "
            "that warms up.",
            "",
            *_table(head, rows),
            "",
            f"Median: dperm is {ratio:.0f} times faster ({cpu:.0f} times in processor time).",
            "",
        ]

    def markdown(self) -> str:
        """Return the whole report."""
        lines = ["# dperm next to its peers", ""]
        commands = ", then ".join(f"`{command}`" for command in self.facts["commands"])
        lines += [f"Made by {commands} with {self.facts['versions']}.", ""]
        lines += [
            "Columns of breast_cancer and california are standardised with the moments of the train rows, treated as "
            "public for every method; the other sets need none. ± is one standard error: over splits, or over noise "
            "where there is one split.",
            "",
        ]
        for name in self.facts["sets"]:
            lines += self._set(name)
        lines += [*self._time(), *self._translation(), "## Settings", ""]
        lines += [f"- {method.label}: {method.setting}." for method in self.methods]
        skipped = [f"- {who}: {why}." for who, why in self.skipped.items()]
        if skipped:
            lines += ["", "## Skipped", "", *skipped]
        return "\n".join(lines) + "\n"

"""Print an estimate as text and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dperm.cli.output import Output

__all__ = ["show_estimate"]


def show_estimate(to: Output, data: dict[str, Any], trimmed: bool = False) -> None:
    """Print an estimate, or the trimmed one, with its intervals and its privacy cost."""
    privacy = data["privacy"]
    shown = data["trimmed"] if trimmed else data
    model = shown["model"]
    to.lines(
        [
            ("collection", f"{data['name']} version {data['version']}"),
            ("reports", str(data["n"]) + _newer_reports(data)),
            ("privacy", f"epsilon {privacy['epsilon']:g} per person, delta 0; {privacy['unit']}"),
            ("questions", _drawn(data["draws"])),
        ]
    )
    if data["suspicious"]:
        to.text("")
        to.text(f"SUSPICIOUS: {data['draws']['statement']}{'' if trimmed else ' See it with --trimmed.'}")
        for one in data["draws"]["most_drawn"]:
            # a collector of an earlier version does not send the question's text
            asked = f" ({one['question']})" if "question" in one else ""
            to.text(
                f"  question {one['statistic']}{asked}: {one['reports']:,} reports, {one['expected']:,.0f} expected"
            )
    if trimmed:
        to.text("")
        to.text(f"Trimmed estimate: {shown['statement']}")
    if model is None:
        to.text(f"No estimate yet: {shown['reason']}")
        return
    tables = _tables(model)
    for title, rows in tables:
        to.text("")
        to.table([title, "estimate", "from", "to", "unshrunk"][: len(rows[0])], rows, right=(1, 2, 3, 4))
    if any(row[2] for _, rows in tables for row in rows):
        to.text(f"From and to: the ends of a {100.0 * model.get('confidence', 0.95):g}% interval.")
    if model.get("shrinkage"):
        to.text(f"Note: {model['shrinkage']}.")
    if model.get("intervals_reason"):
        to.text(f"No intervals: {model['intervals_reason']}.")
    if "query" in data:
        to.text("")
        to.table(["query", "estimate", "from", "to"], [_row("share", data["query"])], right=(1, 2, 3))


def _tables(model: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    for kind in ("shares", "means"):
        if kind in model:
            rows = [_row(name, one) for name, one in zip(model["names"], model[kind], strict=True)]
            return [(kind[:-1], rows)]
    if "weights" in model:
        return [("weight", [[f"a{k}", f"{w:.4g}", "", ""] for k, w in enumerate(model["weights"], 1)])]
    several = len(model.get("classes", ())) > 2
    coef = model["coef"] if isinstance(model["coef"][0], list) else [model["coef"]]
    intercept = model["intercept"] if isinstance(model["intercept"], list) else [model["intercept"]]
    ends = model["intervals"] if several or model["intervals"] is None else [model["intervals"]]
    unshrunk = model.get("unshrunk")
    middles: list[Any] = (unshrunk or []) if several else [unshrunk]
    out = []
    for k, weights in enumerate(coef):
        values = [*weights, intercept[k]]
        bounds: Sequence[Any] = [None] * len(values) if ends is None else ends[k]
        title = f"class {model['classes'][k]}" if several else "coefficient"
        rows = [
            [name, f"{value:.4g}", *(("", "") if pair is None else (f"{pair[0]:.4g}", f"{pair[1]:.4g}"))]
            for name, value, pair in zip(model["names"], values, bounds, strict=True)
        ]
        if middles and middles[k]:
            rows = [[*row, f"{middle:.4g}"] for row, middle in zip(rows, middles[k], strict=True)]
        out.append((title, rows))
    return out


def _drawn(draws: dict[str, Any]) -> str:
    """Whether the questions were answered as often as devices draw them."""
    p = f"{draws['p']:.2g}" if draws["p"] > 2e-300 else "1e-300 or less"
    if draws["suspicious"]:
        return f"answered too unevenly (p = {p}, marked below {draws['level']:g})"
    return f"answered as often as devices draw them (p = {p})"


def _newer_reports(data: dict[str, Any]) -> str:
    """The number of reports that a service has counted since it made the estimate."""
    more = data.get("reports", data["n"]) - data["n"]
    return f", and {more} since; the next estimate follows at {data['next_at']}" if more else ""


def _row(name: str, one: dict[str, Any]) -> list[str]:
    return [name, f"{one['value']:.4g}", f"{one['interval'][0]:.4g}", f"{one['interval'][1]:.4g}"]

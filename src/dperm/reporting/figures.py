"""Small figures as SVG text: no scripts, no fonts of their own, colours from the page around them.

Classes (``axis``, ``grid``, ``s0`` ...) are styled by :data:`FIGURE_STYLE`, which follows the reader's light or dark
theme; every figure has a title and a description for screen readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dperm.reporting.axes import Axis

__all__ = ["FIGURE_STYLE", "Series", "line_chart"]

FIGURE_STYLE = """
.figure text{fill:var(--ink,#1b1f24);font:12px system-ui,sans-serif}
.figure .axis{stroke:var(--ink,#1b1f24);stroke-width:1;fill:none}
.figure .grid{stroke:var(--line,#d5dae1);stroke-width:1}
.figure .small{font-size:11px;fill:var(--soft,#525b66)}
.figure .s0{stroke:var(--one,#0b5cad);fill:var(--one,#0b5cad)}
.figure .s1{stroke:var(--two,#b3530a);fill:var(--two,#b3530a)}
.figure .s2{stroke:var(--three,#59636e);fill:var(--three,#59636e)}
.figure .rest{fill:var(--rest,#e6eaef);stroke:var(--line,#d5dae1)}
.figure path.curve{fill:none;stroke-width:2.5;stroke-linejoin:round}
.figure path.s1{stroke-dasharray:7 4}
.figure path.s2{stroke-dasharray:2 4}
.figure rect{stroke:none}
.figure .mark{paint-order:stroke;stroke:var(--paper,#fff);stroke-width:4px}
"""


@dataclass(frozen=True)
class Series:
    """One curve: its label and its points."""

    label: str
    points: tuple[tuple[float, float], ...]


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    mark: tuple[float, float, str] | None = None,
    width: int = 640,
    height: int = 300,
    alone: bool = False,
) -> str:
    """Draw curves; ``mark`` is a labelled point, ``alone`` makes a self-contained file.

    >>> print(line_chart([Series("a", ((0.0, 1.0), (1.0, 2.0)))], title="t", x_label="x", y_label="y")[:26])
    <svg class="figure" viewBo
    """
    points = [point for one in series for point in one.points]
    across = Axis.over([x for x, _ in points], 64.0, width - 16.0, log_x)
    up = Axis.over([y for _, y in points], height - 46.0, 30.0, log_y)
    parts = []
    for value, text in up.ticks():
        y = up.place(value)
        parts.append(f'<line class="grid" x1="64" x2="{width - 16}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="small" x="58" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for value, text in across.ticks():
        x = across.place(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{height - 46}" y2="{height - 41}"/>')
        parts.append(f'<text class="small" x="{x:.1f}" y="{height - 27}" text-anchor="middle">{text}</text>')
    parts.append(f'<path class="axis" d="M64 30V{height - 46}H{width - 16}"/>')
    parts.append(f'<text x="{(width + 48) / 2:.0f}" y="{height - 8}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="64" y="18">{escape(y_label)}</text>')
    for k, one in enumerate(series):
        drawn = " ".join(
            f"{'M' if i == 0 else 'L'}{across.place(x):.1f} {up.place(y):.1f}" for i, (x, y) in enumerate(one.points)
        )
        parts.append(f'<path class="curve s{k % 3}" d="{drawn}"/>')
    if len(series) > 1:
        parts += _legend(series, width)
    if mark is not None:
        x, y = across.place(mark[0]), up.place(mark[1])
        # above the point, on the side where a falling curve leaves room; otherwise below it
        falls = series[0].points[0][1] > series[0].points[-1][1]
        fits = x < width - 220
        anchor, shift = ("start", 8) if falls == fits else ("end", -8)
        height_of_text = min(y + 20, height - 50) if falls and not fits else max(y - 9, 28)
        parts.append(f'<circle class="s0" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        parts.append(
            f'<text class="mark" x="{x + shift:.1f}" y="{height_of_text:.1f}" text-anchor="{anchor}">'
            f"{escape(mark[2])}</text>"
        )
    described = "; ".join(f"{one.label}: from {_pair(one.points[0])} to {_pair(one.points[-1])}" for one in series)
    return _svg(parts, title, f"{y_label} against {x_label}. {described}.", width, height, alone)


def _svg(parts: Sequence[str], title: str, described: str, width: int, height: int, alone: bool) -> str:
    name = "-".join(title.lower().split())
    name = "".join(letter for letter in name if letter.isalnum() or letter == "-")
    head = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    style = f"<style>{FIGURE_STYLE}</style>" if alone else ""
    paper = '<rect width="100%" height="100%" fill="#fff"/>' if alone else ""
    return (
        f'<svg class="figure" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-t {name}-d"{head}>'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(described)}</desc>'
        f"{style}{paper}{''.join(parts)}</svg>"
    )


def _legend(series: Sequence[Series], width: int) -> list[str]:
    out = []
    for k, one in enumerate(series):
        y = 40 + 18 * k
        out.append(f'<path class="curve s{k % 3}" d="M{width - 214} {y}h28"/>')
        out.append(f'<text x="{width - 180}" y="{y + 4}">{escape(one.label)}</text>')
    return out


def _pair(point: tuple[float, float]) -> str:
    return f"({point[0]:.3g}, {point[1]:.3g})"

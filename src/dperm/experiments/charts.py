"""Pictures of results as SVG text: several panels side by side, each with curves in bands, bars and lines.

A label has the same colour in every panel, and the legend stands once above all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dperm.errors import InvalidInput
from dperm.reporting.axes import Axis

__all__ = ["Bars", "Curve", "Line", "Panel", "picture"]

#: distinguishable with the usual kinds of colour blindness (Okabe and Ito's palette, without yellow)
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")
_WIDTH, _HEIGHT = 320, 240  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 18, 44, 40  # margins inside a panel
_LEGEND_LINE = 20
_DASHES = "5 3"


@dataclass(frozen=True)
class Curve:
    """A line through points; ``low`` and ``high`` draw a band around it."""

    label: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    marked: bool = False


@dataclass(frozen=True)
class Bars:
    """A histogram: ``heights[k]`` stands between ``edges[k]`` and ``edges[k + 1]``."""

    label: str
    edges: tuple[float, ...]
    heights: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A straight line across the panel, at a height or (``vertical``) at a place."""

    label: str
    at: float
    vertical: bool = False


@dataclass(frozen=True)
class Panel:
    """One drawing with its two axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...] = ()
    bars: tuple[Bars, ...] = ()
    lines: tuple[Line, ...] = ()
    log_x: bool = False
    log_y: bool = False

    @property
    def labels(self) -> list[str]:
        """Labels of everything in the panel."""
        named: tuple[Curve | Bars | Line, ...] = (*self.curves, *self.bars, *self.lines)
        return [one.label for one in named]

    def _values(self) -> tuple[list[float], list[float]]:
        across = [x for curve in self.curves for x, _ in curve.points]
        across += [x for bars in self.bars for x in bars.edges]
        across += [line.at for line in self.lines if line.vertical]
        up = [y for curve in self.curves for _, y in curve.points]
        up += [y for curve in self.curves for y in (*curve.low, *curve.high)]
        up += [y for bars in self.bars for y in bars.heights]
        up += [line.at for line in self.lines if not line.vertical]
        return across, up


def picture(panels: Sequence[Panel], title: str, columns: int = 3) -> str:
    """Draw panels as one SVG file.

    >>> panel = Panel("a", "passes", "error", (Curve("DP-GCD", ((0.0, 1.0), (1.0, 0.5))),))
    >>> picture([panel], "one")[:15]
    '<svg xmlns="htt'
    """
    labels = list(dict.fromkeys(label for panel in panels for label in panel.labels))
    if len(labels) > len(_COLOURS):
        raise InvalidInput(f"a picture has {len(_COLOURS)} colours, and {len(labels)} labels: draw fewer curves.")
    colours = dict(zip(labels, _COLOURS, strict=False))
    dashed = {line.label for panel in panels for line in panel.lines}
    columns = max(1, min(columns, len(panels)))
    # a single panel would squeeze the legend into many lines
    width = max(columns, 2) * _WIDTH
    legend, above = _legend(labels, colours, dashed, width)
    rows = -(-len(panels) // columns)
    height = above + rows * _HEIGHT
    left = (width - columns * _WIDTH) // 2
    drawn = [
        f'<g transform="translate({left + k % columns * _WIDTH} {above + k // columns * _HEIGHT})">'
        f"{_panel(one, colours)}</g>"
        for k, one in enumerate(panels)
    ]
    described = "; ".join(f"{one.title}: {one.y_label} against {one.x_label}" for one in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui,sans-serif" font-size="11">'
        f"<title>{escape(title)}</title><desc>{escape(described)}</desc>"
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(legend)}{"".join(drawn)}</svg>\n'
    )


def _legend(labels: Sequence[str], colours: dict[str, str], dashed: set[str], width: int) -> tuple[list[str], int]:
    """Return the legend, wrapped to a width, and the height that it takes."""
    out, x, y = [], 12.0, 16
    for label in labels:
        length = 40.0 + 6.2 * len(label)  # about the width of the text at this size
        if x > 12.0 and x + length > width:
            x, y = 12.0, y + _LEGEND_LINE
        stroke = f'stroke-width="1.5" stroke-dasharray="{_DASHES}"' if label in dashed else 'stroke-width="3"'
        out.append(f'<path d="M{x:.0f} {y - 4}h22" stroke="{colours[label]}" {stroke}/>')
        out.append(f'<text x="{x + 27:.0f}" y="{y}">{escape(label)}</text>')
        x += length
    return out, y + 8


def _panel(panel: Panel, colours: dict[str, str]) -> str:
    across_values, up_values = panel._values()
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    across = _axis(across_values, float(_LEFT), float(right), panel.log_x)
    up = _axis(up_values, float(bottom), float(_TOP), panel.log_y)
    parts = [f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(panel.title)}</text>']
    parts.append(f'<text x="{_LEFT}" y="34" fill="#525b66">{escape(panel.y_label)}</text>')
    for value, text in _ticks(up):
        y = up.place(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#d5dae1"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for value, text in _ticks(across):
        x = across.place(value)
        parts.append(f'<path d="M{x:.1f} {bottom}v4" stroke="#1b1f24"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" fill="#525b66">{escape(panel.x_label)}</text>'
    )
    for bars in panel.bars:
        for left, end, height in zip(bars.edges, bars.edges[1:], bars.heights, strict=False):
            if height > 0.0:
                x, y = across.place(left), up.place(height)
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{across.place(end) - x:.1f}" height="{bottom - y:.1f}" '
                    f'fill="{colours[bars.label]}" stroke="#fff" stroke-width="0.5"/>'
                )
    parts += [_curve(curve, across, up, colours[curve.label]) for curve in panel.curves if curve.points]
    for line in panel.lines:
        place = (
            f"M{across.place(line.at):.1f} {_TOP}V{bottom}"
            if line.vertical
            else f"M{_LEFT} {up.place(line.at):.1f}H{right}"
        )
        parts.append(
            f'<path d="{place}" stroke="{colours[line.label]}" stroke-width="1.5" stroke-dasharray="{_DASHES}"/>'
        )
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#1b1f24"/>')
    return "".join(parts)


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    """Return the values to mark; a logarithmic axis of one or two decades gets 2 and 5 as well."""
    ticks = axis.ticks()
    if axis.log and len(ticks) <= 3:
        between = [factor * value for value, _ in ticks for factor in (2.0, 5.0) if factor * value < axis.high]
        ticks += [(value, f"{value:g}") for value in between]
    return ticks


def _axis(values: Sequence[float], start: float, end: float, log: bool) -> Axis:
    usable = [value for value in values if value > 0.0] if log else list(values)
    return Axis.over(usable or [1.0], start, end, log)


def _curve(curve: Curve, across: Axis, up: Axis, colour: str) -> str:
    places = [(across.place(x), up.place(y)) for x, y in curve.points]
    out = ""
    if curve.low and curve.high:
        top = [f"{x:.1f} {up.place(y):.1f}" for (x, _), y in zip(places, curve.high, strict=True)]
        below = [f"{x:.1f} {up.place(y):.1f}" for (x, _), y in zip(places, curve.low, strict=True)]
        out += f'<path d="M{" L".join([*top, *reversed(below)])}Z" fill="{colour}" fill-opacity="0.18"/>'
    drawn = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    out += f'<path d="M{drawn}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
    if curve.marked or len(places) == 1:
        out += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
    return out

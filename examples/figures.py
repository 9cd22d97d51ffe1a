"""Draws excess risk against epsilon for all examples, as an SVG that follows the reader's light or dark theme."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"

# Distinct on light and on dark pages, and for readers with colour blindness; markers differ too.
_COLOURS = ("#00897b", "#d97706", "#3b82f6", "#b04ac2", "#7a8794", "#dc2626")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_INK = "#123456"  # a placeholder, replaced by the colour of the page's text
_STYLE = """<style>
.picture { --ink: #1f2933 } @media (prefers-color-scheme: dark) { .picture { --ink: #e4e7eb } }
</style>"""


def draw(
    script: str,
    epsilons: Sequence[float],
    curves: Mapping[str, np.ndarray],
    *,
    null: float | None = None,
    quantity: str = "excess risk (mean loss above the minimum)",
) -> Path:
    """Draw the mean over runs of each curve, with a band of two standard errors.

    ``curves`` maps a label to an array of shape (len(epsilons), runs). ``null`` is the excess risk without weights. The
    picture is written next to the gallery's page, or to the path given on the command line.
    """
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    name = Path(script).stem
    plt.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": name,
            "font.family": "sans-serif",
            "font.size": 11,
            "text.color": _INK,
            "axes.labelcolor": _INK,
            "axes.edgecolor": _INK,
            "xtick.color": _INK,
            "ytick.color": _INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    for (label, runs), colour, marker in zip(curves.items(), _COLOURS, _MARKERS, strict=False):
        values = np.asarray(runs, float)
        mean, error = values.mean(axis=1), 2.0 * values.std(axis=1) / np.sqrt(max(1, values.shape[1] - 1))
        axes.fill_between(epsilons, np.maximum(mean - error, mean / 4), mean + error, color=colour, alpha=0.15, lw=0)
        axes.plot(epsilons, mean, color=colour, marker=marker, ms=5, lw=1.8, label=label)
    if null is not None:
        axes.axhline(null, color=_INK, lw=1.0, ls=":", label="no weights at all")
    axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel=quantity)
    axes.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axes.minorticks_off()
    axes.grid(axis="y", color=_INK, alpha=0.12, lw=0.8)
    axes.legend(frameon=False, fontsize=10)
    figure.tight_layout()
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else GALLERY / f"{name}.svg"
    figure.savefig(target, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    svg = target.read_text(encoding="utf-8").replace(_INK, "var(--ink)")
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'class="picture"', svg, count=1)
    # several pictures share one page, where ids must be unique
    svg = re.sub(r'id="((?:figure|axes|patch|text|xtick|ytick|line2d|legend|matplotlib\.axis)_?\d*)"', "", svg)
    svg = re.sub(r"(<svg[^>]*>)", rf"\1\n{_STYLE}", svg, count=1)
    target.write_text(svg, encoding="utf-8")
    print(target)
    return target

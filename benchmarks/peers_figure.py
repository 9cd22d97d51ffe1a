"""Plot the comparison with peers: score against epsilon, one panel per data set. Arguments: results, picture."""

from __future__ import annotations

import json
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


def draw(panels: list[dict[str, Any]], path: str) -> None:
    """Draw one panel per data set; methods keep their colour, references without privacy are horizontal lines."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 4.2), squeeze=False)
    shown: dict[str, Any] = {}
    colours = plt.get_cmap("tab10")
    order: dict[str, int] = {}
    for axis, panel in zip(axes[0], panels, strict=True):
        for curve in panel["curves"]:
            colour = colours(order.setdefault(curve["label"], len(order)) % 10)
            ours = curve["label"].startswith("dperm")
            shown[curve["label"]] = axis.errorbar(
                curve["epsilon"],
                curve["mean"],
                yerr=np.nan_to_num(np.array(curve["error"], float)),
                color=colour,
                marker="o",
                markersize=4,
                linewidth=2.2 if ours else 1.2,
                capsize=3,
                zorder=3 if ours else 2,
            )
        for line in panel["lines"]:
            style = ":" if line["label"].startswith("null") else "--"
            shown[line["label"]] = axis.axhline(line["value"], color="black", linestyle=style, linewidth=1.0)
        axis.set_xscale("log")
        ticks = sorted({epsilon for curve in panel["curves"] for epsilon in curve["epsilon"]})
        axis.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        axis.minorticks_off()
        if len(panel["lines"]) == 2:  # scores far below the null model are of no interest and are cut off
            low, high = sorted(line["value"] for line in panel["lines"])
            axis.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
        axis.set_xlabel("epsilon")
        axis.set_ylabel(panel["score"])
        axis.set_title(panel["title"])
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncols=4, frameon=False, fontsize="small")
    figure.tight_layout(rect=(0.0, 0.12, 1.0, 1.0))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        draw(json.load(file), sys.argv[2])

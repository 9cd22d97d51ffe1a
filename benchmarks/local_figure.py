"""Plot risk against the number of people in the local model. Arguments: results file, picture file."""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw(part, path):
    """Draw one curve per method on logarithmic axes, with standard errors."""
    figure, axis = plt.subplots(figsize=(6.4, 4.6))
    for name, curve in part["curves"].items():
        axis.errorbar(
            [point["n"] for point in curve],
            [point["mean"] for point in curve],
            yerr=[point["error"] for point in curve],
            marker="o",
            markersize=4,
            linewidth=2.2 if name.startswith("dperm") else 1.2,
            capsize=3,
            label=name,
        )
    axis.axhline(part["null"], color="black", linestyle=":", linewidth=1.0, label="weights 0")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("people, one report each, epsilon 1")
    axis.set_ylabel("excess logistic risk, two columns")
    axis.legend(frameon=False, fontsize="small")
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        draw(json.load(file)["people"], sys.argv[2])

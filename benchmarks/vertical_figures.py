"""Plot the results of vertical_algorithms.py. Arguments: results file, folder for the pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


def convergence(results, path):
    """Noise-free curves: gap of the objective, test error, Lyapunov quantity."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5))
    for row, name in zip(axes, ("a9a", "mnist"), strict=True):
        for label in ("ADMM", "SGD over parties"):
            one = results[name][label]
            row[0].semilogy(range(1, 1 + len(one["gap"])), np.maximum(one["gap"], 1e-9), label=label)
            row[1].plot(range(1, 1 + len(one["error"])), one["error"], label=label)
        row[2].semilogy(range(1, 1 + len(results[name]["ADMM"]["lyapunov"])), results[name]["ADMM"]["lyapunov"])
        row[0].axhline(1e-3, color="black", linestyle=":", linewidth=1)
        row[0].set_title(f"{name}: objective above its optimum, relative")
        row[1].set_title(f"{name}: test error")
        row[2].set_title(f"{name}: Lyapunov quantity of ADMM")
        for axis in row:
            axis.set_xlabel("rounds (ADMM), passes (SGD)")
        row[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def uplink(results, path):
    """Objective against bytes."""
    figure, axis = plt.subplots(figsize=(6.5, 4.5))
    for label, curve in results["uplink"].items():
        axis.semilogx(curve["bytes"], curve["objective"], marker="o", markersize=4, label=label)
    axis.set_xlabel("bytes sent by all parties")
    axis.set_ylabel("training objective")
    axis.set_ylim(0.31, 0.8)  # the first steps of Frank-Wolfe are far above the rest
    axis.set_title("a9a, two parties, no noise: what an objective costs in uplink")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def help_of_others(results, path):
    """Test loss of party 1 alone, with help, and pooled."""
    data = results["help"]
    figure, axis = plt.subplots(figsize=(6.5, 4.5))
    for label, text in (
        ("with help", "party 1 with help, certified"),
        ("alone, certified", "party 1 alone, certified"),
        ("pooled, certified", "all columns in one place, certified"),
    ):
        runs = np.array(data[label])
        axis.errorbar(data["epsilon"], runs.mean(axis=1), yerr=runs.std(axis=1), marker="o", capsize=3, label=text)
    axis.axhline(data["alone"], color="black", linestyle=":", label="party 1 alone, no privacy")
    axis.axhline(data["pooled"], color="black", linestyle="--", label="all columns in one place, no privacy")
    axis.set_xscale("log")
    axis.set_xlabel("epsilon (delta 1e-6, model view)")
    axis.set_ylabel("test log loss")
    axis.set_title("a9a, 66 and 57 columns")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    results = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    convergence(results, folder / "vertical_convergence.png")
    uplink(results, folder / "vertical_uplink.png")
    help_of_others(results, folder / "vertical_help.png")


if __name__ == "__main__":
    main()

"""Draw vertical_help.png: what help is worth, of vertical_algorithms.py. Arguments: results file, folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


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
    help_of_others(results, folder / "vertical_help.png")


if __name__ == "__main__":
    main()

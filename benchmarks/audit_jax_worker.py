"""Bounds of jax-privacy's auditor for given scores; started by ``benchmarks/audit_one_run.py`` in its own environment.

Arguments: a file of score vectors (``.npz``), a file of orders (JSON: key, name, delta, significance, bound and, if the
number of guesses is given, n_guesses), and the file to which one line of JSON is added per answer. An order names the
vectors ``<name>/in`` and ``<name>/out``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from jax_privacy.auditing import Bonferroni, CanaryScoreAuditor, Explicit


def answer(inside: Any, outside: Any, order: dict[str, Any]) -> float:
    """Return the bound that was asked for."""
    auditor = CanaryScoreAuditor(inside, outside)
    delta, significance = order["delta"], order["significance"]
    strategy: Any = Bonferroni()
    if order["n_guesses"]:
        strategy = Explicit(float(np.sort(np.concatenate([inside, outside]))[-order["n_guesses"]]))
    if order["bound"] == "one-run":
        return float(auditor.epsilon_one_run(significance, delta, threshold_strategy=strategy))
    if order["bound"] == "one-run-fdp":
        return float(auditor.epsilon_one_run_fdp(significance, delta, threshold_strategy=strategy))
    if order["bound"] == "clopper-pearson":
        return float(auditor.epsilon_clopper_pearson(significance, delta, one_sided=False, threshold_strategy=strategy))
    return float(auditor.epsilon_from_gdp(significance, delta))


def main() -> None:
    """Answer all orders."""
    scores, orders, out = map(Path, sys.argv[1:])
    with np.load(scores) as vectors, out.open("a") as lines:
        for order in json.loads(orders.read_text()):
            value = answer(vectors[f"{order['name']}/in"], vectors[f"{order['name']}/out"], order)
            lines.write(json.dumps({"key": order["key"], "epsilon": value}) + "\n")
            lines.flush()


if __name__ == "__main__":
    main()

"""The load figures in the documentation are those of the stored benchmark run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_documented_figures_are_those_of_the_stored_run() -> None:
    sys.path.insert(0, str(_BENCHMARKS))
    try:
        import collect_figures
    finally:
        sys.path.remove(str(_BENCHMARKS))
    text = collect_figures.DOCS.read_text(encoding="utf-8")
    assert collect_figures.written(text, json.loads(collect_figures.RESULTS.read_text())) == text

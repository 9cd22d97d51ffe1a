"""Results that are printed as they arrive and stored in ``benchmarks/results/<name>.md``."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"


class Recorded:
    """A table of results; leaving the ``with`` block writes it, unless an error occurred."""

    def __init__(self, name: str, title: str, columns: tuple[str, ...], keep: bool = True) -> None:
        self._path = RESULTS / f"{name}.md"
        self._keep = keep
        self._load = _load()
        self._lines = [f"# {title}", "", "", "", _row(columns), _row(["---"] * len(columns))]
        print(_row(columns), flush=True)

    def add(self, *cells: str) -> None:
        """Add a row."""
        self._lines.append(_row(cells))
        print(self._lines[-1], flush=True)

    def say(self, text: str) -> None:
        """Add a sentence below the table."""
        self._lines += ["", text]
        print(text, flush=True)

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._keep:
            return
        script = Path(sys.argv[0]).name
        self._lines[2] = (
            f"`python benchmarks/{' '.join([script, *sys.argv[1:]])}`; Python {platform.python_version()}, "
            f"numpy {np.__version__}; processes waiting for one of {os.cpu_count()} cores {self._load} at the start, "
            f"{_load()} at the end."
        )
        self._path.write_text("\n".join(self._lines) + "\n")


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"

"""``make mutants``: draw the sample, run it, write the results. Code 1 if too many survivors are unexplained."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import report
from .explained import explanations
from .run import Run
from .runner import Runner
from .sampling import SEED, SHARES, sample
from .selection import SECONDS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--part", type=float, default=1.0, help="part of the sample to run, such as 0.1")
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="run these mutants, by their keys")
    parser.add_argument("--again", action="store_true", help="run all again, also those with a result")
    parser.add_argument(
        "--measure",
        choices=("changed", "all", "none"),
        default="changed",
        help="of which tests to measure the lines that they run, before mutants are run",
    )
    options = parser.parse_args()

    os.nice(10)  # hours of tests, on a machine that may have other work
    run = Run(ROOT, ROOT / ".mutants")
    known = run.coverage(options.measure)
    shares = {folder: max(1, round(number * options.part)) for folder, number in SHARES.items()}
    print(f"sample of {sum(shares.values())} mutants with seed {SEED}: {shares}", flush=True)
    chosen = sample(run.source, shares)
    session = run.session(chosen, known)
    wanted = [one for one in chosen if options.again or session.outcome(one) is None]
    if options.only:
        wanted = [one for one in chosen if one.key in options.only]
    if wanted:
        runner = Runner(run.tree)
        try:
            run.run(wanted, known, session, SECONDS, runner)
        finally:
            runner.close()
    session.close()
    results = {one.key: found for one in chosen if (found := session.outcome(one)) is not None}
    rows = report.rows(chosen, results, explanations(), RESULTS / "mutants.json")
    return _conclude(rows, len(chosen) - len(results), whole=options.part == 1.0)


def _conclude(rows: list[report.Row], missing: int, *, whole: bool) -> int:
    left = [row for row in rows if row.unexplained]
    for row in left:
        print(f"\nunexplained survivor {row.mutant.key}: {row.mutant.file}:{row.mutant.line}, {row.mutant.where}")
        print(row.mutant.diff)
    print(f"\n{len(left)} of {len(rows)} mutants survived without an explanation.")
    if not whole:
        print("Only a part was run: benchmarks/results/mutants.md stays as it was.")
        return 0
    report.write(RESULTS, rows, {**_facts(), "mutants without a result": missing})
    return int(missing > 0 or len(left) >= report.LARGEST_UNEXPLAINED * len(rows))


def _facts() -> dict[str, Any]:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "src", "tests") else ""
    return {
        "tool": f"Cosmic Ray {version('cosmic-ray')}",
        "python": sys.version.split()[0],
        "commit": git("rev-parse", "--short=12", "HEAD") + changed,
        "seed": SEED,
        "seconds of tests for each mutant": SECONDS,
    }


if __name__ == "__main__":
    sys.exit(main())

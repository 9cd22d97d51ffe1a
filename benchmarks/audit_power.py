"""Audit every release of dperm, then again with half the noise: what is found, and with what power.

python benchmarks/audit_power.py --repeats 3
"""

from __future__ import annotations

import argparse
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import time
from collections import Counter

from recorded import Recorded

from dperm.audit.releases import FAMILIES, AuditCase, Verdict, all_cases, audit_case
from dperm.audit.releases.whole_run import WHOLE_RUN, audit_whole_run
from dperm.testing.weaker_noise import weaker_noise, weaker_reports

COLUMNS = (
    "case", "release", "runs", "seconds", "releases", "epsilon charged", "epsilon found / charged",
    "noise factor found with probability .95", "moved by real neighbours", "half the noise found",
)  # fmt: skip
CONFIDENCE = 0.9999


def halved(case: AuditCase, repeats: int, whole_runs: int) -> tuple[Counter[str], Counter[str]]:
    """Return how often half the noise was found in each release, and how often it was looked for."""
    found: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for repeat in range(repeats):
        with weaker_noise(), weaker_reports():
            result = audit_case(case, confidence=CONFIDENCE, real_neighbours=False, whole_runs=0, seed=repeat)
            rows = list(result.releases)
            if case.solver is not None and repeat == 0:
                rows.append(audit_whole_run(case.solver, n_runs=whole_runs, confidence=CONFIDENCE))
        for one in rows:
            tried[one.release] += 1
            found[one.release] += one.verdict is Verdict.VIOLATION
    return found, tried


def main() -> None:
    parser = argparse.ArgumentParser(description="Power of the audit of dperm's releases.")
    parser.add_argument("--repeats", type=int, default=3, help="audits with half the noise")
    parser.add_argument("--whole-runs", type=int, default=1000, help="runs of a solver with and without a canary")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    arguments = parser.parse_args()
    cases = [case for case in all_cases() if case.family in arguments.families]
    start, alarms, missed, n_releases = time.perf_counter(), 0, 0, 0
    with Recorded("audit_power", "Power of the audit of dperm's releases", COLUMNS) as table:
        for case in cases:
            honest = audit_case(case, confidence=1.0 - (1.0 - CONFIDENCE) / len(cases), whole_runs=arguments.whole_runs)
            found, tried = halved(case, arguments.repeats, arguments.whole_runs)
            whole = sum(one.seconds for one in honest.releases)
            alarms += honest.verdict is Verdict.VIOLATION
            for one in honest.releases:
                n_releases += 1
                missed += tried[one.release] - found[one.release]
                moved = honest.reached.get(one.release, honest.reached.get("all"))
                table.add(
                    case.name,
                    one.release,
                    str(honest.runs if one.release != WHOLE_RUN else one.releases),
                    f"{one.seconds if one.release == WHOLE_RUN else honest.seconds - whole:.0f}",
                    f"{one.releases:,}",
                    f"{one.claimed:.3g}",
                    f"{one.found / one.claimed:.2f}",
                    f"{one.noise_factor:.2f}",
                    "" if moved is None or one.release == WHOLE_RUN else f"{moved:.2f}",
                    f"{found[one.release]} of {tried[one.release]}",
                )
            for sentence in honest.sentences:
                table.say(f"Alarm in {case.name}: {sentence}.")
        table.say(
            f"{n_releases} releases of {len(cases)} parts, fresh noise, confidence {CONFIDENCE:.2%} for all together: "
            f"{alarms} alarms on the code as it is. Half the noise was missed {missed} times. "
            f"{time.perf_counter() - start:.0f} seconds on a shared machine. Seconds are those of the audit of the "
            "code as it is, real neighbours included, for all releases of a part together."
        )


if __name__ == "__main__":
    main()

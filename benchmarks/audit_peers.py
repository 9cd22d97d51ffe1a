"""Audit other libraries and every estimator of dperm from outside: verdict, epsilon found, power and time.

python benchmarks/audit_peers.py
python benchmarks/audit_peers.py --only diffprivlib --seconds 90 --no-record

Each peer runs in an environment of its own under ``.peers/``, built on first use. Ends with code 1 if a verdict is not
the expected one, or if the flaw of diffprivlib's logistic regression is not found within two minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from peers_environments import HERE, Unavailable, python_of
from recorded import Recorded

from dperm.audit.estimators import ESTIMATORS

EXAMPLES = HERE.parent / "examples" / "audit"
COLUMNS = (
    "audited", "claim", "verdict", "expected", "epsilon found", "noise factor found with probability .95",
    "the same in single releases", "runs", "seconds of the whole command",
)  # fmt: skip
#: the bar for a known violation
MOST_SECONDS = 120.0
GAUSSIAN = ("--delta", "1e-5", "--gaussian")
ADD_REMOVE = ("--delta", "1e-5", "--neighbours", "add-remove", "--in-range")


@dataclass(frozen=True)
class Audited:
    """A function or estimator, its claim beyond epsilon 1, and whether the claim is known to be false."""

    name: str
    subject: str
    options: tuple[str, ...] = ()
    environment: str = "dperm"
    violation: bool = False
    within: float = field(default=float("inf"))


PEERS = (
    Audited(
        "diffprivlib 0.6.6, logistic regression",
        "diffprivlib_logistic:fit",
        ("--features", "1", "--range", "-100", "100", "--rows", "2"),
        "diffprivlib",
        violation=True,
        within=MOST_SECONDS,
    ),
    Audited("textbook Laplace noise in numpy", "naive_laplace:fit", violation=True),
    Audited("OpenDP, Laplace", "opendp_laplace:laplace_sums"),
    Audited("OpenDP, Gaussian", "opendp_laplace:gaussian_sums", GAUSSIAN),
    Audited("Opacus 1.6.0, logistic regression", "opacus_logistic:fit", ADD_REMOVE, "opacus"),
    Audited("interpret 0.7.8, DP-EBM", "interpret_ebm:fit", (*ADD_REMOVE, "--features", "1"), "interpret"),
)
OWN = tuple(Audited(f"dperm, {name}", name) for name in ESTIMATORS)


def command(one: Audited, seconds: float, cache: Path) -> list[str]:
    """Return the words of ``dperm audit``."""
    words = [
        sys.executable,
        "-m",
        "dperm",
        "audit",
        one.subject,
        "--epsilon",
        "1",
        "--seconds",
        f"{seconds:g}",
        "--json",
    ]
    if ":" in one.subject:
        words += ["--path", str(EXAMPLES)]
    if one.environment != "dperm":
        words += ["--python", str(python_of(one.environment, cache))]
    return [*words, *one.options]


def main() -> int:
    """Audit all, or those whose name contains one of some words."""
    parser = argparse.ArgumentParser(description="Audit peers and dperm's own estimators from outside.")
    parser.add_argument("--seconds", type=float, default=100.0, help="for the attacks of each audit of a peer")
    parser.add_argument("--own-seconds", type=float, default=100.0, help="the same for dperm's estimators")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--record", action=argparse.BooleanOptionalAction, default=True, help="keep the table")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".peers", help="folder of the environments")
    asked = parser.parse_args()
    chosen = [one for one in (*PEERS, *OWN) if any(word.lower() in one.name.lower() for word in asked.only)]
    wrong = []
    asked.cache.mkdir(parents=True, exist_ok=True)
    with Recorded("audit_peers", "Audits of peers and of dperm from outside", COLUMNS, asked.record) as table:
        for one in chosen:
            try:
                words = command(one, asked.own_seconds if one in OWN else asked.seconds, asked.cache)
            except Unavailable as reason:
                table.say(f"{one.name} was not audited: {reason}.")
                continue
            start = time.perf_counter()
            done = subprocess.run(words, capture_output=True, text=True)
            seconds = time.perf_counter() - start
            if done.returncode not in (0, 1):
                table.say(f"{one.name} was not audited: {done.stderr.strip().splitlines()[-1]}")
                wrong.append(one.name)
                continue
            found = json.loads(done.stdout)
            good = (done.returncode == 1) == one.violation and seconds <= one.within
            wrong += [] if good else [one.name]
            power = found["noise_factor_found_with_probability_0.95"]
            single = found["noise_factor_of_single_releases_found_with_probability_0.95"]
            claim = found["claim"]
            table.add(
                one.name,
                f"epsilon {claim['epsilon']:g}, delta {claim['delta']:g}, {claim['neighbours']}",
                found["verdict"],
                "violation" if one.violation else "none",
                str(found["epsilon_found"])[:6],
                "" if power is None else f"{power:.2f}",
                "" if single is None else f"{single:.2f}",
                f"{found['runs']:,}",
                f"{seconds:.0f}",
            )
        table.say(
            f"Confidence 99.99% for each audit; {asked.seconds:g} seconds for the attacks on a peer, "
            f"{asked.own_seconds:g} on an estimator of dperm; fresh noise. "
            + (f"Not as expected: {', '.join(wrong)}." if wrong else "All verdicts are the expected ones.")
        )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

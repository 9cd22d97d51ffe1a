"""Create the tables of three organisations that know different things about the same people (all invented)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def main(folder: Path = Path(__file__).parent) -> None:
    rng = np.random.default_rng(7)
    n = 3000
    ids = [rng.bytes(12).hex() for _ in range(n)]
    age, visits = rng.uniform(20, 90, n), rng.poisson(2, n).clip(0, 10)
    claims, premium = rng.exponential(800, n).clip(0, 5000), rng.uniform(100, 900, n)
    drugs, adherence = rng.poisson(3, n).clip(0, 15), rng.uniform(0, 1, n)
    risk = (age - 55) / 20 + (visits - 2) / 3 + (claims - 800) / 1500 + (drugs - 3) / 3 - 2.5 * (adherence - 0.5)
    readmitted = rng.uniform(size=n) < 1 / (1 + np.exp(-1.5 * risk))
    tables = {
        "hospital": {"patient": ids, "readmitted": ["yes" if one else "no" for one in readmitted]},
        "insurer": {"member": ids, "age": age.round(), "claims": claims.round(2), "premium": premium.round(2)},
        "pharmacy": {"card": ids, "drugs": drugs, "adherence": adherence.round(3), "visits": visits},
    }
    for name, table in tables.items():
        (folder / name).mkdir(exist_ok=True)
        with open(folder / name / "table.csv", "w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(table)
            for i in rng.permutation(n)[: n - 150]:  # each table lacks some people and has its own row order
                writer.writerow([column[i] for column in table.values()])


if __name__ == "__main__":
    main()

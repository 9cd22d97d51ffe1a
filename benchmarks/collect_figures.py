"""Write the results of ``collect_load.py`` into the documentation.

python benchmarks/collect_figures.py        # writes those of benchmarks/results/collect.json into docs/collect.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
RESULTS, DOCS = _ROOT / "benchmarks/results/collect.json", _ROOT / "docs/collect.md"

_FROM, _TO = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


def _single(one: dict[str, Any]) -> str:
    return f"{one['per_second']:,} a second, p99 {one['p99_ms']:g} ms"


def table(results: dict[str, Any]) -> str:
    """Return the results as a table: the measured quantity and the load of each row."""
    both = [results["sqlite"], results["postgresql"]]
    loads = [one["load_average"] for kind in both for part in ("singles", "batches") for one in kind[part]]
    rows = [("", "SQLite", "PostgreSQL")]
    for k, first in enumerate(both[0]["singles"]):
        rate = first["offered_per_second"]
        how = f"{rate:,.0f} a second offered" if isinstance(rate, float) else rate
        rows.append(
            (f"single reports, {first['connections']} connections, {how}", *(_single(b["singles"][k]) for b in both))
        )
    ends = [sorted(one["reports_per_second"] for one in kind["batches"]) for kind in both]
    n = sum(one["requests"] for one in both[0]["batches"]) * 1000
    rows.append(
        (f"batches of 1,000 up to {n:,} ids", *(f"{low:,} to {high:,} reports a second" for low, *_, high in ends))
    )
    cpu = [[one["service_cpu_ms_per_request"] for one in kind["singles"]] for kind in both]
    rows.append(
        ("the service's own processor time for a single report", *(f"{min(c):.2f} to {max(c):.2f} ms" for c in cpu))
    )
    people = both[0]["estimate"]["reports"]
    what = f"an estimate over {people:,} reports, with the fit of ten columns"
    rows.append((what, *(f"{b['estimate']['seconds']:.3f} s" for b in both)))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    missed = [
        f"{name}, {key.replace('_', ' ')}: {one['found']:g}, the target is {one['bar']:g}"
        for name in ("sqlite", "postgresql")
        for key, one in results[name]["bars"].items()
        if not one["met"]
    ]
    said = "All targets were met." if not missed else f"Not met under this load: {'; '.join(missed)}."
    load = f"{min(loads):g} to {max(loads):g}"
    where = f"One run on {results['cores']} cores with a load average of {load}"
    about = f"{where} (this benchmark alone causes about 2). {said}"
    return "\n".join([about, "", lines[0], "|---|---|---|", *lines[1:]]) + "\n"


def written(text: str, results: dict[str, Any]) -> str:
    """Return the documentation page with these figures inserted."""
    before, _, rest = text.partition(_FROM)
    _, _, after = rest.partition(_TO)
    return before + _FROM + table(results) + _TO + after


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text(encoding="utf-8"), json.loads(RESULTS.read_text())), encoding="utf-8")

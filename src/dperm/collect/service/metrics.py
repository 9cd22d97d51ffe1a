"""Metrics of the service for its operator, in Prometheus' text format. None of them is about a device."""

from __future__ import annotations

from collections import Counter

from dperm.collect.store.store import Outcome

__all__ = ["ServiceMetrics"]

#: upper ends of the histogram of commit times in seconds: from a fast disk to a failing one
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class ServiceMetrics:
    """Counts of reports, responses, transactions and connections since the service started."""

    def __init__(self) -> None:
        self.reports: Counter[str] = Counter()
        self.responses: Counter[int] = Counter()
        self.commits: Counter[str] = Counter()
        self._buckets = [0] * len(_BUCKETS)
        self._seconds = 0.0
        self.connections = 0
        self.refused_connections = 0
        #: reports refused because their source sent too many
        self.limited = 0
        #: of every collection's published estimate, by name and version: the p-value of the test of how often questions
        #: were drawn, and whether the estimate is marked
        self.draws: dict[tuple[str, int], tuple[float, bool]] = {}

    def counted(self, outcome: Outcome) -> None:
        """Record the outcome of a request's reports."""
        self.reports["accepted"] += outcome.accepted
        self.reports["duplicate"] += outcome.duplicates
        self.reports["conflict"] += outcome.conflicts

    def committed(self, seconds: float, *, ok: bool) -> None:
        """Record a transaction and how long it took."""
        self.commits["done" if ok else "failed"] += 1
        self._seconds += seconds
        for k, end in enumerate(_BUCKETS):
            self._buckets[k] += seconds <= end

    def text(self) -> str:
        """Return everything in Prometheus' text format."""
        lines = ["# TYPE dperm_reports_total counter"]
        lines += [
            f'dperm_reports_total{{outcome="{k}"}} {self.reports[k]}' for k in ("accepted", "duplicate", "conflict")
        ]
        lines += ["# TYPE dperm_ingest_responses_total counter"]
        lines += [f'dperm_ingest_responses_total{{status="{k}"}} {n}' for k, n in sorted(self.responses.items())]
        lines += ["# TYPE dperm_commits_total counter"]
        lines += [f'dperm_commits_total{{outcome="{k}"}} {self.commits[k]}' for k in ("done", "failed")]
        lines += ["# TYPE dperm_commit_seconds histogram"]
        lines += [f'dperm_commit_seconds_bucket{{le="{e}"}} {n}' for e, n in zip(_BUCKETS, self._buckets, strict=True)]
        total = sum(self.commits.values())
        lines += [f'dperm_commit_seconds_bucket{{le="+Inf"}} {total}']
        lines += [f"dperm_commit_seconds_sum {self._seconds:.6f}", f"dperm_commit_seconds_count {total}"]
        lines += ["# TYPE dperm_connections gauge", f"dperm_connections {self.connections}"]
        lines += ["# TYPE dperm_refused_connections_total counter"]
        lines += [f"dperm_refused_connections_total {self.refused_connections}"]
        lines += ["# TYPE dperm_limited_reports_total counter", f"dperm_limited_reports_total {self.limited}"]
        tests = {f'{{collection="{name}",version="{k}"}}': test for (name, k), test in sorted(self.draws.items())}
        lines += ["# TYPE dperm_draws_p gauge", *(f"dperm_draws_p{about} {p:.6g}" for about, (p, _) in tests.items())]
        lines += ["# TYPE dperm_suspicious gauge"]
        lines += [f"dperm_suspicious{about} {marked:d}" for about, (_, marked) in tests.items()]
        return "\n".join(lines) + "\n"

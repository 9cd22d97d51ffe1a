"""``dperm audit all``: the audit of dperm's own releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dperm.cli.audit_exit import end_of_audit
from dperm.cli.audit_files import AuditFiles, told
from dperm.cli.output import Output

__all__ = ["audit_all"]

#: with --fast: fewer runs of whole solvers, which still find half the noise
_FAST_WHOLE_RUNS = 300


def audit_all(confidence: float, fast: bool, seed: int, out: Path | None, force: bool, output: Output) -> int:
    """Audit every solver, every release of the automatic rule, purchases, local reports and vertical rounds."""
    from dperm.audit.releases import all_cases, audit_releases
    from dperm.audit.releases.audit import WHOLE_RUNS
    from dperm.audit.releases.page import releases_page

    files = AuditFiles(out, "releases", force=force)
    cases = [case for case in all_cases() if not fast or case.quick]
    with told(output) as tell:

        def progress(done: int, in_all: int) -> None:
            tell.progress(done, in_all)
            tell.step(f"{cases[done - 1].name} ({done} of {in_all})")

        found = audit_releases(
            cases,
            confidence=confidence,
            whole_runs=_FAST_WHOLE_RUNS if fast else WHOLE_RUNS,
            seed=seed,
            progress=progress,
        )
    data = found.to_dict()
    files.write(data, releases_page(found))

    def show(output: Output) -> None:
        output.lines(_summary(found) + files.lines)
        output.text("")
        header = ("case", "release", "claimed", "found", "power", "releases", "verdict")
        rows = [
            (case.case, one.release, f"{one.claimed:.3g}", f"{one.found:.3g}", f"{one.noise_factor:.2f}",
             f"{one.releases:,}", str(one.verdict))
            for case in found.cases
            for one in case.releases
        ]  # fmt: skip
        output.table(header, rows, right=(2, 3, 4, 5))
        for case in found.cases:
            for sentence in case.sentences:
                output.text(f"{case.case}: {sentence}.")

    return end_of_audit(found.verdict, data, show, output, incomplete=bool(found.not_measured))


def _summary(found: Any) -> list[tuple[str, str]]:
    from dperm.audit.result import shown_confidence

    return [
        ("Audited", f"{len(found.cases)} parts of dperm, {sum(len(case.releases) for case in found.cases)} releases"),
        ("Verdict", found.sentence()),
        (
            "Confidence",
            f"{shown_confidence(found.confidence)}: a correct release fails with probability below the rest",
        ),
        ("Time", f"{found.seconds:.0f} seconds"),
    ]

"""The page of an audit of releases: one HTML file without scripts; bars show found against claimed epsilon."""

from __future__ import annotations

from dperm.audit.page_parts import list_of, verdict_box
from dperm.audit.releases.audit import CaseResult, ReleaseAudit
from dperm.audit.releases.judging import ReleaseResult
from dperm.audit.result import Verdict
from dperm.reporting.html import html_page, html_text

__all__ = ["releases_page"]

#: found epsilon that fills the width of the picture, in units of the claimed one
_WIDEST = 2.5
_LIMITS = (
    "Each release is compared with its own charge, so too little noise in any of them is seen. Whether the charges are "
    "added up correctly is checked by independent calculators and proofs, not here.",
    "A release whose epsilon is found to be far below its claim has been measured less, see its power; it does not "
    "have more noise.",
)


def releases_page(found: ReleaseAudit) -> str:
    """Return the page."""
    problems = [f"{case.case}: {one}." for case in found.cases for one in case.sentences]
    sections = (
        verdict_box(found.verdict, found.sentence()),
        list_of(problems),
        "<h2>Found and claimed</h2>" + _picture(found),
        "<p class=about>Largest epsilon that the measured noise proves for each release, in units of the charged one. "
        "A bar beyond the line contradicts the charge.</p>",
        "<h2>Releases</h2>" + _table(found),
        "<p class=about>Power: noise smaller than charged by this factor is found with probability .95. Moved: largest "
        "change between real neighbouring tables, in units of the declared sensitivity.</p>",
        "<h2>What this cannot show</h2>" + list_of(_LIMITS),
    )
    return html_page("Audit of dperm's releases", sections)


def _rows(found: ReleaseAudit) -> list[tuple[CaseResult, ReleaseResult]]:
    return [(case, one) for case in found.cases for one in case.releases]


def _table(found: ReleaseAudit) -> str:
    rows = "".join(
        f"<tr><th scope=row>{html_text(case.case)}</th>"
        f"<td>{html_text(one.release)}<br><small>{html_text(one.claim)}</small></td>"
        f"<td class=n>{one.claimed:.3g}</td><td class=n>{one.found:.3g}</td><td class=n>{one.noise_factor:.2f}</td>"
        f"<td class=n>{_moved(case, one)}</td><td class=n>{one.releases:,}</td>"
        f"<td>{html_text(str(one.verdict))}</td></tr>"
        for case, one in _rows(found)
    )
    header = "".join(f"<th class=n>{name}</th>" for name in ("claimed", "found", "power", "moved", "releases"))
    return (
        f'<div class="wide"><table><tr><th>case</th><th>release</th>{header}<th>verdict</th></tr>{rows}</table></div>'
    )


def _moved(case: CaseResult, one: ReleaseResult) -> str:
    ratio = case.reached.get(one.release, case.reached.get("all"))
    return "" if ratio is None else f"{ratio:.2f}"


def _picture(found: ReleaseAudit) -> str:
    width, left, right, step = 640.0, 330.0, 50.0, 18
    scale = (width - left - right) / _WIDEST
    parts, rows = [], _rows(found)
    for k, (case, one) in enumerate(rows):
        y = 28 + step * k
        ratio = one.found / one.claimed if one.claimed > 0.0 else 0.0
        style = "s1" if one.verdict is Verdict.VIOLATION else "s0"
        name = html_text(f"{case.case}: {one.release}")
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 11}" text-anchor="end">{name}</text>')
        parts.append(
            f'<rect class="{style}" x="{left:.0f}" y="{y}" width="{min(ratio, _WIDEST) * scale:.1f}" height="13"/>'
        )
        parts.append(f'<text x="{left + min(ratio, _WIDEST) * scale + 5:.1f}" y="{y + 11}">{ratio:.2f}</text>')
    height, x = 36 + step * len(rows), left + scale
    parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{height - 6}"/>')
    parts.append(f'<text x="{x:.1f}" y="14" text-anchor="middle">charged</text>')
    worst = max((one.found / one.claimed for _, one in rows if one.claimed > 0.0), default=0.0)
    return (
        f'<figure><svg class="figure" viewBox="0 0 {width:.0f} {height}" role="img" aria-labelledby="rel-t rel-d">'
        f'<title id="rel-t">Found and claimed epsilon</title><desc id="rel-d">{len(rows)} releases; the largest is '
        f"{worst:.2f} of its charge.</desc>{''.join(parts)}</svg></figure>"
    )

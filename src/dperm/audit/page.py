"""The page of an audit: one HTML file without scripts, with the picture of claim against evidence."""

from __future__ import annotations

from dperm.audit.attacks import ATTACKS
from dperm.audit.claim import RELATIONS
from dperm.audit.page_parts import list_of, verdict_box
from dperm.audit.result import NO_POWER, AttackResult, AuditResult, Verdict, shown_confidence, shown_number
from dperm.reporting.html import html_page, html_text

__all__ = ["audit_page"]

#: epsilon that fills the width of the picture, as a multiple of the claim: larger bars are cut and say so
_WIDEST = 5.0

_LIMITS = (
    "An attack that finds nothing proves nothing beyond its power: another attack, or another table, might find more.",
    "A violation that is found is real, except with the probability that the confidence leaves.",
    "Time, memory and files that the function writes are not looked at.",
)


def audit_page(found: AuditResult) -> str:
    """Return the page."""
    sections = (
        verdict_box(found.verdict, found.sentence()),
        _facts(found),
        "<h2>Claim and evidence</h2>" + _picture(found),
        "<p class=about>Largest epsilon that each attack proves, at the claim's delta. A bar beyond the line "
        "contradicts the claim. A short bar means that the attack proves little, not that little leaks.</p>",
        "<h2>Attacks</h2>" + _table(found),
        "<h2>What an audit cannot show</h2>" + list_of(_LIMITS),
    )
    return html_page(f"Audit: {found.subject}", sections)


def _facts(found: AuditResult) -> str:
    claim = found.claim
    facts = (
        ("Claimed epsilon", f"{claim.epsilon:g}"),
        ("Claimed delta", f"{claim.delta:g}"),
        ("Neighbours", RELATIONS[claim.neighbours]),
        ("Largest epsilon proved", shown_number(found.epsilon_found)),
        ("Confidence", shown_confidence(found.confidence)),
        ("Would have been found in results", _power(found.noise_factor)),
        ("In any single release", _power(found.single_noise_factor)),
        ("Runs", f"{found.runs:,}"),
        ("Time", f"{found.seconds:.0f} s"),
    )
    inside = "".join(f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{inside}</dl>'


def _power(factor: float | None) -> str:
    if factor is None:
        return "not measured"
    return f"noise {1.0 / factor:.2g} times too small" if factor >= NO_POWER else "no lack of noise"


def _table(found: AuditResult) -> str:
    prepared = () if found.preparation is None else (found.preparation,)
    rows = "".join(
        f"<tr><th scope=row>{html_text(one.attack)}<br><small>{html_text(_about(one))}</small></th>"
        f"<td>{html_text(_verdict(one))}</td><td class=n>{html_text(shown_number(one.epsilon))}</td>"
        f"<td class=n>{html_text(shown_number(one.noise_factor))}</td><td class=n>{one.runs:,}</td>"
        f"<td class=n>{one.seconds:.0f} s</td><td>{html_text(f'{one.advice} {one.sentence}'.strip())}</td></tr>"
        for one in (*prepared, *found.attacks)
    )
    header = "<tr><th>attack</th><th>verdict</th><th class=n>epsilon</th><th class=n>power</th><th class=n>runs</th>"
    header += "<th class=n>time</th>"
    about = "Power: the attack finds, with probability .95, noise that is smaller than needed by this factor."
    return (
        f'<div class="wide"><table>{header}<th>what it found</th></tr>{rows}</table></div><p class="about">{about}</p>'
    )


def _verdict(one: AttackResult) -> str:
    return str(one.verdict) if one.attack in ATTACKS else ""


def _about(one: AttackResult) -> str:
    return ATTACKS[one.attack].about if one.attack in ATTACKS else ""


def _picture(found: AuditResult) -> str:
    """Draw one bar for each attack that proves an epsilon, and the claim as a line."""
    claimed = found.claim.tested[0]
    bars = [one for one in found.attacks if one.epsilon is not None]
    largest = max([min(one.epsilon or 0.0, _WIDEST * claimed) for one in bars] + [1.25 * claimed])
    width, left, right = 640.0, 130.0, 90.0
    scale = (width - left - right) / largest
    parts = []
    for k, one in enumerate(bars):
        y = 34 + 30 * k
        shown = min(one.epsilon or 0.0, largest)
        style = "s1" if one.verdict is Verdict.VIOLATION else "s0"
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 14}" text-anchor="end">{html_text(one.attack)}</text>')
        parts.append(f'<rect class="{style}" x="{left:.0f}" y="{y}" width="{shown * scale:.1f}" height="20"/>')
        beyond = " (cut)" if shown < (one.epsilon or 0.0) else ""
        parts.append(
            f'<text x="{left + shown * scale + 6:.1f}" y="{y + 14}">{shown_number(one.epsilon)}{beyond}</text>'
        )
    height = 44 + 30 * len(bars)
    x = left + claimed * scale
    parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="22" y2="{height - 6}"/>')
    parts.append(f'<text x="{x:.1f}" y="16" text-anchor="middle">claim: {claimed:g}</text>')
    parts.append(f'<path class="axis" d="M{left:.0f} 22V{height - 6}"/>')
    described = "; ".join(f"{one.attack}: {shown_number(one.epsilon)}" for one in bars)
    return (
        f'<figure><svg class="figure" viewBox="0 0 {width:.0f} {height}" role="img" aria-labelledby="claim-t claim-d">'
        f'<title id="claim-t">Claim and evidence</title><desc id="claim-d">Claimed epsilon {claimed:g}. Proved: '
        f"{html_text(described)}.</desc>{''.join(parts)}</svg></figure>"
    )

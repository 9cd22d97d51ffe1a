"""The page of a privacy report: one HTML file without scripts, for privacy officers and clinicians.

What is protected, how strongly, and what is not covered come first; numbers for specialists fold away. Everything that
comes from outside (names of columns, data sets and releases) is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dperm.privacy.accounting.guarantee import NO_PROTECTION, Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.accounting.posterior import posterior_belief
from dperm.reporting.figures import Series, line_chart
from dperm.reporting.html import html_page, html_text
from dperm.reporting.labels import noise_label, query_label
from dperm.reporting.report import PrivacyReport, ReleaseLine

__all__ = ["ABOUT_EFFECTS", "report_page"]

#: explains a table of effects
ABOUT_EFFECTS = (
    "Change in the prediction (for classes: in its score, the log-odds of a logistic model) from the low to the high "
    "end of each column's range. These values contain noise: small ones, and their signs, may be chance."
)

_MOST_WEIGHTS = 10
_MOST_DECLARED = 8

#: beliefs of an attacker before seeing the model, for which the page states the most that they can become
_BELIEFS = (0.01, 0.1, 0.5)


#: up to this epsilon the odds between two records change by at most about a tenth
_ALMOST_NOTHING = 0.1
#: above this epsilon the odds between two records can change by more than 20 to 1
_WEAK = 3.0


def report_page(
    report: PrivacyReport,
    *,
    title: str = "Privacy report",
    model: str | None = None,
    weights: Sequence[tuple[str, float]] = (),
    columns: int | None = None,
    declared: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page.

    Parameters
    ----------
    report : PrivacyReport
    title : str
        Heading of the page.
    model : str, optional
        What kind of model it is.
    weights : sequence of (name, weight)
        Released coefficients to show, the largest effects first.
    columns : int, optional
        Number of the table's columns that the model uses, if they were encoded as more.
    declared : sequence of (name, what)
        Columns with the range or categories that were taken as public.
    """
    sections = [
        _verdict(report),
        _facts(report, columns),
        _score(report),
        _protected(report),
        _strength(report),
        _not_covered(report),
        _warnings(report),
        _assumptions(report),
        _budget(report),
        _weights(weights),
        _details("What was released, and with how much noise", _releases(report)),
        _details("Epsilon at other values of delta", _curve(report)),
        _details("Public settings", _public(report, declared)),
        _details("How it was computed, and where it is recorded", _technical(report)),
    ]
    return html_page(title, sections, subtitle=model or "", footer=f"dperm {report.version}")


# ------------------------------------------------------------------------------------------ for every reader
def _verdict(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return (
            f'<div class="verdict none"><strong>No guarantee.</strong> {html_text(report.reason or "")} '
            "Treat the model as if it contained the data.</div>"
        )
    seen = _seen(guarantee)
    if guarantee.epsilon <= _ALMOST_NOTHING:
        verdict = (
            f"Anyone who sees {seen} learns almost the same about a person, whether or not that person's record was "
            "used."
        )
    elif guarantee.epsilon <= _WEAK:
        verdict = f"What {seen} reveals about any one person's record is limited."
    elif guarantee.epsilon <= NO_PROTECTION:
        verdict = f"What {seen} reveals about any one person's record is limited only weakly: epsilon is large."
    else:
        verdict = f"What {seen} reveals about any one person's record is in practice not limited."
    kind = "verdict" if guarantee.epsilon <= _WEAK else "verdict weak"
    return f'<div class="{kind}"><strong>{verdict}</strong> {html_text(guarantee.sentence())}</div>'


def _seen(guarantee: Guarantee) -> str:
    return "the model" if guarantee.view == "model" else "every message of the run"


def _facts(report: PrivacyReport, columns: int | None) -> str:
    public, guarantee = report.public, report.guarantee
    rows: list[tuple[str, Any]] = []
    if guarantee is not None:
        rows += [("epsilon", f"{guarantee.epsilon:.4g}"), ("delta", f"{guarantee.delta:.2g}")]
        if report.score is not None:
            rows.append(("epsilon with its score", f"{report.score['epsilon_together']:.4g}"))
    if "records" in public:
        rows.append(("people", f"{public['records']:,}"))
    if "features" in public:
        encoded = f"{public['features']:,}"
        rows.append(
            ("columns", encoded if columns in (None, public["features"]) else f"{columns:,} ({encoded} encoded)")
        )
    if (nonzero := report.nonzero_weights()) is not None:
        rows.append(("weights that are not zero", nonzero))
    items = "".join(f"<div><dt>{html_text(str(k))}</dt><dd>{html_text(str(v))}</dd></div>" for k, v in rows)
    return f'<dl class="facts">{items}</dl>' if items else ""


def _score(report: PrivacyReport) -> str:
    if report.score is None:
        return ""
    return f"<p>A score was released in addition to the model: {html_text(report.score_sentence())}.</p>"


def _protected(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return ""
    return (
        f"<h2>What is protected</h2><p>{html_text(_sentence(guarantee.unit))} What the model teaches about people in "
        "general is not hidden: that is its purpose.</p>"
    )


def _strength(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return ""
    if guarantee.epsilon > NO_PROTECTION:
        return (
            "<h2>How strongly</h2><p>Suppose an attacker knows all other records. At this epsilon no meaningful bound "
            "keeps the attacker from learning this one. Treat the model as if it contained the data.</p>"
        )
    belief = posterior_belief(guarantee, report.planned)
    suspected = (
        "that this person's record is a particular one and not any other"
        if guarantee.neighbours is Neighbours.REPLACE_ONE
        else "that this person's record was there and not empty"
    )
    before = "".join(f"<td class=n>{prior:.0%}</td>" for prior in _BELIEFS)
    after = "".join(f"<td class=n>at most {_percent(belief.after(prior))}</td>" for prior in _BELIEFS)
    exceeded = ""
    if belief.exceedance > 0.0:
        exceeded = f"<p>The probability that the belief rises further is at most {belief.exceedance:.2g}.</p>"
    loose = ""
    if guarantee.looseness > 0.0005:
        loose = (
            f"<p>The stated epsilon is an upper bound; the true one may be smaller by up to "
            f"{guarantee.looseness:.2g}.</p>"
        )
    return (
        f"<h2>How strongly</h2><p>Suppose an attacker knows all other records and believes, with some probability, "
        f"{suspected}. Seeing {_seen(guarantee)} can raise that belief as follows; a smaller epsilon "
        "allows less.</p>"
        f'<table class="beliefs"><tr><th scope=row>belief before</th>{before}</tr>'
        f"<tr><th scope=row>belief after</th>{after}</tr></table>{exceeded}{loose}"
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.9995 else "almost 100%"


def _not_covered(report: PrivacyReport) -> str:
    items = "".join(f"<li>{html_text(_sentence(text))}</li>" for text in report.not_covered)
    return f"<h2>What is not covered</h2><ul>{items}</ul>" if items else ""


def _warnings(report: PrivacyReport) -> str:
    items = "".join(f"<li>{html_text(_sentence(text))}</li>" for text in report.public.get("warnings", ()))
    return f"<h2>What to expect</h2><ul>{items}</ul>" if items else ""


def _assumptions(report: PrivacyReport) -> str:
    if report.guarantee is None or not report.guarantee.assumptions:
        return ""
    items = "".join(f"<li>{html_text(_sentence(text))}</li>" for text in report.guarantee.assumptions)
    return f"<h2>What the guarantee relies on</h2><ul>{items}</ul>"


def _budget(report: PrivacyReport) -> str:
    name = report.ledger.get("dataset")
    if not name:
        return ""
    cost = "a plan without a finite guarantee"
    if report.guarantee is not None:
        score = report.score
        both = "" if score is None else f"; with its score, epsilon {score['epsilon_together']:.4g}"
        cost = f"epsilon {report.guarantee.epsilon:.4g} at delta {report.guarantee.delta:.2g}{both}"
    return (
        f"<h2>Budget</h2><p>These data were given as data set <strong>{_name(str(name))}</strong>. The fit was charged "
        f"to the ledger of their owner: {cost}. The ledger shows the owner what is spent in all. A report does not, "
        "because that figure would say whether the table equals an earlier one.</p>"
    )


def _weights(weights: Sequence[tuple[str, float]]) -> str:
    if not weights:
        return ""
    shown = list(weights)[:_MOST_WEIGHTS]
    rows = "".join(f"<tr><th scope=row>{_name(name)}</th><td class=n>{value:+.3g}</td></tr>" for name, value in shown)
    count = f"The {len(shown)} largest of {len(weights):,} effects. " if len(weights) > len(shown) else ""
    return (
        f'<h2>What the model found</h2><p class="about" id="effects">{count}{html_text(ABOUT_EFFECTS)}</p>'
        '<div class="halves"><table aria-describedby="effects"><thead><tr><th scope=col>'
        f"column</th><th scope=col class=n>effect</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


# ------------------------------------------------------------------------------------------ for specialists
def _details(title: str, content: str) -> str:
    return f"<details><summary><h2>{title}</h2></summary>{content}</details>" if content else ""


def _releases(report: PrivacyReport) -> str:
    if not report.releases:
        return ""
    costs = [
        line.count / line.noise_multiplier**2 if line.noise_multiplier > 0 else math.inf for line in report.releases
    ]
    total = sum(costs)
    rows = "".join(
        f"<tr><th scope=row>{_query(line.query)}</th><td class=n>{line.count:,}{_forfeited(line)}</td>"
        f"<td class=n>{'' if line.size is None else f'{line.size:,}'}</td>"
        f"<td class=k>{html_text(noise_label(line.kind))}</td><td class=n>{line.noise_multiplier:.4g}</td>"
        f"<td class=n>{'' if line.noise_scale is None else f'{line.noise_scale:.3g}'}</td>"
        f"<td class=n>{'' if not math.isfinite(total) else _share(cost / total)}</td></tr>"
        for line, cost in zip(report.releases, costs, strict=True)
    )
    audiences = sorted({line.audience for line in report.releases})
    return (
        f"<p>Released to: {html_text('; '.join(audiences))}. The model is computed from these noisy numbers and from "
        "public facts, and from nothing else.</p>"
        '<p class="about" id="noise">The noise multiplier is the scale of the noise divided by the most that one '
        "person can change the released numbers. The noise scale is in the unit of these numbers. The share is that of "
        'the privacy budget. Small print: the name in the ledger.</p><div class="wide"><table aria-describedby="noise">'
        "<thead><tr><th scope=col>release</th><th scope=col class=n>times</th><th scope=col class=n>numbers</th>"
        "<th scope=col class=k>noise</th><th scope=col class=n>noise<br>multiplier</th><th scope=col class=n>noise<br>"
        f"scale</th><th scope=col class=n>share</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _query(query: str) -> str:
    """Label of a query, with the name by which the ledger records it if that is another."""
    label = query_label(query)
    return _name(label) if label == query else f"{_name(label)}<br><small>{_name(query)}</small>"


def _share(share: float) -> str:
    return "&lt;1%" if 0.0 < share < 0.01 else f"{share:.0%}"


def _forfeited(line: ReleaseLine) -> str:
    return f" ({line.forfeited:,} unused)" if line.forfeited else ""


def _curve(report: PrivacyReport) -> str:
    planned = report.planned
    points = sorted((d, e) for e, d in planned.curve if math.isfinite(e))
    if len(points) < 2 or report.guarantee is None:
        return ""
    chart = line_chart(
        [Series("epsilon", tuple(points))],
        title="Epsilon at every delta",
        x_label="delta",
        y_label="epsilon",
        log_x=True,
        mark=(planned.delta, planned.epsilon, f"this report: {planned.epsilon:.3g} at {planned.delta:.1e}"),
        height=240,
    )
    return (
        f'<figure class="curve">{chart}<figcaption>The same releases satisfy every point of this curve at once '
        f"(accounting method: {html_text(planned.method)}).</figcaption></figure>"
    )


def _public(report: PrivacyReport, declared: Sequence[tuple[str, str]]) -> str:
    public = report.public
    settings = []
    if "bounds" in public:
        bought = public["bounds"] == "bought"
        settings.append("ranges of columns " + ("bought with part of the budget" if bought else "declared"))
    if "target_bounds" in public:
        settings.append(f"range of the target {public['target_bounds']}")
    if public.get("classes"):
        settings.append(f"{public['classes']} classes")
    if public.get("penalty"):
        settings.append(f"penalty {public['penalty']}, strength {public.get('strength', 0.0):.3g}")
    if "solver" in public:
        settings.append(f"method {public['solver']}")
    if not settings and not declared:
        return ""
    text = f"<p>{html_text(_sentence(', '.join(settings)))}</p>" if settings else ""
    return text + _declared(report, declared)


def _declared(report: PrivacyReport, declared: Sequence[tuple[str, str]]) -> str:
    """Show the ranges and categories of the first columns; the model file has all of them."""
    if not declared:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{_name(name)}</th><td><bdi>{html_text(what)}</bdi></td></tr>"
        for name, what in declared[:_MOST_DECLARED]
    )
    more = len(declared) - _MOST_DECLARED
    rest = f'<p class="about">And {more:,} more, in the model file.</p>' if more > 0 else ""
    bought = report.public.get("bounds") == "bought"
    how = "bought with part of the budget" if bought else "declared; values outside are clipped or count as missing"
    return (
        f'<p class="about" id="taken">Ranges and categories, {how}.</p><div class="wide halves"><table '
        'aria-describedby="taken"><thead><tr><th scope=col>column</th><th scope=col>taken as</th></tr></thead><tbody>'
        f"{rows}</tbody></table></div>{rest}"
    )


def _technical(report: PrivacyReport) -> str:
    items = []
    if report.guarantee is not None:
        relation = report.guarantee.neighbours
        items.append(f"Neighbouring data sets: {relation} ({relation.describe()}).")
    if report.arithmetic:
        items.append(f"Arithmetic: {_sentence(report.arithmetic)}")
    if report.randomness:
        items.append(f"Randomness: {_sentence(report.randomness)}")
    listed = "".join(f"<li>{html_text(item)}</li>" for item in items)
    reservation = report.ledger.get("reservation")
    if reservation:
        listed += (
            f"<li>Entry in the owner's ledger: <code>{html_text(str(reservation))}</code>, a random number. "
            "<code>dperm ledger receipt</code> with this model shows the owner what was charged.</li>"
        )
    return f"<ul>{listed}</ul>" if listed else ""


# ------------------------------------------------------------------------------------------ texts
def _name(text: str) -> str:
    """Return a name from outside, isolated from the writing direction of the text around it."""
    return f"<bdi>{html_text(text)}</bdi>"


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + "."

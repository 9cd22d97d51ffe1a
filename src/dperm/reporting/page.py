"""The page of a privacy report: one HTML file without scripts, for privacy officers and clinicians.

What is protected, how strongly, and what is not covered come first; numbers for specialists fold away. Everything that
comes from outside (names of columns, data sets and releases) is escaped.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

from dperm.privacy.accounting.guarantee import NO_PROTECTION, Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.accounting.posterior import posterior_belief
from dperm.reporting.figures import FIGURE_STYLE, Part, Series, bar_of_parts, line_chart
from dperm.reporting.labels import noise_label, query_label
from dperm.reporting.report import PrivacyReport, ReleaseLine
from dperm.reporting.style import PAGE_STYLE

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

#: Unicode categories of characters that do not show, or change the direction of the text around them
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}

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
        _details("How it was computed, and how to check the ledger", _technical(report)),
    ]
    sub = f'<p class="sub">{_text(model)}</p>' if model else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>{PAGE_STYLE}{FIGURE_STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{_text(title)}</h1>{sub}</header>\n" + "\n".join(part for part in sections if part) + "\n"
        f"<footer>dperm {_text(report.version)}</footer>\n</main></body></html>\n"
    )


# ------------------------------------------------------------------------------------------ for every reader
def _verdict(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return (
            f'<div class="verdict none"><strong>No guarantee.</strong> {_text(report.reason or "")} '
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
    return f'<div class="{kind}"><strong>{verdict}</strong> {_text(guarantee.sentence())}</div>'


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
    items = "".join(f"<div><dt>{_text(str(k))}</dt><dd>{_text(str(v))}</dd></div>" for k, v in rows)
    return f'<dl class="facts">{items}</dl>' if items else ""


def _score(report: PrivacyReport) -> str:
    if report.score is None:
        return ""
    return f"<p>A score was released in addition to the model: {_text(report.score_sentence())}.</p>"


def _protected(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return ""
    return (
        f"<h2>What is protected</h2><p>{_text(_sentence(guarantee.unit))} What the model teaches about people in "
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
    items = "".join(f"<li>{_text(_sentence(text))}</li>" for text in report.not_covered)
    return f"<h2>What is not covered</h2><ul>{items}</ul>" if items else ""


def _warnings(report: PrivacyReport) -> str:
    items = "".join(f"<li>{_text(_sentence(text))}</li>" for text in report.public.get("warnings", ()))
    return f"<h2>What to expect</h2><ul>{items}</ul>" if items else ""


def _assumptions(report: PrivacyReport) -> str:
    if report.guarantee is None or not report.guarantee.assumptions:
        return ""
    items = "".join(f"<li>{_text(_sentence(text))}</li>" for text in report.guarantee.assumptions)
    return f"<h2>What the guarantee relies on</h2><ul>{items}</ul>"


def _budget(report: PrivacyReport) -> str:
    ledger = report.ledger
    if not ledger:
        return ""
    after, cap = ledger.get("spent_after"), ledger.get("cap")
    name = _name(str(ledger.get("dataset", "")))
    if not isinstance(after, int | float) or not math.isfinite(after):
        return f"<h2>Budget</h2><p>Data set <strong>{name}</strong> has releases without a finite guarantee.</p>"
    fits = ledger.get("n_fits")
    counted = "" if fits is None else f", in {fits} use{'s' if fits != 1 else ''}"
    so_far = f"epsilon {after:.4g} at delta {ledger.get('delta', 0):.2g}{counted}"
    text = f"Spent on data set <strong>{name}</strong> so far: {so_far}"
    figure = ""
    if isinstance(cap, int | float):
        used, room = ledger.get("used_after") or 0.0, ledger.get("room_for_epsilon") or 0.0
        left = f"room for one more fit of about epsilon {room:.3g}" if room > 0 else "no further fit is possible"
        text += f". That is {used:.0%} of its cap of epsilon {cap:.4g}; {left}."
        before = ledger.get("used_before")
        if before is None and fits not in (None, 1):  # charged to the name the data are known by: no figure before
            parts = [Part("all uses together", used, "s0")]
        else:
            earlier = min(before or 0.0, used)
            parts = [Part("earlier uses", earlier, "s2")] if earlier > 0 else []
            parts.append(Part("this fit" if report.score is None else "this fit and its score", used - earlier, "s0"))
        parts.append(Part("left", 1.0 - used, "rest"))
        figure = f"<figure>{bar_of_parts(parts, title='Shares of the cap')}</figure>"
    else:
        text += "; no cap is set, so nothing limits further fits."
    return f"<h2>Budget</h2><p>{text}</p>{figure}"


def _weights(weights: Sequence[tuple[str, float]]) -> str:
    if not weights:
        return ""
    shown = list(weights)[:_MOST_WEIGHTS]
    rows = "".join(f"<tr><th scope=row>{_name(name)}</th><td class=n>{value:+.3g}</td></tr>" for name, value in shown)
    count = f"The {len(shown)} largest of {len(weights):,} effects. " if len(weights) > len(shown) else ""
    return (
        f'<h2>What the model found</h2><p class="about" id="effects">{count}{_text(ABOUT_EFFECTS)}</p>'
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
        f"<td class=k>{_text(noise_label(line.kind))}</td><td class=n>{line.noise_multiplier:.4g}</td>"
        f"<td class=n>{'' if line.noise_scale is None else f'{line.noise_scale:.3g}'}</td>"
        f"<td class=n>{'' if not math.isfinite(total) else _share(cost / total)}</td></tr>"
        for line, cost in zip(report.releases, costs, strict=True)
    )
    audiences = sorted({line.audience for line in report.releases})
    return (
        f"<p>Released to: {_text('; '.join(audiences))}. The model is computed from these noisy numbers and from "
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
        f"(accounting method: {_text(planned.method)}).</figcaption></figure>"
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
    text = f"<p>{_text(_sentence(', '.join(settings)))}</p>" if settings else ""
    return text + _declared(report, declared)


def _declared(report: PrivacyReport, declared: Sequence[tuple[str, str]]) -> str:
    """Show the ranges and categories of the first columns; the model file has all of them."""
    if not declared:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{_name(name)}</th><td><bdi>{_text(what)}</bdi></td></tr>"
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
    listed = "".join(f"<li>{_text(item)}</li>" for item in items)
    head = report.ledger.get("head")
    if head:
        listed += (
            f"<li>Newest entry of the ledger: <code>{_text(str(head))}</code>. "
            "<code>dperm ledger verify --head</code> with this number detects later edits and rollbacks.</li>"
        )
    return f"<ul>{listed}</ul>" if listed else ""


# ------------------------------------------------------------------------------------------ texts
def _text(text: str) -> str:
    """Escape a text for HTML; characters that do not show, or turn the rest around, are spelt out."""
    shown = (
        one if unicodedata.category(one) not in _INVISIBLE else one.encode("unicode_escape").decode() for one in text
    )
    return escape("".join(shown))


def _name(text: str) -> str:
    """Return a name from outside, isolated from the writing direction of the text around it."""
    return f"<bdi>{_text(text)}</bdi>"


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + "."

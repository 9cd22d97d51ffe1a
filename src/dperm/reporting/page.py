"""A privacy report as one page for a person: a single HTML file without scripts, readable on paper and in the dark.

Everything that comes from outside (names of columns, data sets and releases) is escaped.
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
from dperm.reporting.report import PrivacyReport, ReleaseLine
from dperm.reporting.style import PAGE_STYLE

__all__ = ["report_page"]

_MOST_WEIGHTS = 10
_MOST_DECLARED = 8

#: kinds of characters that do not show, or turn around how others are read
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}

#: above this epsilon the odds between two records can change by more than 20 to 1
_WEAK = 3.0

#: what each kind of noise is called on the page
_KINDS = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "selection": "Gumbel, on a choice",
    "poisson-gaussian": "Gaussian, on a random sample",
    "objective": "Gaussian, in the objective",
}


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
        Released coefficients to show, the most telling first.
    columns : int, optional
        Number of the table's columns that the model uses, if they were encoded as more.
    declared : sequence of (name, what)
        Columns with the range or categories that were taken as public.
    """
    sections = [
        _verdict(report),
        _facts(report, columns),
        _warnings(report),
        _meaning(report),
        _curve(report),
        _releases(report),
        _weights(weights),
        _public(report, declared),
        _budget(report),
        _not_covered(report),
    ]
    sub = f'<p class="sub">{_text(model)}</p>' if model else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(title)}</title><style>{PAGE_STYLE}{FIGURE_STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{_text(title)}</h1>{sub}</header>\n" + "\n".join(part for part in sections if part) + "\n"
        f"<footer>dperm {_text(report.version)}. Arithmetic: {_text(report.arithmetic)}. "
        f"Randomness: {_text(report.randomness)}.</footer>\n</main></body></html>\n"
    )


def _verdict(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return (
            f'<div class="verdict none"><strong>No guarantee.</strong> {_text(report.reason or "")} '
            "Treat the model as if it contained the data.</div>"
        )
    seen = _seen(guarantee)
    if guarantee.epsilon <= 1.0:
        told = (
            f"Whoever sees {seen} learns almost the same about a person, whether or not that person's record was used."
        )
    elif guarantee.epsilon <= _WEAK:
        told = f"What {seen} can tell about any one person's record is limited."
    elif guarantee.epsilon <= NO_PROTECTION:
        told = f"What {seen} can tell about any one person's record is limited, but weakly: the epsilon is large."
    else:
        told = f"What {seen} can tell about any one person's record is in practice not limited."
    kind = "verdict" if guarantee.epsilon <= _WEAK else "verdict weak"
    return f'<div class="{kind}"><strong>{told}</strong> {_text(guarantee.sentence())}</div>'


def _seen(guarantee: Guarantee) -> str:
    return "the model" if guarantee.view == "model" else "every message of the run"


def _warnings(report: PrivacyReport) -> str:
    said = "".join(f"<li>{_text(_sentence(text))}</li>" for text in report.public.get("warnings", ()))
    return f"<h2>What to expect</h2><ul>{said}</ul>" if said else ""


def _facts(report: PrivacyReport, columns: int | None) -> str:
    public, guarantee = report.public, report.guarantee
    rows: list[tuple[str, Any]] = []
    if guarantee is not None:
        rows += [("epsilon", f"{guarantee.epsilon:.4g}"), ("delta", f"{guarantee.delta:.2g}")]
        if report.score is not None:
            rows.append(("epsilon with its score", f"{report.score['epsilon_together']:.4g}"))
        rows.append(("neighbours", str(guarantee.neighbours)))
    if "records" in public:
        rows.append(("people", f"{public['records']:,}"))
    if "features" in public:
        encoded = f"{public['features']:,}"
        rows.append(
            ("columns", encoded if columns in (None, public["features"]) else f"{columns:,} ({encoded} encoded)")
        )
    if "solver" in public:
        rows.append(("method", public["solver"]))
    items = "".join(f"<div><dt>{_text(str(k))}</dt><dd>{_text(str(v))}</dd></div>" for k, v in rows)
    return f'<dl class="facts">{items}</dl>'


def _meaning(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return ""
    if guarantee.epsilon > NO_PROTECTION:
        return (
            "<h2>What it means</h2><p>Take somebody who knows all other records: at this epsilon nothing that is worth "
            "stating keeps them from learning this one. Treat the model as if it contained the data.</p>"
        )
    found = posterior_belief(guarantee, report.planned)
    cells = "; ".join(f"from {before:.0%} to at most {_percent(found.after(before))}" for before in (0.01, 0.1, 0.5))
    further = ""
    if found.passed > 0.0:
        further = (
            f" With a probability of at most {found.passed:.2g} it is raised further (delta is smaller: it weighs by "
            "how much)."
        )
    other = (
        "that the record was this one and not any other"
        if guarantee.neighbours is Neighbours.REPLACE_ONE
        else "that the record was there and not empty"
    )
    loose = ""
    if guarantee.looseness > 0.0005:
        loose = f" The stated epsilon is an upper bound; it may be too large by up to {guarantee.looseness:.2g}."
    return (
        f"<h2>What it means</h2><p>Take somebody who knows all other records and suspects {other}. Seeing "
        f"{_seen(guarantee)} can raise that suspicion {cells}.{further} "
        f"Protected is {_text(guarantee.unit)}. What the model teaches about people in general is not "
        f"hidden: that is its purpose.{loose}</p>"
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.9995 else "almost 100%"


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
        f'<h2>Epsilon and delta</h2><figure class="curve">{chart}<figcaption>The same releases read at other deltas: '
        f"one curve holds as a whole ({_text(planned.method)}).</figcaption></figure>"
    )


def _releases(report: PrivacyReport) -> str:
    if not report.releases:
        return ""
    multiples = [(line.count, line.noise_multiplier) for line in report.releases]
    costs = [count / multiple**2 if multiple > 0 else math.inf for count, multiple in multiples]
    total = sum(costs)
    rows = "".join(
        f"<tr><th scope=row>{_name(line.query)}</th><td class=n>{line.count:,}{_forfeited(line)}</td>"
        f"<td class=n>{'' if line.size is None else f'{line.size:,}'}</td>"
        f"<td class=k>{_text(_KINDS.get(line.kind, line.kind))}</td><td class=n>{line.noise_multiplier:.4g}</td>"
        f"<td class=n>{'' if line.noise_scale is None else f'{line.noise_scale:.3g}'}</td>"
        f"<td class=n>{'' if not math.isfinite(total) else _share(cost / total)}</td></tr>"
        for line, cost in zip(report.releases, costs, strict=True)
    )
    audiences = sorted({line.audience for line in report.releases})
    return (
        "<h2>What was released</h2>"
        f"<p>To {_text('; '.join(audiences))}. The model is made of these noisy numbers and of public facts, and of "
        f"nothing else.{_score(report)}</p>"
        '<p class="about" id="noise">Every kind of release with its noise, as a multiple of the most that one person '
        'can change, and in the unit of the released numbers.</p><div class="wide"><table aria-describedby="noise">'
        "<thead><tr><th scope=col>release</th><th scope=col class=n>times</th><th scope=col class=n>numbers</th>"
        "<th scope=col class=k>noise</th><th scope=col class=n>multiple</th><th scope=col class=n>scale</th>"
        f"<th scope=col class=n>share</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _score(report: PrivacyReport) -> str:
    return "" if report.score is None else f" Beside it, a score was released: {_text(report.score_sentence())}."


def _share(share: float) -> str:
    return "&lt;1%" if 0.0 < share < 0.01 else f"{share:.0%}"


def _forfeited(line: ReleaseLine) -> str:
    return f" ({line.forfeited:,} unused)" if line.forfeited else ""


def _weights(weights: Sequence[tuple[str, float]]) -> str:
    if not weights:
        return ""
    shown = list(weights)[:_MOST_WEIGHTS]
    rows = "".join(f"<tr><th scope=row>{_name(name)}</th><td class=n>{value:+.3g}</td></tr>" for name, value in shown)
    count = f"{len(shown)} largest of {len(weights):,}" if len(weights) > len(shown) else f"{len(shown)}"
    return (
        f'<h2>What the model found</h2><p class="about" id="effects">The {count} effects over a column\'s whole range; '
        'part of the released model.</p><div class="halves"><table aria-describedby="effects"><thead><tr><th scope=col>'
        f"column</th><th scope=col class=n>effect</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _public(report: PrivacyReport, declared: Sequence[tuple[str, str]]) -> str:
    items = [] if report.guarantee is None else [f"{_text(_sentence(text))}" for text in report.guarantee.assumptions]
    public = report.public
    known = []
    if "bounds" in public:
        bought = public["bounds"] == "bought"
        known.append("ranges of columns " + ("bought with part of the budget" if bought else "declared"))
    if "target_bounds" in public:
        known.append(f"range of the target {public['target_bounds']}")
    if public.get("classes"):
        known.append(f"{public['classes']} classes")
    if public.get("penalty"):
        known.append(f"penalty {public['penalty']}, strength {public.get('strength', 0.0):.3g}")
    if known:
        items.append(_text(_sentence("public settings: " + ", ".join(known))))
    if not items and not declared:
        return ""
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f"<h2>What was assumed to be public</h2><ul>{listed}</ul>{_declared(report, declared)}"


def _declared(report: PrivacyReport, declared: Sequence[tuple[str, str]]) -> str:
    """Show the ranges and categories of the first columns; a page is for reading, the model file has them all."""
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


def _text(text: str) -> str:
    """Escape a text for HTML; what would not show, or turn the rest around, is spelt out."""
    shown = (
        one if unicodedata.category(one) not in _INVISIBLE else one.encode("unicode_escape").decode() for one in text
    )
    return escape("".join(shown))


def _name(text: str) -> str:
    """A name from outside, kept apart from the direction in which the text around it is written."""
    return f"<bdi>{_text(text)}</bdi>"


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + "."


def _budget(report: PrivacyReport) -> str:
    ledger = report.ledger
    if not ledger:
        return ""
    after, cap = ledger.get("spent_after"), ledger.get("cap")
    name = _name(str(ledger.get("dataset", "")))
    fits = ledger.get("n_fits")
    counted = "" if fits is None else f", in {fits} use{'s' if fits != 1 else ''}"
    if not isinstance(after, int | float) or not math.isfinite(after):
        said = f"Data set <strong>{name}</strong> has releases without a finite guarantee."
        return f"<h2>Budget</h2><p>{said}</p>{_head(ledger)}"
    so_far = f"epsilon {after:.4g} at delta {ledger.get('delta', 0):.2g}{counted}"
    said = f"Spent on data set <strong>{name}</strong> so far: {so_far}"
    figure = ""
    if isinstance(cap, int | float):
        used, room = ledger.get("used_after") or 0.0, ledger.get("room_for_epsilon") or 0.0
        left = f"room for one more fit of about epsilon {room:.3g}" if room > 0 else "nothing more is admitted"
        said += f". That is {used:.0%} of its cap of epsilon {cap:.4g} (charges add up, epsilons do not); {left}."
        before = ledger.get("used_before")
        if before is None and fits not in (None, 1):  # recognised by its rows: what earlier uses took is not known here
            parts = [Part("all uses together", used, "s0")]
        else:
            earlier = min(before or 0.0, used)
            parts = [Part("earlier uses", earlier, "s2")] if earlier > 0 else []
            parts.append(Part("this fit" if report.score is None else "this fit and its score", used - earlier, "s0"))
        parts.append(Part("left", 1.0 - used, "rest"))
        figure = f"<figure>{bar_of_parts(parts, title='Shares of the cap')}</figure>"
    else:
        said += "; no cap is set, so nothing stops the next fit."
    return f"<h2>Budget</h2><p>{said}</p>{figure}{_head(ledger)}"


def _head(ledger: dict[str, Any]) -> str:
    head = ledger.get("head")
    if not head:
        return ""
    return (
        f'<p class="soft">Head of the ledger\'s hash chain: <code>{_text(str(head))}</code>. '
        "<code>dperm ledger verify --head</code> compares it, so that an edit or a rollback shows.</p>"
    )


def _not_covered(report: PrivacyReport) -> str:
    items = "".join(f"<li>{_text(_sentence(text))}</li>" for text in report.not_covered)
    return f"<h2>What is not covered</h2><ul>{items}</ul>"

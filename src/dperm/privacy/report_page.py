"""A privacy report as one page for a person: a single HTML file without scripts, readable on paper and in the dark.

Everything that comes from outside (names of columns, data sets and releases) is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from dperm.privacy.guarantee import NO_PROTECTION
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.report import PrivacyReport, ReleaseLine
from dperm.privacy.report_figures import FIGURE_STYLE, Part, Series, bar_of_parts, line_chart

__all__ = ["report_page"]

_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#525b66;--line:#d5dae1;--card:#f5f7f9;--one:#0b5cad;
--two:#b3530a;--three:#59636e;--rest:#e6eaef;--good:#116329;--bad:#a40e26}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e8ebef;--soft:#a7b0bb;--line:#39424d;--card:#1d232a;
--one:#6cb2ff;--two:#f0a35e;--three:#9aa5b1;--rest:#2b333c;--good:#5dd27d;--bad:#ff8b95}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:760px;margin:0 auto;padding:28px 20px 40px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px}
h2{font-size:19px;margin:30px 0 8px;padding-top:14px;border-top:1px solid var(--line)}
p,ul{margin:8px 0}
ul{padding-left:22px}
.sub,.soft{color:var(--soft)}
.verdict{border-left:5px solid var(--good);background:var(--card);padding:12px 16px;margin:18px 0;font-size:17px}
.verdict.weak{border-color:var(--two)}
.verdict.none{border-color:var(--bad)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:14px 0;padding:0}
.facts div{background:var(--card);padding:8px 12px}
.facts dt{font-size:13px;color:var(--soft)}
.facts dd{margin:0;font-size:19px;font-weight:600;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
caption{text-align:left;color:var(--soft);padding-bottom:6px}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.k,th.k{overflow-wrap:normal;padding-left:14px}
th,dd,li,p{overflow-wrap:anywhere}
figure{margin:12px 0}
figcaption{font-size:14px;color:var(--soft)}
svg{display:block;width:100%;height:auto}
code{font-size:13px;overflow-wrap:anywhere}
footer{margin-top:28px;font-size:13px;color:var(--soft);border-top:1px solid var(--line);padding-top:10px}
@page{size:A4;margin:14mm}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#444;--line:#bbb;--card:#f3f3f3;--one:#0b5cad;
--two:#b3530a;--three:#59636e;--rest:#e2e2e2;--good:#116329;--bad:#a40e26}
body{font-size:10pt;line-height:1.35}main{max-width:none;padding:0}h1{font-size:16pt}
h2{font-size:12pt;margin:12px 0 4px;padding-top:8px;break-after:avoid}
.verdict{font-size:10.5pt;margin:8px 0;padding:8px 12px}table{font-size:8.5pt}
th,td{padding:2px 8px 2px 0}
p,ul,figure{margin:4px 0}.facts{margin:6px 0;gap:6px}.facts dd{font-size:11pt}
figure,table,.facts{break-inside:avoid}figure.curve svg{width:70%}
footer,code,figcaption{font-size:8pt}footer{margin-top:10px}}
"""

_MOST_WEIGHTS = 10

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
    """
    sections = [
        _verdict(report),
        _facts(report),
        _warnings(report),
        _meaning(report),
        _curve(report),
        _releases(report),
        _weights(weights),
        _public(report),
        _budget(report),
        _not_covered(report),
    ]
    sub = f'<p class="sub">{escape(model)}</p>' if model else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}{FIGURE_STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{escape(title)}</h1>{sub}</header>\n" + "\n".join(part for part in sections if part) + "\n"
        f"<footer>dperm {escape(report.version)}. Arithmetic: {escape(report.arithmetic)}. "
        f"Randomness: {escape(report.randomness)}.</footer>\n</main></body></html>\n"
    )


def _verdict(report: PrivacyReport) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return (
            f'<div class="verdict none"><strong>No guarantee.</strong> {escape(report.reason or "")} '
            "Treat the model as if it contained the data.</div>"
        )
    seen = "the model" if guarantee.view == "model" else "every message of the run"
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
    return f'<div class="{kind}"><strong>{told}</strong> {escape(guarantee.sentence())}</div>'


def _warnings(report: PrivacyReport) -> str:
    said = "".join(f"<li>{escape(_sentence(text))}</li>" for text in report.public.get("warnings", ()))
    return f"<h2>What to expect</h2><ul>{said}</ul>" if said else ""


def _facts(report: PrivacyReport) -> str:
    public, guarantee = report.public, report.guarantee
    rows: list[tuple[str, Any]] = []
    if guarantee is not None:
        rows += [("epsilon", f"{guarantee.epsilon:.4g}"), ("delta", f"{guarantee.delta:.2g}")]
        rows.append(("neighbours", str(guarantee.neighbours)))
    rows += [
        (label, f"{public[key]:,}") for key, label in (("records", "people"), ("features", "columns")) if key in public
    ]
    if "solver" in public:
        rows.append(("method", public["solver"]))
    items = "".join(f"<div><dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd></div>" for k, v in rows)
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
    odds = math.exp(guarantee.epsilon)
    after = [(before, before * odds / (1.0 - before + before * odds)) for before in (0.01, 0.1, 0.5)]
    cells = "; ".join(f"from {before:.0%} to at most {_percent(later)}" for before, later in after)
    other = (
        "that the record was this one and not any other"
        if guarantee.neighbours is Neighbours.REPLACE_ONE
        else "that the record was there and not empty"
    )
    loose = ""
    if guarantee.looseness > 0.0005:
        loose = f" The stated epsilon is an upper bound; it may be too large by up to {guarantee.looseness:.2g}."
    return (
        f"<h2>What it means</h2><p>Take somebody who knows all other records and suspects {other}. Seeing the model "
        f"can raise that suspicion {cells}, but for an event of probability about {guarantee.delta:.2g}. "
        f"Protected is {escape(guarantee.unit)}. What the model teaches about people in general is not "
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
        f"one curve holds as a whole ({escape(planned.method)}).</figcaption></figure>"
    )


def _releases(report: PrivacyReport) -> str:
    if not report.releases:
        return ""
    multiples = [(line.count, line.noise_multiplier) for line in report.releases]
    costs = [count / multiple**2 if multiple > 0 else math.inf for count, multiple in multiples]
    total = sum(costs)
    rows = "".join(
        f"<tr><th scope=row>{escape(line.query)}</th><td class=n>{line.count:,}{_forfeited(line)}</td>"
        f"<td class=n>{'' if line.size is None else f'{line.size:,}'}</td>"
        f"<td class=k>{escape(_KINDS.get(line.kind, line.kind))}</td><td class=n>{line.noise_multiplier:.4g}</td>"
        f"<td class=n>{'' if line.noise_scale is None else f'{line.noise_scale:.3g}'}</td>"
        f"<td class=n>{'' if not math.isfinite(total) else _share(cost / total)}</td></tr>"
        for line, cost in zip(report.releases, costs, strict=True)
    )
    audiences = sorted({line.audience for line in report.releases})
    return (
        "<h2>What was released</h2>"
        f"<p>To {escape('; '.join(audiences))}. Nothing else left the data.</p>"
        '<div class="wide"><table><caption>Every kind of release with its noise. Noise is given as a multiple of the '
        "most that one person can change, and in the unit of the released numbers.</caption>"
        "<thead><tr><th scope=col>release</th><th scope=col class=n>times</th><th scope=col class=n>numbers</th>"
        "<th scope=col class=k>noise</th><th scope=col class=n>multiple</th><th scope=col class=n>scale</th>"
        f"<th scope=col class=n>share</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _share(share: float) -> str:
    return "&lt;1%" if 0.0 < share < 0.01 else f"{share:.0%}"


def _forfeited(line: ReleaseLine) -> str:
    return f" ({line.forfeited:,} unused)" if line.forfeited else ""


def _weights(weights: Sequence[tuple[str, float]]) -> str:
    if not weights:
        return ""
    shown = list(weights)[:_MOST_WEIGHTS]
    rows = "".join(f"<tr><th scope=row>{escape(name)}</th><td class=n>{value:+.3g}</td></tr>" for name, value in shown)
    more = f" of {len(weights)}" if len(weights) > len(shown) else ""
    return (
        f"<h2>What the model found</h2><table><caption>The {len(shown)}{more} largest effects over a column's whole "
        "range; part of the released model.</caption><thead><tr><th scope=col>column</th>"
        f"<th scope=col class=n>effect</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _public(report: PrivacyReport) -> str:
    items = [] if report.guarantee is None else [f"{escape(_sentence(text))}" for text in report.guarantee.assumptions]
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
        items.append(escape(_sentence("public settings: " + ", ".join(known))))
    if not items:
        return ""
    return "<h2>What was assumed to be public</h2><ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + "."


def _budget(report: PrivacyReport) -> str:
    ledger = report.ledger
    if not ledger:
        return ""
    after, cap = ledger.get("spent_after"), ledger.get("cap")
    name = escape(str(ledger.get("dataset", "")))
    fits = ledger.get("n_fits")
    counted = "" if fits is None else f", in {fits} fit{'s' if fits != 1 else ''}"
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
        earlier = min(ledger.get("used_before") or 0.0, used)
        parts = [Part("earlier fits", earlier, "s2")] if earlier > 0 else []
        parts += [Part("this fit", used - earlier, "s0"), Part("left", 1.0 - used, "rest")]
        figure = f"<figure>{bar_of_parts(parts, title='Shares of the cap')}</figure>"
    else:
        said += "; no cap is set, so nothing stops the next fit."
    return f"<h2>Budget</h2><p>{said}</p>{figure}{_head(ledger)}"


def _head(ledger: dict[str, Any]) -> str:
    head = ledger.get("head")
    if not head:
        return ""
    return (
        f'<p class="soft">Head of the ledger\'s hash chain: <code>{escape(str(head))}</code>. '
        "<code>dperm ledger verify --head</code> compares it, so that an edit or a rollback shows.</p>"
    )


def _not_covered(report: PrivacyReport) -> str:
    items = "".join(f"<li>{escape(_sentence(text))}</li>" for text in report.not_covered)
    return f"<h2>What is not covered</h2><ul>{items}</ul>"

"""The style of a report page: for light, dark and narrow screens, and for paper."""

from __future__ import annotations

__all__ = ["PAGE_STYLE"]

PAGE_STYLE = """
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
summary{cursor:pointer;margin:30px 0 8px;padding-top:14px;border-top:1px solid var(--line)}
summary h2{display:inline;border:0;margin:0;padding:0;font-size:17px}
details+details summary{margin-top:14px}
small{font-weight:400;color:var(--soft)}
.beliefs{width:auto}
.beliefs td.n,.beliefs th{padding-right:28px}
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
p.about{font-size:14px;color:var(--soft)}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.k,th.k{overflow-wrap:normal;padding-left:14px}
th,dd,li,p{overflow-wrap:anywhere}
.wide th,.wide td{overflow-wrap:break-word}
.wide th[scope=row]{min-width:9em}
figure{margin:12px 0}
figcaption{font-size:14px;color:var(--soft)}
svg{display:block;width:100%;height:auto}
code{font-size:13px;overflow-wrap:anywhere}
footer{margin-top:28px;font-size:13px;color:var(--soft);border-top:1px solid var(--line);padding-top:10px}
@page{size:A4;margin:14mm}
@media print{details::details-content{content-visibility:visible;display:block;height:auto}
:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#444;--line:#bbb;--card:#f3f3f3;--one:#0b5cad;
--two:#b3530a;--three:#59636e;--rest:#e2e2e2;--good:#116329;--bad:#a40e26}
body{font-size:9pt;line-height:1.25}main{max-width:none;padding:0}h1{font-size:16pt}
h2{font-size:11.5pt;margin:9px 0 3px;padding-top:6px;break-after:avoid}
summary,details+details summary{margin:9px 0 3px;padding-top:6px;break-after:avoid;list-style:none}
summary h2{font-size:11pt}
p.about{font-size:8.5pt;break-after:avoid}
.verdict{font-size:10pt;margin:6px 0;padding:6px 12px}table{font-size:8pt}
.halves{columns:2;column-gap:28px;break-inside:avoid}.halves table{break-inside:auto}tr{break-inside:avoid}
th,td{padding:2px 8px 2px 0}
p,ul,figure{margin:3px 0}.facts{margin:6px 0;gap:6px;grid-template-columns:repeat(4,1fr)}
.facts div{padding:3px 10px}.facts dd{font-size:10.5pt}
figure,table,.facts{break-inside:avoid}figure svg{width:60%}figure.curve svg{width:50%}
.wide th[scope=row] br{display:none}small{margin-left:6px}
footer,code,figcaption{font-size:8pt}footer{margin-top:4px;padding-top:2px}}
"""

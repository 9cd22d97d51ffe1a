"""Hooks of the documentation's build (see ``mkdocs.yml``).

Pages are plain Markdown that also reads well in the repository. These hooks do what only the site needs:

- files outside ``docs/`` that a page links to (proofs, benchmark results) become pages and pictures of the site;
- examples with ``>>>`` are highlighted as sessions, and doctest directives are left out;
- formulas become MathML, which needs no script and no font;
- SVG pictures are put into the page itself, so that they follow its light or dark theme.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = "repository"  # folder of the site for files from outside docs/
PROOFS = "proofs.md"

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=[)\s])")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_DIRECTIVE = re.compile(r" *# doctest: \+\w+$", re.MULTILINE)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_EMPHASIS = r"(?<![\w*\\^])\*(?![\s*])(?:[^*\n]|\n(?!\n))*?[^\s*]\*(?![\w*])"
_IMAGE = re.compile(r'<img alt="([^"]*)" src="([^"]+\.svg)"[^>]*>')


def page_of(path: Path) -> str:
    """Path inside the site of a file of the repository.

    >>> page_of(ROOT / "docs" / "start.md"), page_of(ROOT / "src" / "dperm" / "queries" / "scores.proof.md")
    ('start.md', 'repository/src/dperm/queries/scores.proof.md')
    """
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"


def source_of(page: str) -> Path:
    """File of the repository that a page of the site was made from."""
    return ROOT / page.removeprefix(f"{OUTSIDE}/") if page.startswith(f"{OUTSIDE}/") else DOCS / page


def outside_links(text: str, source: Path) -> list[Path]:
    """Files of the repository outside ``docs/`` that a page links to.

    >>> [path.name for path in outside_links("[a](../README.md#x), [b](start.md), [c](#here)", DOCS / "index.md")]
    ['README.md']
    """
    found = []
    for match in _LINK.finditer(_FENCE.sub("", text)):
        target = (source.parent / match[1]).resolve()
        if target.is_file() and target.is_relative_to(ROOT) and not target.is_relative_to(DOCS):
            found.append(target)
    return found


def _proof(text: str) -> str:
    """Return a proof as Markdown for the site: mathematics (``<``, ``_``, single stars) escaped, lists set apart.

    >>> print(_proof("*Proof.* Let d* be <g, s_1>, `a_b`:\\n- one *point*"))
    *Proof.* Let d\\* be &lt;g, s\\_1>, `a_b`:
    <BLANKLINE>
    - one *point*
    """
    parts = re.split(r"(```.*?```|`[^`]*`|\*\*|" + _EMPHASIS + ")", text, flags=re.DOTALL)
    for k, part in enumerate(parts):
        if part.startswith("*") and len(part) > 2:
            parts[k] = part.replace("<", "&lt;").replace("_", r"\_")
        elif not part.startswith(("`", "**")):
            parts[k] = part.replace("<", "&lt;").replace("_", r"\_").replace("*", r"\*")
    text = re.sub(r"^((?!- | |\n).*\n)(?=- )", r"\1\n", "".join(parts), flags=re.MULTILINE)
    return re.sub(r"^((?:- |  ).*\n)(?=[^\s-])", r"\1\n", text, flags=re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add linked files from outside ``docs/`` and all proofs, with a page that lists them."""
    from mkdocs.structure.files import File

    proofs = sorted((ROOT / "src").rglob("*.proof.md"))
    wanted = dict.fromkeys(proofs)
    queue = [DOCS / file.src_uri for file in files.documentation_pages()]
    while queue:
        source = queue.pop()
        for target in outside_links(source.read_text(encoding="utf-8"), source):
            if target not in wanted:
                wanted[target] = None
                if target.suffix == ".md":
                    queue.append(target)
    for path in wanted:
        files.append(File.generated(config, page_of(path), abs_src_path=str(path)))
    lines = [
        "# Proofs",
        "",
        "Each proof is a file beside the code that it is about. These pages show the same files.",
        "",
    ]
    for folder in sorted({path.parent for path in proofs}):
        lines += [f"## {folder.relative_to(ROOT / 'src').as_posix().replace('/', '.')}", ""]
        for path in proofs:
            if path.parent == folder:
                title = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
                lines.append(f"- [{title}]({page_of(path)}) (`{path.name}`)")
        lines.append("")
    files.append(File.generated(config, PROOFS, content="\n".join(lines)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links that leave ``docs/`` to the site's own pages."""
    if page.file.src_uri == PROOFS:
        return markdown
    source = source_of(page.file.src_uri)
    if not source.is_relative_to(DOCS):
        page.meta.setdefault("search", {"boost": 0.3})  # a search finds guides first, then proofs and results
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match[1]))
        if not target.is_file():
            return match[0]
        return posixpath.relpath(page_of(target), here or ".") + (match[2] or "")

    markdown = _LINK.sub(moved, markdown)
    if source.name.endswith(".proof.md"):
        return _proof(markdown)
    return _DIRECTIVE.sub("", _SESSION.sub("```pycon\n", markdown))


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Turn formulas into MathML, and put pictures into the page."""
    content = _FORMULA.sub(_mathml, content)
    base = Path(page.file.abs_dest_path).parent

    def inlined(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(base / match[2]))
        source = DOCS / target.relative_to(config["site_dir"])
        if not source.is_file():
            return match[0]
        svg = re.sub(r"^.*?(?=<svg)", "", source.read_text(encoding="utf-8"), flags=re.DOTALL)
        label = html.escape(html.unescape(match[1]))
        return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).rstrip()

    return _IMAGE.sub(inlined, content)


def _mathml(match: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    display = "block" if match[2] == "[" else "inline"
    return str(convert(html.unescape(match[3]).strip(), display=display))

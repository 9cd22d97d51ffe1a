"""Links, names, guarantee blocks and examples of the documentation are right, without building the site.

Code on the pages runs as doctests (``docs/**/*.md``). ``make docs`` builds the site and stops at the first warning.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import dperm
from dperm.solvers import SOLVERS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "figures")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative_name(path):
    return path.relative_to(ROOT).as_posix()


def anchors(text):
    """Ids of a page's headings, as Python-Markdown makes them."""
    ids = set()
    for title in re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE):
        plain = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", title)).encode("ascii", "ignore").decode()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        n = 0
        while (slug if n == 0 else f"{slug}_{n}") in ids:
            n += 1
        ids.add(slug if n == 0 else f"{slug}_{n}")
    return ids


def broken_links(text, page):
    """Links of a page whose target does not exist."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_figure = target.parent == DOCS / "gallery" and ROOT / "examples" / f"{target.stem}.py" in EXAMPLES
        is_generated = target == DOCS / "proofs.md"
        exists = target.is_file() or is_figure or is_generated
        if exists and anchor and target.suffix == ".md" and not is_generated:
            exists = anchor in anchors(target.read_text("utf-8"))
        if not exists:
            yield link


@pytest.mark.parametrize("page", TEXTS, ids=relative_name)
def test_every_link_has_a_target(page):
    assert list(broken_links(page.read_text("utf-8"), page)) == []


def test_the_link_check_finds_broken_links():
    text = "[a](nowhere.md) [b](#no-such-heading) [c](start.md#nor-this) [d](start.md) [e](gallery/nothing.svg)"
    assert list(broken_links(text, DOCS / "index.md")) == [
        "nowhere.md",
        "#no-such-heading",
        "start.md#nor-this",
        "gallery/nothing.svg",
    ]


def relative_links(text):
    """Links that work in the repository only: neither to a heading of the same page nor to an absolute address."""
    pattern = r"\]\(([^)\s]+)|^\[[^\]]+\]: *(\S+)|(?:href|src)=[\"']([^\"']+)"
    links = re.findall(pattern, FENCE.sub("", text), re.MULTILINE)
    return [link for link in map("".join, links) if not re.match(r"#|[a-z]+://|mailto:", link)]


def test_the_readme_has_no_relative_links():
    """A package index shows the README, and relative links lead nowhere there."""
    assert relative_links((ROOT / "README.md").read_text("utf-8")) == []


def test_the_readme_check_finds_relative_links():
    text = '[a](docs/start.md) ![b](x.svg) [c](#here) [d](https://example.org/)\n[e]: LICENSE\n<a href="docs/">f</a>'
    assert relative_links(text) == ["docs/start.md", "x.svg", "LICENSE", "docs/"]


def test_files_named_in_the_readme_exist():
    text = FENCE.sub("", (ROOT / "README.md").read_text("utf-8"))
    named = re.findall(r"`((?:docs|examples)/[\w./-]+|[A-Z]+\.md)`", text)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_is_in_the_menu():
    menu = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(menu) == sorted([*(page.relative_to(DOCS).as_posix() for page in PAGES), "proofs.md"])


def test_nothing_is_loaded_from_elsewhere():
    for path in [ROOT / "mkdocs.yml", *(DOCS / "theme").glob("*.*s"), *(DOCS / "pictures").glob("*.svg")]:
        text = path.read_text("utf-8").replace("http://www.w3.org/", "")
        assert "http" not in text, path
    assert "font: false" in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    assert {f"dperm.{name}" for name in dperm.__all__ if name != "__version__"} <= shown
    assert {f"dperm.solvers.{solver.__name__}" for solver in SOLVERS.values()} <= shown
    for name in shown:  # and every name that is shown exists
        assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("method", [*SOLVERS, "auto", "DPTuner"])
def test_every_method_has_a_guarantee_block(method):
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "methods").glob("*.md"))
    block = re.search(rf'^!!! guarantee "Guarantee: `{method}`"\n((?:    .*\n)+)', text, re.MULTILINE)
    assert block, method
    for part in ("**Released**", "**To**", "**Neighbours**", "**Cost**", "**Assumes**", ".proof.md)"):
        assert part in block[1], (method, part)


def test_the_gallery_shows_the_script_of_every_figure():
    """In three lines: formatters would take a snippet of one line for Python and break it."""
    text = (DOCS / "gallery" / "index.md").read_text("utf-8")
    shown = re.findall(r"^ *--8<--\n *(\S+)\n *--8<--$", text, re.MULTILINE)
    assert sorted(shown) == [relative_name(path) for path in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_risk_falls_with_epsilon_in_every_example(example):
    spec = importlib.util.spec_from_file_location(example.stem, example)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    curves, null = module.measure((0.5, 8.0), 1)
    assert null is None or null > 0.0
    for label, values in curves.items():
        assert values.shape == (2, 1), label
        assert np.isfinite(values).all(), label
    first = next(iter(curves.values()))[:, 0]
    assert first[1] < first[0]
    assert f"]({example.stem}.svg)" in (DOCS / "gallery" / "index.md").read_text("utf-8")

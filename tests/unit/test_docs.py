"""The documentation holds together: links, names, guarantees and examples, without building the site.

Its code runs as doctests (``docs/**/*.md``); ``make docs`` builds it and stops at the first warning.
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


def named(path):
    return path.relative_to(ROOT).as_posix()


def anchors(text):
    """Ids of a page's headings, as Python-Markdown makes them."""
    found = set()
    for title in re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE):
        plain = unicodedata.normalize("NFKD", re.sub(r"[`*]", "", title)).encode("ascii", "ignore").decode()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        n = 0
        while (slug if n == 0 else f"{slug}_{n}") in found:
            n += 1
        found.add(slug if n == 0 else f"{slug}_{n}")
    return found


def broken(text, page):
    """Links of a page that lead nowhere."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        drawn = target.parent == DOCS / "gallery" and ROOT / "examples" / f"{target.stem}.py" in EXAMPLES
        made = target == DOCS / "proofs.md"
        exists = target.is_file() or drawn or made
        if exists and anchor and target.suffix == ".md" and not made:
            exists = anchor in anchors(target.read_text("utf-8"))
        if not exists:
            yield link


@pytest.mark.parametrize("page", TEXTS, ids=named)
def test_links_lead_somewhere(page):
    assert list(broken(page.read_text("utf-8"), page)) == []


def test_the_check_of_links_sees_broken_ones():
    text = "[a](nowhere.md) [b](#no-such-heading) [c](start.md#nor-this) [d](start.md) [e](gallery/nothing.svg)"
    assert list(broken(text, DOCS / "index.md")) == [
        "nowhere.md",
        "#no-such-heading",
        "start.md#nor-this",
        "gallery/nothing.svg",
    ]


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
    for name in shown:  # and whatever is shown exists
        assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("method", [*SOLVERS, "auto", "DPTuner"])
def test_every_method_has_a_guarantee_block(method):
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "methods").glob("*.md"))
    block = re.search(rf'^!!! guarantee "Guarantee: `{method}`"\n((?:    .*\n)+)', text, re.MULTILINE)
    assert block, method
    for part in ("**Released**", "**To**", "**Neighbours**", "**Cost**", "**Assumes**", ".proof.md)"):
        assert part in block[1], (method, part)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_measure_and_risk_falls(example):
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

"""Pages of `docs/`: navigation, links, language of code blocks, examples that run."""

from __future__ import annotations

import os
import re

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, SDK_PAGE, find_code_blocks, format_page_name, read_page
from tests.readme.parts import README, ROOT, STRICT

NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
_LINK_PATTERN = re.compile(r"\]\(([^)\s]+)\)")
_EXAMPLE_PATTERN = re.compile(
    r"^```python\n(.*?)^```$(?:[^`]*?^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)

EXAMPLES = [
    pytest.param(code, output, id=f"{format_page_name(page)}-{number}")
    for page in PAGES
    if page != SDK_PAGE
    for number, (code, output) in enumerate(_EXAMPLE_PATTERN.findall(read_page(page)))
]


def _list_navigation(node):
    """Return the pages of the navigation in order."""
    if isinstance(node, str):
        return [node]
    children = node if isinstance(node, list) else node.values()
    return [entry for child in children for entry in _list_navigation(child)]


def _find_anchors(page):
    headings = re.findall(r"^#+ (.+)$", read_page(page), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower())) for title in headings}


def test_navigation_has_every_page_once():
    assert sorted(_list_navigation(NAV)) == sorted(map(format_page_name, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=format_page_name)
def test_links_lead_to_pages_and_headings(page):
    for link in _LINK_PATTERN.findall(read_page(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target in PAGES, link
        assert not anchor or anchor in _find_anchors(target), link


def test_readme_links_to_the_overview():
    assert f"]({(DOCS / 'index.md').relative_to(ROOT).as_posix()})" in README.read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=format_page_name)
def test_code_blocks_name_a_language(page):
    fences = re.findall(r"^```(.*)$", read_page(page), re.MULTILINE)
    assert set(fences[::2]) <= {"bash", "python", "text"}
    assert set(fences[1::2]) <= {""}


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_python_example_prints_its_output(forks, tmp_path, code, output):
    result = forks.run([], os.environ, tmp_path, script=STRICT + code)
    assert (result.code, result.err, result.out) == (0, "", output)


def test_every_python_block_is_an_example():
    pages = [page for page in PAGES if page != SDK_PAGE]
    assert len(EXAMPLES) == sum(len(find_code_blocks(page, "python")) for page in pages)


def test_glossary_is_sorted_and_unambiguous():
    terms = re.findall(r"^\| ([a-z ]+) \| ", read_page(DOCS / "glossary.md"), re.MULTILINE)[1:]
    assert terms == sorted(set(terms))
    assert "session" in terms

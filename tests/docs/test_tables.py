"""The generated parts of `docs/` match the code."""

from __future__ import annotations

import re

import pytest

from mcp_serve.cli.main import VERBS
from mcp_serve.tool_list import load_specs
from tests.docs.adapters import ADAPTERS
from tests.docs.pages import DOCS, PAGES, format_page_name, read_page, render_generated
from tests.docs.tables import DOCS_PART_MAKERS
from tests.public_names import list_values
from tests.readme.parts import PART_MAKERS, ROOT, list_part_names, render_page


@pytest.mark.parametrize("page", PAGES, ids=format_page_name)
def test_generated_parts_are_current(page):
    assert render_generated(page) == read_page(page), (
        "run `python -m tests.docs` and commit the result"
    )


def test_every_generated_part_is_used():
    used = {name for page in PAGES for name in list_part_names(read_page(page))}
    assert used >= DOCS_PART_MAKERS.keys() - PART_MAKERS.keys()


def test_manual_change_of_a_part_is_detected():
    text = read_page(DOCS / "reference" / "tools.md")
    assert (
        render_page(text.replace("## sessions_list", "## sessions_lists"), DOCS_PART_MAKERS) == text
    )


@pytest.mark.parametrize("tool", load_specs(), ids=lambda spec: spec.name)
def test_tools_page_lists_every_argument(tool):
    section = _find_section("tools.md", tool.name)
    assert [name for name in tool.arguments.model_fields if f"| `{name}` |" not in section] == []


@pytest.mark.parametrize("verb", VERBS)
def test_command_page_has_every_verb(verb):
    assert "```text" in _find_section("command-line.md", verb)


def test_library_page_has_every_public_name():
    headings = re.findall(
        r"^### (\w+)$", read_page(DOCS / "reference" / "library.md"), re.MULTILINE
    )
    names = [name for values in list_values().values() for name in values]
    assert sorted(headings) == sorted([*names, *ADAPTERS.values()])


def test_library_page_has_every_adapter():
    modules = {path.stem for path in (ROOT / "session_core" / "adapters").glob("[a-z]*.py")}
    assert ADAPTERS.keys() == modules - {"shared"}


def test_configuration_page_lists_environment_variables():
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("session_core", "mcp_serve")
        for path in (ROOT / package).rglob("*.py")
    )
    page = read_page(DOCS / "reference" / "configuration.md")
    variables = set(re.findall(r"\bMCP_SESSIONS_[A-Z_]+\b", code))
    assert {name for name in variables if f"| `{name}` |" not in page} == set()


def _find_section(page: str, heading: str) -> str:
    text = read_page(DOCS / "reference" / page)
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]

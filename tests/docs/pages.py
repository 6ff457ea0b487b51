"""The pages of `docs/` and what they contain: links, code blocks, generated parts."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.tables import DOCS_PART_MAKERS
from tests.readme.parts import ROOT, render_page

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

SDK_PAGE = DOCS / "how-to" / "agent-sdks.md"
"""Its examples need an SDK and a model each, so that only their types are checked."""


def read_page(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


def format_page_name(page: Path) -> str:
    """Return the path of a page below `docs/`."""
    return page.relative_to(DOCS).as_posix()


def find_code_blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return fence.findall(read_page(page))


def render_generated(page: Path) -> str:
    """Return a page with its generated parts as the code is now."""
    return render_page(read_page(page), DOCS_PART_MAKERS)

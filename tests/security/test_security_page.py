"""The security page names exactly the kinds of secrets that redaction removes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.security.secret_kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.mark.requirement("hostile:documented-kinds")
def test_security_page_lists_every_kind():
    table = PAGE.read_text(encoding="utf-8").partition("## Kinds of secrets")[2]
    assert re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[2:] == KINDS

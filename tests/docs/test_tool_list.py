"""The tool list of the server is as its specifications are now."""

from __future__ import annotations

import pytest

from mcp_serve.tool_list import TOOL_MODULES, load_specs
from tests.docs.tool_list import TOOL_LIST_PATH, render_tool_list


@pytest.mark.requirement("serving:surface")
def test_tool_list_file_is_current():
    assert TOOL_LIST_PATH.read_text("utf-8") == render_tool_list(), "run python -m tests.docs"
    assert list(TOOL_MODULES) == [spec.name for spec in load_specs()]

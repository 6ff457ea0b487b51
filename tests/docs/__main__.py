"""Write the generated parts of `docs/`, and the tool list of the server."""

from __future__ import annotations

from tests.docs.pages import PAGES, render_generated
from tests.docs.tool_list import TOOL_LIST_PATH, render_tool_list


def main() -> None:
    """Write each page with its parts, and the tool list, as the code is now."""
    TOOL_LIST_PATH.write_text(render_tool_list(), encoding="utf-8")
    for page in PAGES:
        page.write_text(render_generated(page), encoding="utf-8")


main()

"""Write the generated parts of `docs/`."""

from __future__ import annotations

from tests.docs.pages import PAGES, render_generated


def main() -> None:
    """Write each page with its parts as the code is now."""
    for page in PAGES:
        page.write_text(render_generated(page), encoding="utf-8")


main()

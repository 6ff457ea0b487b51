"""Write the generated parts of `docs/` again."""

from __future__ import annotations

from tests.docs.pages import PAGES, generated


def main() -> None:
    """Write each page with its parts as the code is now."""
    for page in PAGES:
        page.write_text(generated(page), encoding="utf-8")


main()

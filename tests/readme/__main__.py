"""Write the parts of the README that are made of the code, and its picture, anew."""

from __future__ import annotations

from tests.readme import parts, picture


def main() -> None:
    """Write them."""
    text = parts.README.read_text(encoding="utf-8")
    parts.README.write_text(parts.render_page(text), encoding="utf-8")
    picture.PICTURE_PATH.write_text(picture.draw_picture(), encoding="utf-8")


main()

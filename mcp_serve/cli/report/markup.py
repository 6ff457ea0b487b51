"""HTML and SVG built from elements, so that stored text is always escaped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from xml.etree.ElementTree import Element, tostring

from mcp_serve.plain_text import to_plain_text

Child = Element | str

_DIGIT_WIDTH = 8
"""The greatest width of a digit of the scale, in pixels."""

_SCALE_STEPS = (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10)


def make_element(tag: str, /, *children: Child, **attributes: str | float) -> Element:
    """Return an element.

    A trailing underscore of an attribute name is dropped, and others become hyphens.
    """
    escaped = {
        key.rstrip("_").replace("_", "-"): _format_attribute(value)
        for key, value in attributes.items()
    }
    element = Element(tag, escaped)
    for child in children:
        if isinstance(child, str):
            _append_text(element, to_plain_text(child))
        else:
            element.append(child)
    return element


def render_document(root: Element) -> str:
    """Return the HTML of a document."""
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def draw_columns(
    points: Sequence[tuple[str, float, str]],
    label: str,
    *,
    height: int = 180,
    every: int = 4,
    format_value: Callable[[float], str] = "{:,.0f}".format,
) -> Element:
    """Return a column chart over time with a scale, rules and labels.

    Every few columns have a label at their left edge, and the last one at its right edge.
    """
    # Horizontal lengths are percentages and text has its own size, so the chart fits any width.
    highest = round_up_scale(max((value for _, value, _ in points), default=0))
    ticks = [highest, highest / 2, 0] if highest % 2 == 0 else [highest, 0]
    share = 100 / max(len(points), 1)
    plot = make_element("svg", class_="plot", width="100%", height=height + 24, aria_hidden="true")
    for tick in ticks:
        y = _scale_y(tick, highest, height)
        plot.append(make_element("line", x1=0, x2="100%", y1=y, y2=y, class_="rule"))
    for number, (name, value, text) in enumerate(points):
        y = _scale_y(value, highest, height)
        x = number * share
        plot.append(
            make_element(
                "g",
                make_element("title", text),
                make_element(
                    "rect", x=_format_percent(x), y=0, width=_format_percent(share), height=height
                ),
                make_element(
                    "rect",
                    class_="bar",
                    x=_format_percent(x + share * 0.12),
                    y=y,
                    width=_format_percent(share * 0.76),
                    height=max(height + 4 - y, 0),
                ),
            )
        )
        is_last = number == len(points) - 1
        if is_last or (number % every == 0 and number < len(points) - every - 2):
            at = _format_percent(100 if is_last else x + share * 0.12)
            anchor = "end" if is_last and number else "start"
            plot.append(make_element("text", name, x=at, y=height + 20, text_anchor=anchor))
    room = _DIGIT_WIDTH * max(len(format_value(tick)) for tick in ticks)
    scale = make_element("svg", class_="scale", width=room, height=height + 24, aria_hidden="true")
    for tick in ticks:
        y = _scale_y(tick, highest, height) + 4
        scale.append(make_element("text", format_value(tick), x="100%", y=y, text_anchor="end"))
    return make_element("div", scale, plot, class_="columns", role="img", aria_label=label)


def draw_bars(points: Sequence[tuple[str, float, str]], label: str) -> Element:
    """Return a bar chart as a table with names and values as text."""
    highest = max((value for _, value, _ in points), default=0) or 1
    rows = [
        make_element(
            "tr",
            make_element("th", name, scope="row", title=name),
            make_element(
                "td",
                make_element(
                    "svg",
                    make_element("title", f"{name}: {text}"),
                    make_element("rect", class_="track", width="100%", height=10, y=3, rx=1),
                    make_element("rect", class_="bar",
                        width=_format_percent(100 * value / highest), height=10,
                            y=3, rx=1),
                    width="100%", height=16, aria_hidden="true",
                ),
                class_="across",
            ),
            make_element("td", text, class_="number"),
        )
        for name, value, text in points
    ]  # fmt: skip
    return make_element("table", make_element("tbody", *rows), class_="bars", aria_label=label)


def draw_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    label: str,
    *,
    texts: int = 1,
    wide: Collection[int] = (),
) -> Element:
    """Return a table with heads.

    The columns after the first `texts` columns are numbers. The columns `wide` are left out of a
    narrow window.
    """
    kinds = [
        " ".join(["number"] * (number >= texts) + ["wide"] * (number in wide))
        for number in range(len(heads))
    ]

    def make_row(tag: str, cells: Sequence[str]) -> Element:
        pairs = zip(kinds, cells, strict=True)
        return make_element("tr", *(make_element(tag, cell, class_=kind) for kind, cell in pairs))

    head = make_element("thead", make_row("th", heads))
    body = make_element("tbody", *(make_row("td", row) for row in rows))
    return make_element("table", head, body, class_="rows", aria_label=label)


def round_up_scale(value: float) -> float:
    """Return the smallest round number >= value, for the top of a scale."""
    power = 1.0
    while power * 10 < value:
        power *= 10
    rounds = (step * power for step in _SCALE_STEPS)
    return next(number for number in rounds if number >= value and number.is_integer())


def _scale_y(value: float, highest: float, height: int) -> float:
    return 4 + height - height * value / (highest or 1)


def _format_percent(value: float) -> str:
    return f"{value:.2f}%"


def _format_attribute(value: str | float) -> str:
    return to_plain_text(value) if isinstance(value, str) else f"{value:g}"


def _append_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text

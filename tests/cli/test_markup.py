"""Charts and elements of the page of `stats`."""

from __future__ import annotations

import pytest

from mcp_serve.cli.report import markup


@pytest.mark.parametrize("value", [0, 1, 3, 7, 230, 999, 1000, 1001, 123_456, 10**12])
def test_scale_ends_at_round_number(value):
    top = markup.round_up_scale(value)
    assert value <= top <= max(2 * value, 1)
    assert top == int(top)


def test_stored_text_is_escaped_and_plain():
    text = '<script>"&\x1b[31m\u202e'
    made = markup.make_element("p", text, markup.make_element("b", "x"), "tail", title=text)
    assert markup.render_document(made) == (
        '<!doctype html>\n<p title="<script&gt;&quot;&amp;[31m">'
        '&lt;script&gt;"&amp;[31m<b>x</b>tail</p>\n'
    )


def test_attribute_names_become_html():
    made = markup.make_element("i", class_="a", aria_label="b", height=12.50)
    assert made.attrib == {"class": "a", "aria-label": "b", "height": "12.5"}


@pytest.mark.parametrize("values", [[], [0], [5, 0, 10]])
def test_columns_stay_inside_their_plot(values):
    points = [(f"week {n}", value, f"{value} messages") for n, value in enumerate(values)]
    chart = markup.draw_columns(points, "growth", height=100)
    bars = [bar.attrib for bar in chart.iter("rect") if bar.get("class") == "bar"]
    assert len(bars) == len(values)
    assert all(float(bar["y"]) + float(bar["height"]) == 104 for bar in bars)
    assert all(4 <= float(bar["y"]) <= 104 for bar in bars)
    assert [title.text for title in chart.iter("title")] == [said for _, _, said in points]


def test_longest_bar_fills_its_track():
    table = markup.draw_bars([("cli", 50, "50"), ("cron", 200, "200"), ("tui", 0, "0")], "sources")
    widths = [bar.get("width") for bar in table.iter("rect") if bar.get("class") == "bar"]
    assert widths == ["25.00%", "100.00%", "0.00%"]
    assert markup.draw_bars([("cli", 0, "0")], "sources").find(".//th").text == "cli"

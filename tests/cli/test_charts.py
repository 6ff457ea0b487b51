"""Charts of `stats` as text: lengths, scales and labels in any width."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from mcp_serve.cli.report.charts import ChartBar, draw_bars, draw_columns

BARS = [ChartBar("telegram", 100, "100"), ChartBar("cli", 50, "50"), ChartBar("cron", 0, "0")]


def list_bars(bars, width=40, *, blocks=False):
    return [line.plain for line in draw_bars(bars, width, blocks=blocks)]


def test_bars_share_scale():
    assert list_bars(BARS) == [
        "telegram  #########################  100",
        "cli       ############" + " " * 13 + "   50",
        "cron      " + " " * 25 + "    0",
    ]


@pytest.mark.parametrize("blocks", [True, False])
def test_smallest_value_stays_visible(blocks):
    _, small = list_bars([ChartBar("a", 10**9, "x"), ChartBar("b", 1, "y")], blocks=blocks)
    assert small.split() == ["b", "▏" if blocks else "#", "y"]


@pytest.mark.parametrize("width", [30, 60, 200])
@pytest.mark.parametrize("label", ["short", "数据库" * 30, "x" * 100])
def test_bars_fit_width(label, width):
    lines = list_bars([ChartBar(label, 5, "5 MB"), ChartBar("b", 3, "3 MB")], width, blocks=True)
    assert len({cell_len(line) for line in lines}) == 1
    assert cell_len(lines[0]) <= width


def test_columns_have_scale_and_ends():
    lines = [line.plain for line in draw_columns([0, 5, 1000], ("May", "June"), 60, blocks=False)]
    assert lines[0] == "1,000 |        ###"
    assert lines[4] == "      |    ### ###"
    assert lines[5] == "    0 +------------"
    assert lines[6] == "       May     June"


@pytest.mark.parametrize("values", [[], [0], [0, 0, 0]])
def test_chart_without_values_is_empty(values):
    lines = [line.plain for line in draw_columns(values, ("a", "b"), 40, blocks=True)]
    assert [line.strip(" │") for line in lines[:5]] == ["0"] + [""] * 4
    assert lines[5].startswith("0 └")

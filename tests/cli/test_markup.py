"""Charts and elements of the page of `stats`."""

from __future__ import annotations

import pytest

from mcp_serve.cli.report import markup


@pytest.mark.parametrize("value", [0, 1, 3, 7, 230, 999, 1000, 1001, 123_456, 10**12])
def test_scale_ends_at_round_number(value):
    top = markup.round_up_scale(value)
    assert value <= top <= max(2 * value, 1)
    assert top == int(top)

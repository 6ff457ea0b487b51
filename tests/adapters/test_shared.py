"""The common parts of the adapters."""

from __future__ import annotations

import pytest

from session_core.adapters.shared import decode_payloads


@pytest.mark.parametrize(
    ("payloads", "values"),
    [
        ([], []),
        (['{"a": 1}', "null", "[2]"], [{"a": 1}, None, [2]]),
        (["1", "{broken", '"2"'], [1, "2"]),
        (["1, 2", "3"], [3]),
        (["", "3"], [3]),
        (["[" * 100_000, "3"], [3]),
    ],
)
def test_broken_payload_hides_no_others(payloads, values):
    assert decode_payloads(payloads) == values

"""The payloads of a session, in the order in which an SDK has stored them."""

from __future__ import annotations

import pytest

from session_core import OpenedHome, open_home
from session_core.adapters.shared import read_newest_payloads, read_payloads


def append_events(home: OpenedHome, count: int, rows: int) -> None:
    """Append events of several rows each, of which the first one has the payload."""
    for number in range(count):
        payload = {"payload_json": f'"{number}"', "platform_message_id": f"e{number}"}
        first = {"role": "user", "content": f"{number}: " + "text " * 300, **payload}
        more = [{"role": "assistant", "content": "text " * 100}] * (rows - 1)
        home.db.append_messages("s", [first, *more], create={"source": "test"})


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_newest_payloads_are_the_last_ones(rows, is_compressed):
    with open_home(":memory:") as home:
        append_events(home, 30, rows)
        if is_compressed:
            home.compressor.compress("s", keep_last=6, shape="in_place")
        payloads = read_payloads(home.db, "s")
        assert payloads == [f'"{number}"' for number in range(30)]
        for count in (1, 3, 10, 29, 30, 40):
            assert read_newest_payloads(home.db, "s", count) == payloads[-count:]

"""Chains of continuations: walked once for all their sessions, with the same answer for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import SessionDB
from session_core.state.sqlite import lineage
from tests.homes import add_message, add_session, connect, own_database

LONG = 150


def chain(path: Path, parents: list[int | None]) -> list[str]:
    """Make a session for each place, each the continuation of the place that it names."""
    own_database(path)
    ids = [f"s{place:03}" for place in range(len(parents))]
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("BEGIN")
        for place, parent in enumerate(parents):
            add_session(
                connection,
                ids[place],
                started_at=float(place),
                parent_session_id=None if parent is None else ids[parent],
                ended_at=float(place + 1),
                end_reason="compression",
            )
            add_message(connection, ids[place], content=f"wombat {place}", timestamp=float(place))
        connection.execute("COMMIT")
    return ids


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9).flatmap(
        lambda size: st.lists(st.none() | st.integers(0, size - 1), min_size=size, max_size=size)
    )
)
def test_what_is_remembered_of_a_chain_is_what_a_walk_would_say(
    tmp_path_factory: pytest.TempPathFactory, parents: list[int | None]
) -> None:
    path = tmp_path_factory.mktemp("chain") / "state.db"
    ids = chain(path, parents)
    with SessionDB(path, read_only=True) as db:
        walked = [(db.get_conversation_root(one), db.get_compression_tip(one)) for one in ids]
        known = db._read(
            lambda handle: [
                (lineage.known_root(handle, one), lineage.known_tip(handle, one)) for one in ids
            ]
        )
    assert known == walked


@pytest.mark.parametrize("status", [None, "open", "ended"])
def test_a_search_over_a_chain_walks_it_once(home_path: Path, status: str | None) -> None:
    path = home_path / "state.db"
    ids = chain(path, [None, *range(LONG - 1)])
    with SessionDB(path, read_only=True) as db:
        db.search("nothing")
        asked: list[str] = []
        db._open.readers[0].connection.set_trace_callback(asked.append)
        hits = db.search("wombat", status=status).hits
    assert {hit.session_id for hit in hits} <= set(ids)
    assert len(hits) == (status != "open")
    assert sum("p.end_reason AS parent_reason" in statement for statement in asked) < 4 * LONG

"""Chains of continuations are walked once for all their sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import InvalidInput, SessionDB
from session_core.state.sqlite import lineage
from session_core.types import SessionOrder
from tests.homes import add_message, add_session, connect, make_own_database

LONG = 150


def add_chain(path: Path, parents: list[int | None]) -> list[str]:
    """Create a session for each place, which continues the session at the named place."""
    make_own_database(path)
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


@pytest.mark.requirement("search:chains")
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9).flatmap(
        lambda size: st.lists(st.none() | st.integers(0, size - 1), min_size=size, max_size=size)
    )
)
def test_cached_root_and_tip_match_walk(
    tmp_path_factory: pytest.TempPathFactory, parents: list[int | None]
) -> None:
    path = tmp_path_factory.mktemp("chain") / "state.db"
    ids = add_chain(path, parents)
    with SessionDB(path, read_only=True) as db:
        walked = [
            (db.get_conversation_root(session_id), db.get_compression_tip(session_id))
            for session_id in ids
        ]
        cached = db._read(
            lambda handle: [
                (
                    lineage.find_root_cached(handle, session_id),
                    lineage.find_tip_cached(handle, session_id),
                )
                for session_id in ids
            ]
        )
    assert cached == walked


def trace_link_statements(db: SessionDB) -> list[str]:
    """Return a list that collects the statements of a reader about links between sessions."""
    db.search("nothing")
    statements: list[str] = []

    def note(statement: str) -> None:
        if "p.end_reason AS parent_reason" in statement:
            statements.append(statement)

    db._store.pool.readers[0].connection.set_trace_callback(note)
    return statements


@pytest.mark.requirement("search:chains")
@pytest.mark.parametrize("order", ["recent", "started", "size"])
def test_list_walks_each_chain_once(home_path: Path, order: SessionOrder) -> None:
    path = home_path / "state.db"
    ids = add_chain(path, [None, *range(LONG - 1)])
    with SessionDB(path, read_only=True) as db:
        statements = trace_link_statements(db)
        assert [line.id for line in db.list_sessions(order=order).items] == [ids[-1]]
    assert len(statements) < 4 * LONG


@pytest.mark.requirement("search:chains")
def test_lineage_cycle_roots_are_cached_once(home_path: Path) -> None:
    path = home_path / "state.db"
    ids = add_chain(path, [LONG - 1, *range(LONG - 1)])
    with SessionDB(path, read_only=True) as db:
        statements = trace_link_statements(db)
        roots = db._read(
            lambda handle: [lineage.find_root_cached(handle, session_id) for session_id in ids]
        )
    assert sorted(roots) == ids
    assert len(statements) == LONG


def test_childless_session_gets_parent_without_walk(home_path: Path) -> None:
    ids = add_chain(home_path / "state.db", [None, *range(LONG - 1)])
    with SessionDB(home_path / "state.db") as db:
        db.set_meta("the writer", "is open")
        statements: list[str] = []
        writer = db._store.pool.writer
        assert writer is not None
        assert writer._handle is not None
        writer._handle.connection.set_trace_callback(statements.append)
        db.create_session("new", "cli", parent_session_id=ids[-1])
        assert not [statement for statement in statements if "RECURSIVE" in statement]
        with pytest.raises(InvalidInput):
            db.update_session(ids[0], parent_session_id="new")
        assert len([statement for statement in statements if "RECURSIVE" in statement]) == 1


@pytest.mark.requirement("search:chains")
@pytest.mark.parametrize("status", [None, "open", "ended"])
def test_search_walks_each_chain_once(home_path: Path, status: str | None) -> None:
    path = home_path / "state.db"
    ids = add_chain(path, [None, *range(LONG - 1)])
    with SessionDB(path, read_only=True) as db:
        statements = trace_link_statements(db)
        hits = db.search("wombat", status=status).hits
    assert {hit.session_id for hit in hits} <= set(ids)
    assert len(hits) == (status != "open")
    assert len(statements) < 4 * LONG

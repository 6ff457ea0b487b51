"""A list line is read once until the next commit."""

from __future__ import annotations

from pathlib import Path

from session_core import SessionDB


def test_summary_counts_messages_once_until_commit(home_path: Path) -> None:
    path = home_path / "state.db"
    with SessionDB(path) as writer, SessionDB(path, read_only=True) as reader:
        writer.append_message("chat", "user", "first", create={"source": "cli"})
        assert reader.summarize_session("chat").messages == 1
        statements: list[str] = []
        reader._store.pool.readers[0].connection.set_trace_callback(statements.append)
        assert reader.summarize_session("chat").messages == 1
        assert [statement for statement in statements if "count(*)" in statement] == []

        writer.append_message("chat", "user", "second")

        assert reader.summarize_session("chat").messages == 2


def test_summary_inside_transaction_shows_changes(home_path: Path) -> None:
    with SessionDB(home_path / "state.db") as db:
        db.append_message("chat", "user", "first", create={"source": "cli"})
        with db.transaction():
            assert db.summarize_session("chat").messages == 1
            db.append_message("chat", "user", "second")
            assert db.summarize_session("chat").messages == 2
            db.set_session_title("chat", "Work")
            assert db.summarize_session("chat").title == "Work"

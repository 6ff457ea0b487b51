"""The index of a home of our own lags on disk. Search results never do."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.state.sqlite import fts, writer
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.database_file import open_writer
from session_core.state.sqlite.search import any_words, candidates, match_blocks
from tests.homes import connect


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    with SessionDB(home_path / "state.db") as opened:
        opened.create_session("s", "cli")
        yield opened


def append_texts(db: SessionDB, *texts: str) -> list[int]:
    rows = [{"role": "user", "content": text} for text in texts]
    return list(db.append_messages("s", rows).ids)


def index_everything(db: SessionDB) -> None:
    while db._write(fts.index_batch):
        pass


def append_texts_as_stranger(path: Path, *texts: str) -> None:
    with connect(path) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " VALUES ('s', 'user', ?, 1.0)",
            [(text,) for text in texts],
        )
        connection.execute("COMMIT")


def read_index_mark(db: SessionDB) -> int:
    return max(0, db._read(fts.find_high_mark))


def list_hits(db: SessionDB, query: str, **options: Any) -> list[int]:
    """Return the hits of all pages of a search."""
    answer = db.search(query, per="message", **options)
    hits = [hit.message_id for hit in answer.hits]
    while answer.next_cursor is not None:
        answer = db.search(query, per="message", cursor=answer.next_cursor, **options)
        hits += [hit.message_id for hit in answer.hits]
    return sorted(hits)


def list_postings(db: SessionDB, word: str) -> list[int]:
    statement = "SELECT rowid FROM ms_index WHERE ms_index MATCH ?"
    return db._read(
        lambda handle: [row[0] for row in handle.fetch_tuples(statement, (f'"{word}"',))]
    )


def test_search_merges_index_and_tail(db: SessionDB) -> None:
    before = append_texts(db, "ledger one", "nothing")
    index_everything(db)
    after = append_texts(db, "ledger two")
    assert read_index_mark(db) == before[-1]
    assert list_hits(db, "ledger") == [before[0], after[0]]
    assert list_hits(db, "ledg*") == [before[0], after[0]]
    assert list_hits(db, "edger", mode="substring") == [before[0], after[0]]
    assert list_hits(db, "ledger two") == after


def test_appends_are_indexed_in_batches(db: SessionDB) -> None:
    ids = append_texts(db, *["ledger"] * (fts.MAX_LAG - 1))
    assert read_index_mark(db) == 0
    ids += append_texts(db, "ledger")
    assert read_index_mark(db) == ids[-1]
    assert len(list_postings(db, "ledger")) == fts.MAX_LAG


def test_bulk_append_is_indexed_immediately(
    db: SessionDB, home_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MAX_FOLLOW_UP_S", 60)
    ids = append_texts(db, "ledger first", *["plain"] * 10_000, "ledger last")
    assert read_index_mark(db) == ids[-1]
    assert list_hits(db, "ledger") == [ids[0], ids[-1]]
    with SessionDB(home_path / "state.db", read_only=True) as beside:
        assert list_hits(beside, "ledger") == [ids[0], ids[-1]]


def test_transaction_is_indexed_after_commit(db: SessionDB) -> None:
    with db.transaction():
        ids = append_texts(db, "ledger", *["plain"] * (2 * fts.MAX_LAG))
        assert list_hits(db, "ledger") == [ids[0]]
        assert read_index_mark(db) == 0
    assert read_index_mark(db) == ids[-1]


def test_close_indexes_remaining_messages(db: SessionDB, home_path: Path) -> None:
    ids = append_texts(db, "ledger", "plain")
    db.close()
    with SessionDB(home_path / "state.db", read_only=True) as fresh:
        assert read_index_mark(fresh) == ids[-1]
        assert list_hits(fresh, "ledger") == [ids[0]]


@pytest.mark.parametrize("read_only", [True, False])
def test_messages_of_killed_process_are_found(
    db: SessionDB, home_path: Path, read_only: bool
) -> None:
    db.close()
    code = (
        "import os, signal, sys\n"
        "from session_core import SessionDB\n"
        "from session_core.state.sqlite import fts as index\n"
        "index.MAX_LAG = 10**9\n"
        "rows = [{'role': 'user', 'content': text} for text in ['ledger', *['plain'] * 5000]]\n"
        "SessionDB(sys.argv[1]).append_messages('s', rows)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(home_path / "state.db")], check=False, timeout=60
    )
    assert process.returncode == -signal.SIGKILL
    with SessionDB(home_path / "state.db", read_only=read_only) as fresh:
        assert list_hits(fresh, "ledger") == [1]
        assert read_index_mark(fresh) == (0 if read_only else 5001)


def test_search_indexes_foreign_bulk_appends(db: SessionDB, home_path: Path) -> None:
    append_texts_as_stranger(home_path / "state.db", "ledger", *["plain"] * 3000)
    with SessionDB(home_path / "state.db", read_only=True) as beside:
        assert list_hits(beside, "ledger") == [1]
    assert read_index_mark(db) == 0
    assert list_hits(db, "ledger") == [1]
    assert read_index_mark(db) == 3001


def test_search_waits_for_no_lock(db: SessionDB, home_path: Path) -> None:
    append_texts_as_stranger(home_path / "state.db", "ledger", *["plain"] * 3000)
    with connect(home_path / "state.db") as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert list_hits(db, "ledger") == [1]
        assert read_index_mark(db) == 0
        connection.execute("ROLLBACK")


def test_damaged_index_refuses_no_append(db: SessionDB, home_path: Path) -> None:
    with connect(home_path / "state.db") as connection:
        connection.execute("UPDATE ms_index_data SET block = x'FF' WHERE id = 10")
    ids = append_texts(db, *["ledger"] * (fts.MAX_LAG + 1))
    assert list_hits(db, "ledger") == ids


def test_unparsable_row_blocks_no_indexing(db: SessionDB, home_path: Path) -> None:
    calls = [{"id": "c", "function": {"name": "run", "arguments": '{"a": ' + "[" * 1000}}]
    db.append_message("s", "assistant", None, tool_calls=calls)
    deep: Any = "wombat"
    for _ in range(300):
        deep = {"type": "tool_result", "content": [deep]}
    db.append_message("s", "user", deep)
    ids = append_texts(db, *["ledger"] * (fts.MAX_LAG + 1))
    assert read_index_mark(db) == ids[-1]
    assert len(list_hits(db, "ledger")) == len(ids)
    db.close()
    with SessionDB(home_path / "state.db") as fresh:
        assert fresh.message_count("s") == len(ids) + 2


def test_failed_indexing_fails_no_durable_change(db: SessionDB, home_path: Path) -> None:
    def change(handle: Connection) -> None:
        handle.execute_update("UPDATE sessions SET title = 'kept' WHERE id = 's'")
        handle.indexing_due = True

    def fail(_: Connection) -> bool:
        raise RecursionError

    opening = partial(open_writer, home_path / "state.db", own=True)
    alone = writer.Writer(opening, own=True, patience_s=5, index_batch=fail)
    alone.run_in_transaction(change)
    alone.close()
    assert db.get_session_title("s") == "kept"


def test_index_batch_is_bounded_by_size(db: SessionDB) -> None:
    ids = append_texts(db, *["word " * 70_000] * 3)
    assert db._write(fts.index_batch)
    assert read_index_mark(db) == ids[1]
    assert list_hits(db, "word") == ids


def test_foreign_append_is_found_before_indexing(db: SessionDB, home_path: Path) -> None:
    append_texts(db, "ledger")
    index_everything(db)
    append_texts_as_stranger(home_path / "state.db", "ledger of a stranger")
    assert list_hits(db, "ledger") == [1, 2]
    index_everything(db)
    assert read_index_mark(db) == 2
    assert list_hits(db, "ledger") == [1, 2]


def test_session_search_hides_nothing_from_next(db: SessionDB, home_path: Path) -> None:
    ids = append_texts(db, "ledger of one")
    index_everything(db)
    ids += append_texts(db, "ledger again")
    db.create_session("t", "cli")
    ids += db.append_messages("t", [{"role": "user", "content": "ledger of another"}]).ids
    with SessionDB(home_path / "state.db", read_only=True) as fresh:
        assert list_hits(fresh, "ledger", session="t") == ids[2:]
        assert list_hits(fresh, "ledger") == ids


def test_rare_words_rank_higher_without_index(
    db: SessionDB,
) -> None:
    append_texts(db, *[f"gateway deploy status {number}" for number in range(300)])
    db.create_session("t", "cli")
    (answer,) = db.append_messages("t", [{"role": "user", "content": "marmalade it was"}]).ids
    append_texts(db, *["gateway deploy status"] * 300)
    hits = db.search("why did the gateway deploy want marmalade?", per="message").hits
    assert answer in [hit.message_id for hit in hits[:3]]


def test_rare_word_combination_is_found_far_back(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(any_words, "_LIST_ROWS", 20)
    monkeypatch.setattr(any_words, "_TOTAL_LIST_ROWS", 80)
    (answer,) = append_texts(db, "the audit logs are kept in the cellar")
    for word in ("audit", "logs", "kept", "months"):
        append_texts(db, *[f"{word} of number {number}" for number in range(500)])
    index_everything(db)
    page = db.search("how many months are audit logs kept?", per="message", limit=5)
    assert page.hits[0].message_id == answer


def test_delete_removes_words_from_index(db: SessionDB) -> None:
    append_texts(db, "ledger 数据库", "ledger")
    index_everything(db)
    db.clear_messages("s")
    assert list_postings(db, "ledger") == []
    assert list_hits(db, "ledger") == []


def test_stale_index_words_find_nothing(db: SessionDB, home_path: Path) -> None:
    append_texts(db, "ledger", "ledger")
    index_everything(db)
    with connect(home_path / "state.db") as connection:
        connection.execute("DELETE FROM messages WHERE id = 1")
    assert list_hits(db, "ledger") == [2]


def test_restored_messages_are_found(db: SessionDB, home_path: Path) -> None:
    append_texts(db, "ledger", "ledger")
    index_everything(db)
    db.clear_messages("s")

    def bring_back(handle: object) -> None:
        before = fts.get_change_number(handle)  # type: ignore[arg-type]
        handle.execute_update(  # type: ignore[attr-defined]
            "INSERT INTO messages (id, session_id, role, content, timestamp)"
            " VALUES (1, 's', 'user', 'ledger', 1.0)"
        )
        fts.reindex_messages(handle, [1], before)  # type: ignore[arg-type]

    db._write(bring_back)
    assert list_hits(db, "ledger") == [1]


def test_message_restored_above_mark_is_found(db: SessionDB, home_path: Path) -> None:
    append_texts(db, "ledger", "ledger")
    assert list_hits(db, "ledger") == [1, 2]
    with connect(home_path / "state.db") as connection:
        connection.execute("DELETE FROM messages WHERE id = 1")
        assert list_hits(db, "ledger") == [2]
        connection.execute(
            "INSERT INTO messages (id, session_id, role, content, timestamp)"
            " VALUES (1, 's', 'user', 'ledger', 1.0)"
        )
    assert list_hits(db, "ledger") == [1, 2]


def test_long_tail_is_read_in_parts(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    append_texts(db, *["plain"] * 40)
    index_everything(db)
    monkeypatch.setattr(fts, "MAX_LAG", 1_000_000)
    monkeypatch.setattr(match_blocks, "_MAX_ROWS", 10)
    monkeypatch.setattr(candidates, "MAX_SIEVED_ROWS", 20)
    ids = append_texts(db, "ledger", *["plain"] * 60)
    cursor, pages = None, 0
    seen: list[int] = []
    while pages < 10:
        answer = db.search("ledger", cursor=cursor)
        seen += [hit.message_id for hit in answer.hits]
        cursor, pages = answer.next_cursor, pages + 1
        if cursor is None:
            break
        assert answer.searched_back_to is not None
    assert seen == [ids[0]]
    assert pages > 1


def test_session_search_is_bounded_by_range(db: SessionDB) -> None:
    append_texts(db, *["ledger"] * 3000)
    db.create_session("t", "cli")
    db.append_messages("t", [{"role": "user", "content": "ledger"}])
    index_everything(db)
    assert len(db.search("ledger", session="t", per="message").hits) == 1
    assert len(db.search("ledger", session="t").hits) == 1


def test_giant_conversation_hides_no_others(db: SessionDB) -> None:
    for number in range(12):
        db.create_session(f"old{number}", "cli")
        db.append_messages(f"old{number}", [{"role": "user", "content": "ledger"}])
    append_texts(db, *["ledger"] * 9000)
    index_everything(db)
    hits = db.search("ledger", limit=13).hits
    assert {hit.session_id for hit in hits} == {"s", *(f"old{number}" for number in range(12))}
    (between,) = db.append_messages("old0", [{"role": "user", "content": "ledger now"}]).ids
    append_texts(db, *["ledger"] * 3000)
    hits = db.search("ledger", limit=13).hits
    assert {hit.session_id for hit in hits} == {"s", *(f"old{number}" for number in range(12))}
    assert between in [hit.message_id for hit in hits]


def test_older_index_finds_tool_call_ids(db: SessionDB, home_path: Path) -> None:
    calls = [{"id": "call_Qx7", "type": "function", "function": {"name": "run"}}]
    db.append_messages("s", [{"role": "assistant", "content": "look", "tool_calls": calls}])
    index_everything(db)
    with connect(home_path / "state.db") as connection:
        connection.execute("UPDATE state_meta SET key = 'mcp_sessions_folded_to' WHERE value = '1'")
        connection.execute("INSERT INTO ms_index(ms_index) VALUES ('delete-all')")
        connection.execute("INSERT INTO ms_index(rowid, body) VALUES (1, 'look run')")
    with SessionDB(home_path / "state.db") as fresh:
        assert list_hits(fresh, "call_Qx7") == [1]
        index_everything(fresh)
        assert list_postings(fresh, "qx7") == list_postings(fresh, "look") == [1]
        assert list_hits(fresh, "call_Qx7") == [1]


def test_index_is_smaller_than_text(db: SessionDB, home_path: Path) -> None:
    text = "the quick brown fox number {} jumps over some lazy dogs at home in the evening sun"
    for start in range(0, 6000, 1000):
        append_texts(db, *[text.format(number) for number in range(start, start + 1000)])
    index_everything(db)
    statement = "SELECT sum(length(block)) FROM ms_index_data"
    size = db._read(lambda handle: handle.fetch_value(statement))
    assert size < 0.8 * 6000 * len(text)


def test_damaged_own_index_is_compensated(db: SessionDB, home_path: Path) -> None:
    ids = append_texts(db, "ledger one")
    index_everything(db)
    with connect(home_path / "state.db") as connection:
        connection.execute("UPDATE ms_index_data SET block = x'FFFFFFFF' WHERE id > 10")
    with SessionDB(home_path / "state.db") as fresh:
        assert list_hits(fresh, "ledger") == ids
        assert list_hits(fresh, "edge", mode="substring") == ids
        assert list_hits(fresh, "what is a ledger good for?") == ids

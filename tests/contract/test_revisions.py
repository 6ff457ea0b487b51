"""The revision of a session: it changes with the conversation only, by any writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import Revision, StateDatabase
from tests.contract.engines import ForeignWriter, require_column


@pytest.fixture
def session(db: StateDatabase) -> str:
    return db.create_session("s", "cli")


def append_text(db: StateDatabase, *texts: str) -> list[int]:
    return [db.append_message("s", "user", text) for text in texts]


@pytest.mark.requirement("messages:revision")
@pytest.mark.parametrize(
    "change",
    [
        lambda db, _: db.append_message("s", "user", "x"),
        lambda db, ids: db.rewind_to_message("s", ids[2]),
        lambda db, ids: db.restore_rewound("s", ids[3]),
        lambda db, _: db.replace_messages("s", [{"role": "user", "content": "x"}] * 3),
        lambda db, _: db.replace_messages("s", db.get_messages("s"), active_only=True),
        lambda db, _: db.clear_messages("s"),
        lambda db, _: db.end_session("s", "x"),
        lambda db, _: db.promote_to_session_reset("s"),
    ],
)
@pytest.mark.parametrize("foreign", [False, True])
def test_revision_changes_with_every_conversation_change(
    db: StateDatabase,
    other: StateDatabase,
    session: str,
    change: Callable[[StateDatabase, list[int]], Any],
    foreign: bool,
) -> None:
    ids = append_text(db, "a", "b", "c", "d")
    db.rewind_to_message(session, ids[3])
    before = db.get_revision(session)
    other.get_revision(session)
    change(other if foreign else db, ids)
    after = db.get_revision(session)
    assert after != before
    assert other.get_revision(session) == after
    assert db.append_message(session, "user", "y").before == after


@pytest.mark.schemas(16, 30)
def test_revision_seen_by_instances_changes_after_compaction(
    db: StateDatabase, other: StateDatabase, session: str
) -> None:
    append_text(db, "a", "b")
    before = other.get_revision(session)
    with require_column(db, "compacted"):
        after = db.archive_and_compact(session, [{"role": "user", "content": "s"}]).after
        assert other.get_revision(session) == after != before


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db.set_session_title("s", "Trip"),
        lambda db: db.set_session_archived("s", archived=True),
        lambda db: db.update_session("s", model="n"),
        lambda db: db.update_token_counts("s", input_tokens=5),
        lambda db: db.append_message("t", "user", "x", create={"source": "cli"}),
    ],
)
def test_revision_ignores_changes_outside_conversation(
    db: StateDatabase, session: str, change: Callable[[StateDatabase], Any]
) -> None:
    append_text(db, "a")
    before = db.get_revision(session)
    change(db)
    assert db.get_revision(session) == before


@pytest.mark.requirement("messages:revision")
def test_revision_includes_foreign_rows(
    db: StateDatabase, session: str, foreign: ForeignWriter
) -> None:
    (first,) = append_text(db, "a")
    foreign.insert_row("messages", session_id="s", role="user", content="b", timestamp=1)
    assert db.get_revision(session) == Revision(first + 1, 2, 0, 0, None)
    foreign.update_rows("messages", {"content": "b"}, active=0)
    assert db.get_revision(session) == Revision(first + 1, 1, 0, 0, None)
    foreign.delete_rows("messages", {"content": "b"})
    assert db.append_message(session, "user", "c").before == Revision(first, 1, 0, 0, None)

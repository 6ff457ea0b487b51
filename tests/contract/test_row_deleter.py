"""Deletion of exactly the rows of an image."""

from __future__ import annotations

import pytest

from session_core import Changed, InvalidInput, NotFound, StateDatabase
from session_core.types import PutResult, Revision
from tests.contract.engines import ForeignWriter
from tests.contract.test_images import fill_session, read_all_messages


def test_remove_messages_keeps_remaining_messages(db: StateDatabase) -> None:
    ids = fill_session(db)
    db.rewind_to_message("s", ids[3])
    row, images = db.get_session("s"), read_all_messages(db)
    after = db.rows.remove_messages({"s": ([ids[0], ids[4]], db.get_revision("s"))})
    assert after == {"s": db.get_revision("s")}
    assert after["s"]._replace(ended_at=None) == Revision(ids[3], 2, 0, 1, None)
    assert db.get_session("s") == row
    assert [one["id"] for one in db.get_messages("s", include_inactive=True)] == ids[1:4]
    assert db.admin.check_integrity(deep=True) == []
    assert db.rows.put_images([images]) == PutResult(inserted=2, present=3)
    assert db.get_session("s") == row
    assert read_all_messages(db) == images
    assert db.admin.check_integrity(deep=True) == []


def test_remove_messages_requires_expected_revision(
    db: StateDatabase, other: StateDatabase
) -> None:
    ids, others = fill_session(db), fill_session(db, "t")
    old = db.get_revision("t")
    other.append_message("t", "user", "later")
    with pytest.raises(Changed):
        db.rows.remove_messages({"s": (ids, db.get_revision("s")), "t": (others, old)})
    with pytest.raises(Changed):
        db.rows.remove_messages({"s": ([*ids, others[0]], db.get_revision("s"))})
    with pytest.raises(NotFound):
        db.rows.remove_messages({"nobody": ([], old)})
    with pytest.raises(InvalidInput):
        db.rows.remove_messages({"s": (["x"], db.get_revision("s"))})  # type: ignore[list-item]
    assert (db.message_count("s"), db.message_count("t")) == (5, 6)


@pytest.mark.requirement("maintenance:images")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "after another change"])
@pytest.mark.parametrize("by", ["itself", "another"])
def test_remove_rows_refuses_changed_message(
    db: StateDatabase, other: StateDatabase, by: str, late: bool
) -> None:
    ids = fill_session(db)
    if late:
        other.create_session("later", "cli")
        db.create_session("latest", "cli")
    texts = read_all_messages(db)
    who = db if by == "itself" else other
    who.rows.change_row("messages", {"id": ids[2]}, {}, {"content": "edited"})
    with pytest.raises(Changed):
        db.rows.remove_messages({"s": (ids, db.get_revision("s"))}, [texts])
    assert db.message_count("s") == 5
    db.rows.remove_messages({"s": (ids, db.get_revision("s"))}, [read_all_messages(db)])
    assert db.message_count("s") == 0


def test_remove_rows_refuses_message_changed_in_transaction(
    db: StateDatabase,
) -> None:
    ids = fill_session(db)
    with db.transaction():
        texts = read_all_messages(db)
        db.rows.change_row("messages", {"id": ids[2]}, {}, {"content": "edited"})
        with pytest.raises(Changed):
            db.rows.remove_messages({"s": (ids, db.get_revision("s"))}, [texts])
    assert db.message_count("s") == 5


@pytest.mark.requirement("maintenance:images")
def test_remove_rows_refuses_incomplete_session_images(
    db: StateDatabase, other: StateDatabase
) -> None:
    ids = fill_session(db)
    rows = db.rows.read_session_images("s")
    other.record_auxiliary_usage("s", "vision", input_tokens=7)
    if db.rows.read_session_images("s") == rows:
        return  # a home without this table
    with db.transaction():
        db.rows.remove_messages({"s": (ids, db.get_revision("s"))})
        with pytest.raises(Changed):
            db.rows.remove_rows(rows)
        db.rows.remove_rows(db.rows.read_session_images("s"))
    assert db.rows.read_session_images("s") == []


@pytest.mark.requirement("maintenance:images")
def test_remove_rows_refuses_changed_row(db: StateDatabase) -> None:
    fill_session(db)
    rows, texts = db.rows.read_session_images("s"), read_all_messages(db)
    db.set_session_title("s", "Later")
    with pytest.raises(Changed):
        db.rows.remove_rows([*rows, texts])
    with pytest.raises(Changed):
        db.rows.remove_rows(db.rows.read_session_images("s"))  # its messages are still there
    assert db.message_count("s") == 5
    db.rows.remove_rows([*db.rows.read_session_images("s"), texts])
    assert db.rows.read_session_images("s") == []
    with pytest.raises(Changed):
        db.rows.remove_rows([texts])


def test_remove_messages_refuses_changed_images(db: StateDatabase, foreign: ForeignWriter) -> None:
    first, *_ = fill_session(db)
    images = read_all_messages(db)
    foreign.update_rows("messages", {"id": first}, content="edited")
    with pytest.raises(Changed):
        db.rows.remove_rows([images])
    db.rows.remove_rows([read_all_messages(db)])
    assert db.message_count("s") == 0
    assert db.admin.check_integrity(deep=True) == []


def test_remove_rows_refuses_parent_with_child(db: StateDatabase) -> None:
    fill_session(db)
    db.create_session("child", "cli", parent_session_id="s")
    images = db.rows.read_session_images("s")
    texts = read_all_messages(db)
    with pytest.raises(Changed):
        db.rows.remove_rows([texts, *images])
    db.rows.change_row(
        "sessions", {"id": "child"}, {"parent_session_id": "s"}, {"parent_session_id": None}
    )
    db.rows.remove_rows([texts, *images])
    assert db.rows.put_images([texts, *images]).refused == ()
    db.rows.change_row(
        "sessions", {"id": "child"}, {"parent_session_id": None}, {"parent_session_id": "s"}
    )
    assert [child["id"] for child in db.list_children("s")] == ["child"]


def test_append_creates_removed_session_again(db: StateDatabase) -> None:
    ids = db.append_messages("s", [{"role": "user", "content": "a"}], create={"source": "cli"}).ids
    db.rows.remove_messages({"s": (list(ids), db.get_revision("s"))})
    db.rows.remove_rows(db.rows.read_session_images("s"))
    again = db.append_messages("s", [{"role": "user", "content": "b"}], create={"source": "cli"})
    assert again.created
    assert db.get_revision("s").live == 1

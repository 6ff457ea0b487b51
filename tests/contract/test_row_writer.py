"""Restoring of row images: inserted, refused, or present already."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import InvalidInput, StateDatabase
from session_core.types import PutResult, RowImages
from tests.contract.test_images import fill_session, read_all_messages, remove_session

NOTHING = PutResult()


@pytest.mark.requirement("maintenance:images")
def test_put_images_restores_removed_rows(db: StateDatabase) -> None:
    fill_session(db)
    fill_session(db, "other")
    before = (
        db.get_session("s"),
        db.get_messages("s"),
        db.admin.get_model_usage("s"),
        db.get_revision("s"),
    )
    removed = remove_session(db)
    assert (db.get_session("s"), db.get_messages("s"), db.admin.get_model_usage("s")) == (
        None,
        [],
        [],
    )
    assert [hit.session_id for hit in db.search("needle").hits] == ["other"]
    report = db.rows.put_images(removed)
    assert report == PutResult(inserted=sum(len(image.rows) for image in removed))
    after = (
        db.get_session("s"),
        db.get_messages("s"),
        db.admin.get_model_usage("s"),
        db.get_revision("s"),
    )
    assert after == before
    for mode in ("words", "substring"):
        hits = db.search("needle", mode=mode, per="message").hits  # type: ignore[arg-type]
        assert {hit.session_id for hit in hits} == {"s", "other"}
        assert len(hits) == 10
    assert db.admin.check_integrity(deep=True) == []


def test_put_images_reports_present_rows(db: StateDatabase) -> None:
    fill_session(db)
    images = [*db.rows.read_session_images("s"), read_all_messages(db)]
    count = sum(len(image.rows) for image in images)
    assert db.rows.put_images(images) == PutResult(present=count)
    assert db.rows.put_images([]) == NOTHING


@pytest.mark.requirement("maintenance:images")
def test_put_images_never_overwrites_reused_id(db: StateDatabase) -> None:
    fill_session(db)
    removed = remove_session(db)
    db.create_session("s", "tui")
    report = db.rows.put_images([one for one in removed if one.table == "sessions"])
    assert [(one.table, one.key) for one in report.refused] == [("sessions", ("s",))]
    assert (db.get_session("s") or {})["source"] == "tui"


@pytest.mark.requirement("maintenance:images")
def test_put_images_omits_taken_title(db: StateDatabase) -> None:
    fill_session(db)
    db.set_session_title("s", "Trip")
    removed = remove_session(db)
    db.create_session("later", "cli")
    db.set_session_title("later", "Trip")
    report = db.rows.put_images(removed)
    assert [(one.key, one.column) for one in report.emptied] == [(("s",), "title")]
    assert report.refused == ()
    assert db.get_session_title("s") is None
    assert db.get_session_by_title("Trip") == db.get_session("later")


def test_put_images_omits_missing_parent(db: StateDatabase) -> None:
    db.create_session("parent", "cli")
    fill_session(db)
    db.rows.change_row("sessions", {"id": "s"}, {}, {"parent_session_id": "parent"})
    removed = remove_session(db)
    db.delete_session("parent")
    report = db.rows.put_images(removed)
    assert [(one.key, one.column) for one in report.emptied] == [(("s",), "parent_session_id")]
    assert db.get_link_kind("s") is None
    assert db.message_count("s") == 5


def test_put_images_refuses_messages_without_session(db: StateDatabase) -> None:
    fill_session(db)
    texts = remove_session(db)[0]
    report = db.rows.put_images([texts])
    assert (report.inserted, len(report.refused)) == (0, 5)
    assert db.message_count() == 0
    assert db.admin.check_integrity(deep=True) == []


def test_put_images_restores_parents_in_any_order(db: StateDatabase) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        db.create_session(name, "cli", parent_session_id=parent)
    db.rows.change_row("sessions", {"id": "a"}, {}, {"parent_session_id": "c"})  # a circle
    images = [one for name in "abc" for one in db.rows.read_session_images(name)]
    for name in "abc":
        parent = (db.get_session(name) or {})["parent_session_id"]
        given = {"parent_session_id": parent}
        db.rows.change_row("sessions", {"id": name}, given, {"parent_session_id": None})
    db.rows.remove_rows(one for name in "abc" for one in db.rows.read_session_images(name))
    assert db.rows.put_images(images) == PutResult(inserted=3)
    assert [one for name in "abc" for one in db.rows.read_session_images(name)] == images


def test_list_shows_sessions_restored_from_images(db: StateDatabase, other: StateDatabase) -> None:
    ids = fill_session(db)
    fill_session(db, "newer")
    texts = read_all_messages(db)
    db.rows.remove_messages({"s": (ids, db.get_revision("s"))})
    other.append_message("newer", "user", "now")
    assert [line.id for line in other.list_sessions(limit=9).items] == ["newer", "s"]
    shown = other.list_sessions(limit=9).items[-1].last_active_at
    db.rows.put_images([texts])
    assert other.list_sessions(limit=9).items[-1].last_active_at > shown


def make_image(
    *row: Any, columns: Any = ("id", "session_id"), table: Any = "messages"
) -> list[RowImages]:
    return [RowImages(table, columns, (row,))]


@pytest.mark.parametrize(
    "given",
    [
        [1],
        [("sessions", (), ())],
        "x",
        5,
        make_image("s", columns=("session_id",)),
        make_image(99, columns=("id",)),
        make_image(99, 98, "s", columns=("id", "id", "session_id")),
        make_image(99),
        make_image("x", "s"),
        make_image(None, "s"),
        make_image("s", columns=("source",), table="sessions"),
        make_image(99, "s", table=5),
        make_image(99, "s", columns=5),
        [RowImages("messages", ("id", "session_id"), 5)],  # type: ignore[arg-type]
        [RowImages("messages", ("id", "session_id"), (5,))],  # type: ignore[arg-type]
    ],
)
def test_put_images_rejects_invalid_images(db: StateDatabase, given: Any) -> None:
    for verb in (db.rows.put_images, db.rows.remove_rows):
        with pytest.raises(InvalidInput):
            verb(given)

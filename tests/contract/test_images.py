"""Row images: reading, deleting unchanged rows, updating, and restoring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from session_core import Changed, InvalidInput, NotFound, StateDatabase
from session_core.types import RawText, RowImages
from tests.contract.engines import ForeignWriter


def fill_session(db: StateDatabase, session_id: str = "s", messages: int = 5) -> list[int]:
    db.create_session(session_id, "cli", model="m", started_at=5.0)
    rows = [{"role": "user", "content": f"needle {n} of {session_id}"} for n in range(messages)]
    db.append_messages(session_id, rows)
    db.update_token_counts(session_id, model="m", input_tokens=5)
    return [row["id"] for row in db.get_messages(session_id)]


def read_all_messages(db: StateDatabase, session_id: str = "s") -> RowImages:
    return db.rows.read_message_images(session_id, 0, 1_000_000)[0]


def remove_session(db: StateDatabase, session_id: str = "s") -> list[RowImages]:
    """Remove a session and all its rows, and return the images."""
    pages, rest = read_all_messages(db, session_id), db.rows.read_session_images(session_id)
    ids = [row[pages.columns.index("id")] for row in pages.rows]
    with db.transaction():
        db.rows.remove_messages({session_id: (ids, db.get_revision(session_id))})
        db.rows.remove_rows(rest)
    return [pages, *rest]


def pages(db: StateDatabase, room: int) -> Iterator[RowImages]:
    after, more = 0, True
    while more:
        image, more = db.rows.read_message_images("s", after, room)
        yield image
        after = image.rows[-1][image.columns.index("id")]


@pytest.mark.parametrize("room", [0, 1, 1000, 100_000])
def test_message_images_return_ordered_pages(db: StateDatabase, room: int) -> None:
    ids = fill_session(db, messages=30)
    fill_session(db, "other")
    found = list(pages(db, room))
    place = found[0].columns.index("id")
    assert [row[place] for image in found for row in image.rows] == ids
    assert len(found) == {0: 30, 1: 30, 1000: 6, 100_000: 1}[room]
    assert db.rows.read_message_images("s", ids[-1], 1) == (
        RowImages("messages", found[0].columns, ()),
        False,
    )


def test_change_row_requires_unchanged_columns(db: StateDatabase) -> None:
    fill_session(db)
    key = {"id": "s"}
    db.rows.change_row("sessions", key, {"title": None, "ended_at": None}, {"ended_at": 7.5})
    assert db.get_revision("s").ended_at == 7.5
    for before in ({"ended_at": None}, {"started_at": 5}, {"title": ""}):
        with pytest.raises(Changed):
            db.rows.change_row("sessions", key, before, {"title": "x"})
    with pytest.raises(Changed):
        db.rows.change_row("sessions", {"id": "nobody"}, {}, {"title": "x"})
    for table, columns in (("sessions", {"no_such": 1}), ("no_such", {})):
        with pytest.raises(InvalidInput):
            db.rows.change_row(table, key, {}, columns)
    assert db.get_session_title("s") is None


def test_search_finds_changed_message_by_new_text(db: StateDatabase) -> None:
    first, *_ = fill_session(db)
    text = "needle 0 of s"
    db.rows.change_row("messages", {"id": first}, {"content": text}, {"content": "haystack"})
    assert [hit.message_id for hit in db.search("haystack", per="message").hits] == [first]
    assert len(db.search("needle", per="message").hits) == 4
    assert db.admin.check_integrity(deep=True) == []


def test_row_images_select_by_values(db: StateDatabase) -> None:
    fill_session(db)
    (image,) = [one for one in db.rows.read_session_images("s") if one.table == "sessions"]
    assert db.rows.read_row_images("sessions", {"source": "cli", "title": None}) == image
    assert db.rows.read_row_images("sessions", {"source": "tui"}).rows == ()
    assert db.rows.read_row_images("no_such_table", {"x": 1}) == RowImages("no_such_table", (), ())
    with pytest.raises(InvalidInput):
        db.rows.read_row_images("sessions", {"no_such": 1})


def test_table_columns_are_listed_without_rows(db: StateDatabase) -> None:
    columns = db.rows.list_columns("sessions")
    (image,) = [one for one in fill_images(db) if one.table == "sessions"]
    assert db.rows.list_columns("sessions") == columns == image.columns
    assert db.rows.list_columns("no_such_table") == ()
    with pytest.raises(InvalidInput):
        db.rows.list_columns(None)  # type: ignore[arg-type]


def fill_images(db: StateDatabase) -> list[RowImages]:
    fill_session(db)
    return db.rows.read_session_images("s")


def test_images_survive_packing() -> None:
    rows = ((RawText(b"\xff"), 1, b"x", None), ("text", 1.5, {}, ""))
    image = RowImages("t", ("a", "b", "c", "d"), rows[:1], shared=True)
    assert RowImages.unpack(image.pack()) == image


@pytest.mark.requirement("maintenance:merging")
def test_index_merge_finishes_without_changing_results(db: StateDatabase) -> None:
    for number in range(30):
        fill_session(db, f"s{number}", 3)
    db.delete_sessions([f"s{number}" for number in range(10)])
    before = db.search("needle", per="message", limit=100).hits
    while db.admin.optimize_step():
        pass
    assert not db.admin.optimize_step()
    assert db.search("needle", per="message", limit=100).hits == before
    assert db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("maintenance:merging")
@pytest.mark.needs("own file")
def test_vacuum_changes_only_file_size(db: StateDatabase) -> None:
    for number in range(20):
        fill_session(db, f"s{number}", 30)
    db.delete_sessions([f"s{number}" for number in range(19)])
    before = db.get_session("s19"), db.get_messages("s19"), db.search("needle").hits
    won = db.admin.vacuum()
    assert won.after_bytes < won.before_bytes
    assert db.admin.measure_sizes().free == 0
    assert db.admin.measure_sizes().db + db.admin.measure_sizes().wal == won.after_bytes
    assert (db.get_session("s19"), db.get_messages("s19"), db.search("needle").hits) == before
    assert db.append_message("s19", "user", "goes on")
    assert db.admin.check_integrity(deep=True) == []


def test_vacuum_inside_transaction_is_refused(db: StateDatabase) -> None:
    fill_session(db)
    with db.transaction(), pytest.raises(InvalidInput):
        db.admin.vacuum()


def test_vacuum_of_missing_home_reclaims_no_bytes(db: StateDatabase, home_path: Any) -> None:
    there = (home_path / "state.db").exists()
    while db.admin.optimize_step():
        pass
    db.admin.vacuum()
    assert (home_path / "state.db").exists() == there


@pytest.mark.requirement("maintenance:images")
def test_unlinked_transaction_restores_orphaned_rows(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    fill_session(db)
    fill_session(db, "child")
    foreign.delete_rows("sessions", {"id": "s"})
    foreign.update_rows("sessions", {"id": "child"}, parent_session_id="nobody")
    orphans = [*db.rows.read_session_images("s"), read_all_messages(db)]
    db.rows.remove_rows(orphans)
    images = orphans + remove_session(db, "child")
    with db.transaction(linked=False):
        report = db.rows.put_images(images)
    assert (report.refused, report.emptied) == ((), ())
    assert [*db.rows.read_session_images("s"), read_all_messages(db)] == orphans
    assert (db.get_session("child") or {})["parent_session_id"] == "nobody"
    with pytest.raises(NotFound):
        db.create_session("later", "cli", parent_session_id="nobody")


def test_nested_unlinked_transaction_stays_linked(db: StateDatabase) -> None:
    with db.transaction():
        db.create_session("s", "cli")
        with pytest.raises(InvalidInput), db.transaction(linked=False):
            pass
    with db.transaction(linked=False), db.transaction():
        db.append_message("s", "user", "x")
    assert db.message_count("s") == 1

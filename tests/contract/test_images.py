"""Row images: reading, deleting unchanged rows, updating, and restoring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from session_core import Changed, InvalidInput, NotFound, StateDatabase
from session_core.types import PutResult, RawText, Revision, RowImages
from tests.contract.engines import ForeignWriter

NOTHING = PutResult()


def fill_session(db: StateDatabase, session_id: str = "s", messages: int = 5) -> list[int]:
    db.create_session(session_id, "cli", model="m", started_at=5.0)
    rows = [{"role": "user", "content": f"needle {n} of {session_id}"} for n in range(messages)]
    db.append_messages(session_id, rows)
    db.update_token_counts(session_id, model="m", input_tokens=5)
    return [row["id"] for row in db.get_messages(session_id)]


def read_all_messages(db: StateDatabase, session_id: str = "s") -> RowImages:
    return db.rows.read_message_images(session_id, 0, 1_000_000)[0]


def remove_session(db: StateDatabase, session_id: str = "s") -> list[RowImages]:
    """Remove a session and all its rows; return the images."""
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
        return  # a home that has no such table
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

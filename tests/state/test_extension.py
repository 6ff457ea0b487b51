"""Search indexes that this process cannot write, and the checks before an extension is loaded."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from session_core import _sqlite3
from session_core.errors import Denied, NotFound, Unsupported
from session_core.state.sqlite import extension
from session_core.state.sqlite.session_db import SessionDB
from session_core.types import BlockedIndex
from tests.cjk import INDEX, add_cjk_index
from tests.homes import (
    SCHEMAS,
    add_session,
    connect,
    fill_database,
    make_hermes_database,
    make_own_database,
)
from tests.thorough import take_main_kinds

FULL = "fill_0_00001"
HELLO = [{"role": "user", "content": "hello"}]
BLOCKED = BlockedIndex(INDEX, "the tokenizer cjk_unicode61", ("messages",))


@pytest.fixture(params=take_main_kinds((16, 22, 23, 26, 30)))
def path(request, tmp_path) -> Path:
    """A filled Hermes database with the CJK index, whose tokenizer is not loaded."""
    path = tmp_path / "home" / "state.db"
    make_hermes_database(path, request.param)
    fill_database(path)
    with connect(path) as connection:
        old = {"started_at": 1.0, "ended_at": 2.0, "end_reason": "tui_close"}
        add_session(connection, "ghost", source="tui", **old)
        add_session(connection, "parent", ended_at=2.0, end_reason="compression")
        add_session(connection, "orphan", started_at=1.0, parent_session_id="parent")
    add_cjk_index(path)
    return path


@pytest.fixture
def db(path):
    with SessionDB(path) as opened:
        yield opened


@pytest.fixture
def library(tmp_path) -> Path:
    """A file in place of the extension, writable only by its user."""
    library = tmp_path / "home" / extension.EXTENSION_PATH
    library.parent.mkdir(parents=True, mode=0o755)
    library.write_bytes(b"not a library")
    library.chmod(0o644)
    return library


def load_extension_of(library: Path) -> None:
    with closing(_sqlite3.connect("file::memory:", busy_timeout_s=0)) as connection:
        extension.load_extension(connection, library.parent.parent)


def test_blocked_index_is_listed(db):
    assert db.admin.list_blocked_indexes() == [BLOCKED]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_usual_home_has_no_blocked_index(schema, tmp_path):
    make_hermes_database(tmp_path / "state.db", schema)
    with SessionDB(tmp_path / "state.db") as db:
        assert db.admin.list_blocked_indexes() == []
        db.rows.check_rows_writable(["messages", "sessions"])


def test_own_home_has_no_blocked_index(tmp_path):
    make_own_database(tmp_path / "state.db")
    with SessionDB(tmp_path / "state.db", load_extension=True) as db:
        assert db.admin.list_blocked_indexes() == []


def test_blocked_index_added_later_is_listed(tmp_path):
    path = tmp_path / "state.db"
    make_hermes_database(path, 30)
    with SessionDB(path) as db:
        assert db.admin.list_blocked_indexes() == []
        add_cjk_index(path)
        assert db.admin.list_blocked_indexes() == [BLOCKED]


def test_check_refuses_only_tables_of_the_index(db):
    db.rows.check_rows_writable(["sessions", "gateway_routing"])
    with pytest.raises(Unsupported, match="messages_fts_cjk, which needs the tokenizer"):
        db.rows.check_rows_writable(["messages"])


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db.append_message(FULL, "user", "hello"),
        lambda db: db.append_messages("new", HELLO, create={"source": "cli"}),
        lambda db: db.delete_session(FULL),
        lambda db: db.replace_messages(FULL, HELLO),
    ],
    ids=["append", "append_many", "delete", "replace"],
)
def test_direct_change_is_refused_with_choices(change, db, path):
    before = read_contents(path)
    with pytest.raises(Unsupported) as refusal:
        change(db)
    assert read_contents(path) == before
    text = str(refusal.value)
    assert "cjk_unicode61" in text
    assert "--load-extension" in text
    assert "load_extension=True" in text
    assert "Hermes" in text


def test_unrelated_methods_work_beside_blocked_index(db, path):
    before = read_schema(path)
    first = db.list_sessions(limit=50).items[0].id
    assert db.search("deploy").hits
    assert db.get_messages(first)
    assert db.set_session_title(first, "Another title")
    db.set_session_archived(first, archived=True)
    db.end_session(first, "cli_close")
    db.reopen_session(first)
    db.update_token_counts(first, input_tokens=3)
    db.set_meta("a", "b")
    assert db.finalize_orphaned_compression_sessions() >= 0
    db.prune_empty_ghost_sessions()
    assert db.get_session("ghost") is None
    user = next(row for row in db.get_messages(first) if row["role"] == "user")
    db.rewind_to_message(first, user["id"])
    db.restore_rewound(first, user["id"])
    while db.admin.optimize_step():
        pass
    db.admin.vacuum()
    assert db.admin.read_health_facts().orphans == ()
    assert read_schema(path) == before


def test_sizes_count_blocked_index_as_index(db):
    for exact in (False, True):
        sizes = db.admin.measure_sizes(exact=exact)
        assert sizes.tables[INDEX] >= 4096
        assert not any(name.startswith(f"{INDEX}_") for name in sizes.tables)
        others = sum(size for name, size in sizes.tables.items() if "fts" in name)
        assert sizes.index == others


def test_deep_check_finds_no_damage(db):
    codes = {finding.code for finding in db.admin.check_integrity(deep=True)}
    assert codes <= {"search_index_unchecked"}


def test_safe_library_passes_the_checks(library):
    with pytest.raises(Unsupported, match=r"built without extension loading|cannot be loaded"):
        load_extension_of(library)


def test_extension_loading_is_off_afterwards(library):
    with closing(_sqlite3.connect("file::memory:", busy_timeout_s=0)) as connection:
        with pytest.raises(Unsupported):
            extension.load_extension(connection, library.parent.parent)
        with pytest.raises(
            _sqlite3.load_library().OperationalError, match=r"not authorized|no such func"
        ):
            connection.execute("SELECT load_extension(?)", (str(library),))


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_library_writable_by_others_is_refused(library, mode):
    library.chmod(mode)
    with pytest.raises(Denied, match=r"libfts5_cjk\.so can be written by other users"):
        load_extension_of(library)


@pytest.mark.parametrize("up", [0, 1, 2])
def test_folder_writable_by_others_is_refused(library, up):
    folder = library.parents[up]
    mode = folder.stat().st_mode
    folder.chmod(0o775)
    try:
        with pytest.raises(Denied, match=f"{folder.name} can be written by other users"):
            load_extension_of(library)
    finally:
        folder.chmod(mode)


def test_library_of_another_user_is_refused(library, monkeypatch):
    if os.geteuid() == 0:
        os.chown(library, 65534, -1)
    else:
        user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(Denied, match="belongs to another user"):
        load_extension_of(library)


def test_linked_library_is_refused(library):
    library.rename(library.with_name("real.so"))
    library.symlink_to("real.so")
    with pytest.raises(Denied, match=r"libfts5_cjk\.so is (a link|not a regular file)"):
        load_extension_of(library)


def test_linked_library_folder_is_refused(library):
    library.parent.rename(library.parents[1] / "real")
    library.parent.symlink_to("real")
    with pytest.raises(Denied, match="lib is a link"):
        load_extension_of(library)


def test_linked_home_is_resolved(library, tmp_path):
    (tmp_path / "link").symlink_to("home")
    with pytest.raises(Unsupported):
        load_extension_of(tmp_path / "link" / extension.EXTENSION_PATH)


def test_pipe_in_place_of_library_is_refused(library):
    library.unlink()
    os.mkfifo(library, 0o600)
    with pytest.raises(Denied, match="not a regular file"):
        load_extension_of(library)


def test_missing_library_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="does not exist"):
        load_extension_of(tmp_path / extension.EXTENSION_PATH)


def test_refusal_reports_why_extension_is_missing(path):
    with SessionDB(path, load_extension=True) as db:
        assert db.list_sessions(limit=1).items
        with pytest.raises(Unsupported, match=r"not loaded: .*libfts5_cjk\.so does not exist"):
            db.append_message("ghost", "user", "hello")


def read_contents(path: Path) -> list[tuple[object, ...]]:
    with connect(path, "ro") as connection:
        return [
            row
            for table in ("sessions", "messages")
            for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")  # noqa: S608
        ]


def read_schema(path: Path) -> list[tuple[object, ...]]:
    with connect(path, "ro") as connection:
        cursor = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
        return sorted(cursor, key=repr)

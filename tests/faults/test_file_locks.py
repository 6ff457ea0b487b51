"""No reading call of ours drops a lock that another connection of the same process has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from session_core import processes
from session_core.errors import Unsupported
from session_core.state.merged_search import LAST_MS, MergedSearch
from session_core.state.sqlite.session_db import SessionDB
from session_core.types import SessionFilter
from tests.faults import state, template
from tests.faults.mutations import READING_METHODS, ROUTE_KEY

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the locks of a file"),
]

Locks = frozenset[tuple[str, ...]]


def _read_in_snapshot(db: SessionDB) -> None:
    with db.snapshot():
        db.get_session("chat")
        db.get_session("done")


def _read_state(db: SessionDB, name: str, *owner: str) -> None:
    with suppress(Unsupported):  # in a Hermes home
        getattr(db.state, name)(*owner)


def _search_in_snapshot(db: SessionDB) -> None:
    with db.snapshot():
        search = db.admin.open_search("needle", moment=2e9)
        MergedSearch([search], "needle", newest_ms=LAST_MS).read_page(None, 5)


READING_CALLS: dict[str, Callable[[SessionDB], object]] = {
    "kind": lambda db: db.kind,
    "path": lambda db: db.path,
    "admin.get_home_id": lambda db: db.admin.get_home_id(),
    "admin.list_blocked_indexes": lambda db: db.admin.list_blocked_indexes(),
    "rows.list_columns": lambda db: db.rows.list_columns("messages"),
    "rows.check_rows_writable": lambda db: db.rows.check_rows_writable(["messages"]),
    "admin.immutable": lambda db: db.admin.immutable,
    "read_only": lambda db: db.read_only,
    "get_meta": lambda db: db.get_meta("key"),
    "get_session": lambda db: db.get_session("chat"),
    "resolve_session_id": lambda db: db.resolve_session_id("cha"),
    "admin.get_model_usage": lambda db: db.admin.get_model_usage("chat"),
    "get_revision": lambda db: db.get_revision("chat"),
    "get_session_title": lambda db: db.get_session_title("chat"),
    "get_session_by_title": lambda db: db.get_session_by_title("Trip"),
    "resolve_session_by_title": lambda db: db.resolve_session_by_title("Trip"),
    "sdk.get_sessions": lambda db: db.sdk.get_sessions(["chat"]),
    "sdk.find_platform_sessions": lambda db: db.sdk.find_platform_sessions("cli", "7"),
    "sdk.find_platform_messages": lambda db: db.sdk.find_platform_messages("chat", ["7"]),
    "sdk.read_tip_payloads": lambda db: db.sdk.read_tip_payloads("chat", 2),
    "sdk.list_payloads": lambda db: db.sdk.list_payloads("chat", 2),
    "sdk.session_count": lambda db: db.sdk.session_count(),
    "sdk.distinct_session_cwds": lambda db: db.sdk.distinct_session_cwds(),
    "sdk.resolve_resume_session_id": lambda db: db.sdk.resolve_resume_session_id("root"),
    "sdk.has_archived_messages": lambda db: db.sdk.has_archived_messages("chat"),
    "sdk.list_recent_user_messages": lambda db: db.sdk.list_recent_user_messages("chat"),
    "admin.get_ledger_tables": lambda db: db.admin.get_ledger_tables(),
    "state.read_session_state": lambda db: _read_state(db, "read_session_state", "chat"),
    "state.read_user_state": lambda db: _read_state(db, "read_user_state", "app", "user"),
    "state.read_app_state": lambda db: _read_state(db, "read_app_state", "app"),
    "meta.get_value": lambda db: db.meta.get_value("key"),
    "meta.list_values": lambda db: db.meta.list_values(),
    "admin.get_capabilities": lambda db: db.admin.get_capabilities(),
    "admin.get_clock_offset": lambda db: db.admin.get_clock_offset(),
    "get_next_title_in_lineage": lambda db: db.get_next_title_in_lineage("Trip"),
    "get_message": lambda db: db.get_message(1),
    "find_messages": lambda db: db.find_messages([1]),
    "get_messages": lambda db: db.get_messages("chat"),
    "get_messages_as_conversation": lambda db: db.get_messages_as_conversation("chat"),
    "read_window": lambda db: db.read_window("chat"),
    "message_count": lambda db: db.message_count(),
    "has_platform_message_id": lambda db: db.has_platform_message_id("chat", "7"),
    "get_link_kind": lambda db: db.get_link_kind("tip"),
    "get_compression_tip": lambda db: db.get_compression_tip("root"),
    "get_conversation_root": lambda db: db.get_conversation_root("tip"),
    "get_compression_lineage": lambda db: db.get_compression_lineage("tip"),
    "list_children": lambda db: db.list_children("chat"),
    "list_sessions": lambda db: db.list_sessions(),
    "summarize_session": lambda db: db.summarize_session("chat"),
    "find_sessions": lambda db: db.find_sessions(SessionFilter()),
    "search": lambda db: db.search("needle"),
    "admin.open_search": _search_in_snapshot,
    "admin.find_drifted_sessions": lambda db: db.admin.find_drifted_sessions(),
    "admin.check_integrity": lambda db: db.admin.check_integrity(deep=True),
    "admin.measure_sizes": lambda db: db.admin.measure_sizes(exact=True),
    "read_changes": lambda db: db.read_changes(timeout_s=0.01),
    "folder": lambda db: db.folder,
    "admin.list_holders": lambda db: db.admin.list_holders(),
    "get_compression_lock_holder": lambda db: db.get_compression_lock_holder("chat"),
    "routes.is_available": lambda db: db.routes.is_available,
    "snapshot": _read_in_snapshot,
    "in_transaction": lambda db: db.in_transaction,
    "routes.get_entry": lambda db: db.routes.get_entry(ROUTE_KEY),
    "routes.load_entries": lambda db: db.routes.load_entries(),
    "routes.dump_entries": lambda db: db.routes.dump_entries(),
    "rows.read_belongings": lambda db: db.rows.read_belongings("chat"),
    "rows.list_routing_rows": lambda db: db.rows.list_routing_rows("chat"),
    "rows.read_session_images": lambda db: db.rows.read_session_images("chat"),
    "rows.read_message_images": lambda db: db.rows.read_message_images("chat", None, 1_000),
    "rows.read_referring_images": lambda db: db.rows.read_referring_images(
        db.rows.read_session_images("chat")
    ),
    "rows.read_row_images": lambda db: db.rows.read_row_images("messages", {"session_id": "chat"}),
    "admin.list_inventory": lambda db: db.admin.list_inventory(),
    "admin.read_health_facts": lambda db: db.admin.read_health_facts(),
    "admin.list_claims": lambda db: db.admin.list_claims(),
    "admin.list_sources": lambda db: db.admin.list_sources(),
    "admin.list_folders": lambda db: db.admin.list_folders(),
    "routes.list_scopes": lambda db: db.routes.list_scopes(),
    "routes.find_latest_session": lambda db: db.routes.find_latest_session(source="telegram"),
    "close": lambda db: db.close(),
}


@pytest.mark.requirement("faults:own-locks")
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kind", ["own", "hermes"])
def test_reading_call_keeps_file_locks(tmp_path, kind, read_only):
    home = tmp_path / "home"
    template.build_home(home, kind)
    path = home / "state.db"
    with state.open_connection(path, "rw") as holder:
        holder.execute("BEGIN IMMEDIATE")
        holder.execute("INSERT INTO state_meta VALUES ('uncommitted', '')")
        expected = _list_locks(home)
        assert expected
        db = SessionDB(path, read_only=read_only)
        for name, call in READING_CALLS.items():
            call(db)
            assert (name, _list_locks(home, expected)) == (name, expected)
        holder.execute("COMMIT")


def test_listing_holders_keeps_file_locks(tmp_path):
    home = tmp_path / "home"
    template.build_home(home, "hermes")
    with state.open_connection(home / "state.db", "rw") as holder:
        holder.execute("BEGIN IMMEDIATE")
        expected = _list_locks(home)
        processes.list_holders(home / "state.db")
        assert _list_locks(home, expected) == expected


def test_every_reading_call_is_covered():
    assert set(READING_CALLS) == READING_METHODS


def _list_locks(home: Path, expected: Locks = frozenset()) -> Locks:
    """Return the locks of this process on the files of a home: kind, access, inode and range.

    The list of the system is not of one moment, so that it is read again where it is not as
    expected; a lock that was dropped does not come back.
    """
    files = {str(path.stat().st_ino) for path in home.iterdir()}
    for _ in range(5):
        kernel_locks = frozenset(_read_kernel_locks(files))
        if kernel_locks == expected:
            break
    return kernel_locks


def _read_kernel_locks(files: set[str]) -> Iterator[tuple[str, ...]]:
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, access, pid, place, first, last = line.replace("-> ", "").split()[:8]
        inode = place.rsplit(":", 1)[1]
        if pid == str(os.getpid()) and inode in files:
            yield kind, access, inode, first, last

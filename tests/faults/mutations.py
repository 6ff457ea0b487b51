"""Every public method that changes a home, with a home on which it changes data.

The sweep makes every write of `MUTATIONS` fail. A test compares them with the public methods, so
that a new method cannot be left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from session_core.errors import StorageError
from session_core.ledger.codec import pack_trash, unpack_trash
from session_core.ledger.types import TrashItem
from session_core.state.sqlite import fts, writer
from session_core.state.sqlite.session_db import SessionDB
from session_core.types import RowImages

NOW_S = 1_700_000_000.0
"""The time at which everything happens, so that two runs store the same."""

ROUTE_KEY = "agent:main:telegram:dm:42"
ROUTE_ENTRY = '{"session_key": "agent:main:telegram:dm:42", "session_id": "chat"}'

MutationAction = Callable[[SessionDB], object]


FAULTY_FILES = ("", *(f"state.db{end}" for end in ("", "-wal", "-shm", "-journal")))
"""The empty name is the home itself."""

VACUUM_FILES = tuple(f".state.db.vacuum-0.tmp{end}" for end in ("", "-journal"))
"""By way of which a vacuum goes where it would take the memory for one."""


@dataclass(frozen=True, slots=True)
class DatabaseMutation:
    """A change: the preparation of the home, and the change itself."""

    name: str
    act: MutationAction
    prepare: MutationAction | None = None
    kind: Literal["own", "hermes", "journal", "none"] = "own"
    files: tuple[str, ...] = FAULTY_FILES
    """The files below the home whose calls are made to fail."""
    in_parts: bool = False
    """Whether several callers make it, of whom one may fail for ever and another not: the calls of
    each thread are counted by themselves."""

    @property
    def method(self) -> str:
        """The called public method: the part of the name before the comma."""
        return self.name.partition(",")[0]


def open_home(home: Path) -> SessionDB:
    """Open the database of a home, at the time of all tests."""
    return SessionDB(home / "state.db", patience_s=2.0, clock=lambda: NOW_S)


def _build_message(number: int, **columns: Any) -> dict[str, Any]:
    return {"role": "user", "content": f"needle {number}", **columns}


def _append_message(db: SessionDB) -> object:
    return db.append_message("chat", "assistant", "needle one", finish_reason="stop")


def _append_messages(db: SessionDB) -> object:
    return db.append_messages("chat", [_build_message(number) for number in range(5)])


def _append_to_new_session(db: SessionDB) -> object:
    return db.append_message("fresh", "user", "needle", create={"source": "cli"})


def _archive_and_compact(db: SessionDB) -> object:
    return db.archive_and_compact("chat", [_build_message(1), _build_message(2, role="assistant")])


def _compact_messages(db: SessionDB) -> object:
    live = [row["id"] for row in db.get_messages("chat")]
    return db.rows.compact_messages("chat", live[1:4], [_build_message(1)], carry=live[4:])


def _restore_compacted(db: SessionDB) -> object:
    rows = db.get_messages("chat", include_inactive=True)
    compacted = [row["id"] for row in rows if row["compacted"]]
    stand_ins = [row["id"] for row in rows if row["active"] and row["id"] > max(compacted)]
    return db.rows.restore_compacted("chat", compacted, drop=stand_ins)


def _restore_copies(db: SessionDB) -> object:
    rows = db.get_messages("chat", include_inactive=True)
    compacted = [row["id"] for row in rows if row["compacted"]]
    stand_ins = [row["id"] for row in rows if row["active"] and row["id"] > max(compacted)]
    copies = {compacted[-1]: stand_ins[-1]}
    return db.rows.restore_compacted("chat", compacted, copies=copies, drop=stand_ins)


def _acquire_lock(db: SessionDB) -> object:
    return db.try_acquire_compression_lock("chat", "me", 10.0)


def _refresh_lock(db: SessionDB) -> object:
    return db.refresh_compression_lock("chat", "me", 300.0)


def _release_lock(db: SessionDB) -> object:
    return db.release_compression_lock("chat", "me")


def _replace_messages(db: SessionDB) -> object:
    return db.replace_messages("chat", [_build_message(number) for number in range(3)])


def _record_gateway_peer(db: SessionDB) -> object:
    """Record the chat of a session, as a gateway does."""
    return db.record_gateway_session_peer(
        "chat", source="telegram", chat_id="42", chat_type="dm", session_key="agent:main:42"
    )


def _update_token_counts(db: SessionDB) -> None:
    db.update_token_counts("chat", model="some-model", input_tokens=10, output_tokens=5)


def _append_and_checkpoint(db: SessionDB) -> object:
    """With the next change, fold the log back, as it is done after many rows."""
    writer.CHECKPOINT_ROWS = 1
    return db.append_message("chat", "user", "needle folded")


def _append_in_threads(db: SessionDB) -> None:
    """Let three threads share one commit and its checkpoint, so that no message is stored twice.

    If the commit fails, each change is tried in its own thread, and each thread with an error tries
    again.
    """
    with ThreadPoolExecutor(3) as pool:
        with db.transaction():
            waiting = []
            for number in range(3):
                waiting.append(pool.submit(db.append_message, "chat", "user", "needle shared"))
                _wait_until_queued(db, number + 1)
            writer.CHECKPOINT_ROWS = 1
        failed = [future for future in waiting if future.exception()]
    for _ in failed:
        _retry_append(db)


def _retry_append(db: SessionDB) -> None:
    try:
        db.append_message("chat", "user", "needle shared")
    except StorageError:
        db.append_message("chat", "user", "needle shared")


def _wait_until_queued(db: SessionDB, count: int) -> None:
    pause = threading.Event()
    for _ in range(4000):
        if db._store.pool.writer is not None and len(db._store.pool.writer._queue.queue) >= count:
            return
        pause.wait(0.001)
    raise AssertionError("the threads do not queue up")


def _insert_unindexed_rows(db: SessionDB) -> None:
    """Rows that the search index has not heard of, as another program leaves them."""
    db._write(
        lambda handle: handle.execute_update(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " SELECT 'done', 'user', 'needle that nobody told', 1 FROM messages LIMIT 4"
        )
    )


def _append_and_index(db: SessionDB) -> object:
    """After the next append, bring the search index up to date, as it is done after many rows."""
    fts.MAX_LAG = 12
    return db.append_message("chat", "user", "needle caught up")


def _run_transaction(db: SessionDB) -> None:
    with db.transaction():
        db.append_message("chat", "user", "needle first")
        db.end_session("chat", "cli_close")
        db.set_meta("both", "or none")


def _remove_imaged_session(db: SessionDB) -> object:
    """Delete a session with all that it has, as it was imaged."""
    pages, _ = db.rows.read_message_images("done", 0, 1_000_000)
    rest = db.rows.read_session_images("done")
    ids = [row[pages.columns.index("id")] for row in pages.rows]
    with db.transaction():
        db.rows.remove_messages({"done": (ids, db.get_revision("done"))})
        return db.rows.remove_rows(rest)


def _remove_messages(db: SessionDB) -> object:
    return db.rows.remove_messages(
        {"chat": ([_find_message_id(db, 1), _find_message_id(db, 3)], db.get_revision("chat"))}
    )


def _store_images(db: SessionDB) -> None:
    """Keep a session in the home itself, since the change is made by another process."""
    pages, _ = db.rows.read_message_images("done", 0, 1_000_000)
    kept = b"".join(
        pack_trash(
            [TrashItem("", [one.pack() for one in (pages, *db.rows.read_session_images("done"))])]
        )
    )
    _remove_imaged_session(db)
    db.set_meta("kept", kept.hex())


def _put_images(db: SessionDB) -> object:
    kept = bytes.fromhex(db.get_meta("kept") or "")
    (found,) = unpack_trash([kept])
    return db.rows.put_images([RowImages.unpack(one) for one in found.value])


def _change_row(db: SessionDB) -> object:
    before = {"title": None, "archived": 0}
    return db.rows.change_row("sessions", {"id": "chat"}, before, {"title": "Was", "archived": 1})


def _optimize_index(db: SessionDB) -> None:
    """Merge the index, and store a value that shows the end, since the content stays the same."""
    while db.admin.optimize_step():
        pass
    db.set_meta("optimized", "yes")


def _downgrade_schema(db: SessionDB) -> None:
    """Remove the tables and columns that later versions of our own schema have added."""
    for sql in (
        "DROP INDEX idx_sessions_chat",
        "DROP TABLE ms_session_state",
        "DROP TABLE ms_shared_state",
        "ALTER TABLE messages DROP COLUMN payload_json",
        "DELETE FROM state_meta WHERE key = 'mcp_sessions_schema'",
    ):
        db._write(lambda handle, sql=sql: handle.connection.execute(sql))


def _append_payload(db: SessionDB) -> object:
    return db.append_message("chat", "user", "needle", payload_json={"needle": 1})


def _pop_message(db: SessionDB) -> object:
    return db.sdk.pop_message("chat")


def _append_to_tip(db: SessionDB) -> object:
    return db.sdk.append_to_tip("chat", [{"role": "user", "content": "needle"}])


def _delete_messages(db: SessionDB) -> object:
    return db.sdk.delete_messages("chat", [_find_message_id(db, 2), _find_message_id(db, 6)])


def _update_message(db: SessionDB) -> object:
    return db.sdk.update_message(_find_message_id(db, 4), content="needle edited", tool_calls=None)


def _set_state(db: SessionDB) -> None:
    db.state.merge_session_state("chat", {"was": 1, "stays": 2})


def _change_state(db: SessionDB) -> None:
    db.state.merge_session_state("chat", {"is": [1]}, remove=["was"])


def _vacuum_database(db: SessionDB) -> None:
    db.admin.vacuum()
    db.set_meta("vacuumed", "yes")


_MUTATIONS = (
    DatabaseMutation(
        "create_session", lambda db: db.create_session("new", "cli", model="some-model")
    ),
    DatabaseMutation("update_session", lambda db: db.update_session("chat", cwd="/srv/elsewhere")),
    DatabaseMutation("append_message", _append_message),
    DatabaseMutation("append_message, hermes", _append_message, kind="hermes"),
    DatabaseMutation("append_message, creating", _append_to_new_session),
    DatabaseMutation("append_message, creating, hermes", _append_to_new_session, kind="hermes"),
    DatabaseMutation("append_message, first of a home", _append_to_new_session, kind="none"),
    DatabaseMutation("append_message, checkpoint", _append_and_checkpoint),
    DatabaseMutation("append_message, checkpoint, hermes", _append_and_checkpoint, kind="hermes"),
    DatabaseMutation(
        "append_message, index behind", _append_and_index, prepare=_insert_unindexed_rows
    ),
    DatabaseMutation("append_message, together", _append_in_threads, in_parts=True),
    DatabaseMutation("append_message, journal", _append_message, kind="journal"),
    DatabaseMutation("append_messages", _append_messages),
    DatabaseMutation("append_messages, hermes", _append_messages, kind="hermes"),
    DatabaseMutation("append_message, older schema", _append_payload, prepare=_downgrade_schema),
    DatabaseMutation("sdk.append_to_tip", _append_to_tip),
    DatabaseMutation("sdk.pop_message", _pop_message),
    DatabaseMutation("sdk.pop_message, hermes", _pop_message, kind="hermes"),
    DatabaseMutation("sdk.delete_messages", _delete_messages),
    DatabaseMutation("sdk.delete_messages, hermes", _delete_messages, kind="hermes"),
    DatabaseMutation(
        "sdk.delete_session_if_empty", lambda db: db.sdk.delete_session_if_empty("ghost")
    ),
    DatabaseMutation("sdk.update_message", _update_message),
    DatabaseMutation("sdk.update_message, hermes", _update_message, kind="hermes"),
    DatabaseMutation("state.merge_session_state", _change_state, prepare=_set_state),
    DatabaseMutation(
        "state.merge_user_state",
        lambda db: db.state.merge_user_state("app", "user", {"key": 1, "other": 2}),
    ),
    DatabaseMutation(
        "state.merge_app_state", lambda db: db.state.merge_app_state("app", {"key": 1})
    ),
    DatabaseMutation("end_session", lambda db: db.end_session("chat", "cli_close")),
    DatabaseMutation("promote_to_session_reset", lambda db: db.promote_to_session_reset("chat")),
    DatabaseMutation("reopen_session", lambda db: db.reopen_session("done")),
    DatabaseMutation("set_session_title", lambda db: db.set_session_title("chat", "A title")),
    DatabaseMutation(
        "set_session_title, from an ancestor", lambda db: db.set_session_title("tip", "Trip")
    ),
    DatabaseMutation(
        "set_auto_title_if_empty", lambda db: db.set_auto_title_if_empty("chat", "A title")
    ),
    DatabaseMutation(
        "set_session_archived", lambda db: db.set_session_archived("tip", archived=True)
    ),
    DatabaseMutation("set_expiry_finalized", lambda db: db.set_expiry_finalized("chat")),
    DatabaseMutation("record_gateway_session_peer", _record_gateway_peer),
    DatabaseMutation("update_token_counts", _update_token_counts),
    DatabaseMutation(
        "record_auxiliary_usage",
        lambda db: db.record_auxiliary_usage("chat", "vision", model="eye", input_tokens=3),
    ),
    DatabaseMutation(
        "rewind_to_message", lambda db: db.rewind_to_message("chat", _find_message_id(db, 5))
    ),
    DatabaseMutation(
        "rewind_to_message, hermes",
        lambda db: db.rewind_to_message("chat", _find_message_id(db, 5)),
        kind="hermes",
    ),
    DatabaseMutation(
        "restore_rewound", lambda db: db.restore_rewound("chat", _find_message_id(db, 1))
    ),
    DatabaseMutation("replace_messages", _replace_messages),
    DatabaseMutation("replace_messages, hermes", _replace_messages, kind="hermes"),
    DatabaseMutation("archive_and_compact", _archive_and_compact),
    DatabaseMutation("archive_and_compact, hermes", _archive_and_compact, kind="hermes"),
    DatabaseMutation("rows.compact_messages", _compact_messages),
    DatabaseMutation("rows.compact_messages, hermes", _compact_messages, kind="hermes"),
    DatabaseMutation(
        "rows.copy_messages",
        lambda db: db.rows.copy_messages("chat", [_find_message_id(db, 1)], "done"),
    ),
    DatabaseMutation("rows.restore_compacted", _restore_compacted, prepare=_compact_messages),
    DatabaseMutation(
        "rows.restore_compacted, hermes",
        _restore_compacted,
        prepare=_compact_messages,
        kind="hermes",
    ),
    DatabaseMutation("rows.restore_compacted, copies", _restore_copies, prepare=_compact_messages),
    DatabaseMutation(
        "rows.copy_session", lambda db: db.rows.copy_session("chat", "copy", without=("title",))
    ),
    DatabaseMutation(
        "rows.put_routing_row",
        lambda db: db.rows.put_routing_row(
            {**db.rows.list_routing_rows("chat")[0], "updated_at": 1.5}
        ),
    ),
    DatabaseMutation(
        "rows.put_session_fields", lambda db: db.rows.put_session_fields("chat", {"title": "Was"})
    ),
    DatabaseMutation(
        "try_acquire_compression_lock", lambda db: db.try_acquire_compression_lock("chat", "me")
    ),
    DatabaseMutation("refresh_compression_lock", _refresh_lock, prepare=_acquire_lock),
    DatabaseMutation("release_compression_lock", _release_lock, prepare=_acquire_lock),
    DatabaseMutation("clear_messages", lambda db: db.clear_messages("chat")),
    DatabaseMutation(
        "finalize_orphaned_compression_sessions",
        lambda db: db.finalize_orphaned_compression_sessions(),
    ),
    DatabaseMutation("prune_empty_ghost_sessions", lambda db: db.prune_empty_ghost_sessions()),
    DatabaseMutation("delete_session", lambda db: db.delete_session("chat")),
    DatabaseMutation("delete_session, hermes", lambda db: db.delete_session("chat"), kind="hermes"),
    DatabaseMutation("delete_sessions", lambda db: db.delete_sessions(["chat", "done"])),
    DatabaseMutation("admin.recount_session", lambda db: db.admin.recount_session("drifted")),
    DatabaseMutation("rows.remove_messages", _remove_messages),
    DatabaseMutation("rows.remove_messages, hermes", _remove_messages, kind="hermes"),
    DatabaseMutation("rows.remove_rows", _remove_imaged_session),
    DatabaseMutation("rows.remove_rows, hermes", _remove_imaged_session, kind="hermes"),
    DatabaseMutation("rows.put_images", _put_images, prepare=_store_images),
    DatabaseMutation("rows.put_images, hermes", _put_images, prepare=_store_images, kind="hermes"),
    DatabaseMutation("rows.change_row", _change_row),
    DatabaseMutation("admin.optimize_step", _optimize_index),
    DatabaseMutation("admin.optimize_step, hermes", _optimize_index, kind="hermes"),
    DatabaseMutation("admin.vacuum", _vacuum_database, files=(*FAULTY_FILES, *VACUUM_FILES)),
    DatabaseMutation(
        "admin.vacuum, hermes",
        _vacuum_database,
        kind="hermes",
        files=(*FAULTY_FILES, *VACUUM_FILES),
    ),
    DatabaseMutation("admin.vacuum, journal", _vacuum_database, kind="journal"),
    DatabaseMutation("set_meta", lambda db: db.set_meta("key", "value")),
    DatabaseMutation("delete_meta", lambda db: db.delete_meta("prepared")),
    DatabaseMutation("meta.set_value", lambda db: db.meta.set_value("key", "value")),
    DatabaseMutation(
        "meta.delete_value",
        lambda db: db.meta.delete_value("key"),
        prepare=lambda db: db.meta.set_value("key", "value"),
    ),
    DatabaseMutation(
        "meta.compare_and_set",
        lambda db: db.meta.compare_and_set("key", "value", expect=None),
        kind="hermes",
    ),
    DatabaseMutation(
        "set_meta, first of a home", lambda db: db.set_meta("key", "value"), kind="none"
    ),
    DatabaseMutation(
        "routes.save_entry",
        lambda db: db.routes.save_entry(ROUTE_KEY, '{"moved": 1}', expect=ROUTE_ENTRY),
    ),
    DatabaseMutation(
        "routes.delete_entries",
        lambda db: db.routes.delete_entries({ROUTE_KEY: ROUTE_ENTRY}),
    ),
    DatabaseMutation("transaction", _run_transaction),
    DatabaseMutation("transaction, hermes", _run_transaction, kind="hermes"),
)

DATABASE_MUTATIONS = {mutation.name: mutation for mutation in _MUTATIONS}

READING_METHODS = frozenset(
    {
        *("kind", "admin.immutable", "close", "get_meta", "get_session", "resolve_session_id"),
        *("admin.get_model_usage", "get_revision", "get_session_title", "get_session_by_title"),
        *("resolve_session_by_title", "get_next_title_in_lineage", "get_message"),
        "find_messages",
        *("get_messages", "get_messages_as_conversation", "read_window", "message_count"),
        *("has_platform_message_id", "get_link_kind", "get_compression_tip"),
        "admin.open_search",
        *("sdk.get_sessions", "sdk.find_platform_sessions", "sdk.find_platform_messages"),
        *("sdk.read_tip_payloads", "sdk.list_payloads"),
        *("sdk.session_count", "sdk.distinct_session_cwds", "sdk.resolve_resume_session_id"),
        *("sdk.has_archived_messages", "sdk.list_recent_user_messages", "admin.get_ledger_tables"),
        *("state.read_session_state", "state.read_user_state", "state.read_app_state"),
        *("meta.get_value", "meta.list_values"),
        *("get_conversation_root", "get_compression_lineage", "list_children", "list_sessions"),
        *("summarize_session", "find_sessions", "search", "admin.find_drifted_sessions"),
        *("admin.check_integrity", "admin.list_sources", "admin.list_folders"),
        *("admin.measure_sizes", "read_changes", "routes.is_available", "in_transaction", "folder"),
        *("admin.list_holders", "read_only"),
        *("routes.get_entry",),
        *("routes.load_entries", "routes.dump_entries"),
        *("get_compression_lock_holder", "rows.read_belongings", "rows.list_routing_rows"),
        *(
            "rows.read_session_images",
            "rows.read_message_images",
            "rows.read_referring_images",
            "rows.read_row_images",
        ),
        *("admin.list_inventory", "admin.read_health_facts", "admin.list_claims"),
        *("routes.list_scopes", "routes.find_latest_session"),
        *(
            "admin.list_blocked_indexes",
            "rows.list_columns",
            "rows.check_rows_writable",
            "admin.get_capabilities",
            "admin.get_clock_offset",
            "admin.get_home_id",
            "path",
            "snapshot",
        ),
    }
)
"""The public methods that change nothing."""


def _find_message_id(db: SessionDB, nth: int) -> int:
    """Return the id of the nth row of the conversation."""
    rows = db.get_messages("chat", include_inactive=True)
    return int(rows[nth - 1]["id"])

"""Every public method that changes a home, and a home on which it has something to do.

`MUTATIONS` is what the sweep fails at every write; a test compares it with the public methods, so
that a new one cannot be left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from session_core.errors import StorageError
from session_core.ledger.codec import pack, unpack
from session_core.ledger.types import Kept
from session_core.state.sqlite import fts, writer
from session_core.state.sqlite.database import SessionDB
from session_core.types import Images

NOW = 1_700_000_000.0
"""The time at which everything happens, so that two runs store the same."""

ROUTE = "agent:main:telegram:dm:42"
ENTRY = '{"session_key": "agent:main:telegram:dm:42", "session_id": "chat"}'

Act = Callable[[SessionDB], object]


FILES = ("", *(f"state.db{end}" for end in ("", "-wal", "-shm", "-journal")))
"""The empty name is the home itself."""

COPY = tuple(f".state.db.vacuum-0.tmp{end}" for end in ("", "-journal"))
"""By way of which a vacuum goes where it would take the memory for one."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change: what is done to the home first, and then the change itself."""

    name: str
    act: Act
    prepare: Act | None = None
    kind: Literal["own", "hermes", "journal", "none"] = "own"
    files: tuple[str, ...] = FILES
    """The files below the home whose calls are made to fail."""
    in_parts: bool = False
    """Whether several callers make it, of whom one may fail for ever and another not: strace counts
    the calls of each thread by itself."""

    @property
    def method(self) -> str:
        """The public method that is called: what is before the comma."""
        return self.name.partition(",")[0]


def open_home(home: Path) -> SessionDB:
    """Open the database of a home, at the time of all tests."""
    return SessionDB(home / "state.db", patience_s=2.0, clock=lambda: NOW)


def _message(number: int, **columns: Any) -> dict[str, Any]:
    return {"role": "user", "content": f"needle {number}", **columns}


def _one(db: SessionDB) -> object:
    return db.append_message("chat", "assistant", "needle one", finish_reason="stop")


def _many(db: SessionDB) -> object:
    return db.append_messages("chat", [_message(number) for number in range(5)])


def _create(db: SessionDB) -> object:
    return db.append_message("fresh", "user", "needle", create={"source": "cli"})


def _compact(db: SessionDB) -> object:
    return db.archive_and_compact("chat", [_message(1), _message(2, role="assistant")])


def _compact_some(db: SessionDB) -> object:
    live = [row["id"] for row in db.get_messages("chat")]
    return db.compact_messages("chat", live[1:4], [_message(1)], carry=live[4:])


def _restore(db: SessionDB) -> object:
    rows = db.get_messages("chat", include_inactive=True)
    compacted = [row["id"] for row in rows if row["compacted"]]
    stand_ins = [row["id"] for row in rows if row["active"] and row["id"] > max(compacted)]
    return db.restore_compacted("chat", compacted, drop=stand_ins)


def _restore_copies(db: SessionDB) -> object:
    rows = db.get_messages("chat", include_inactive=True)
    compacted = [row["id"] for row in rows if row["compacted"]]
    stand_ins = [row["id"] for row in rows if row["active"] and row["id"] > max(compacted)]
    copies = {compacted[-1]: stand_ins[-1]}
    return db.restore_compacted("chat", compacted, copies=copies, drop=stand_ins)


def _lock(db: SessionDB) -> object:
    return db.try_acquire_compression_lock("chat", "me", 10.0)


def _refresh(db: SessionDB) -> object:
    return db.refresh_compression_lock("chat", "me", 300.0)


def _release(db: SessionDB) -> object:
    return db.release_compression_lock("chat", "me")


def _replace(db: SessionDB) -> object:
    return db.replace_messages("chat", [_message(number) for number in range(3)])


def _chat(db: SessionDB) -> object:
    """A gateway tells where a session belongs."""
    return db.record_gateway_session_peer(
        "chat", source="telegram", chat_id="42", chat_type="dm", session_key="agent:main:42"
    )


def _tokens(db: SessionDB) -> None:
    db.update_token_counts("chat", model="some-model", input_tokens=10, output_tokens=5)


def _fold_back(db: SessionDB) -> object:
    """With the next change, fold the log back, as it is done after many rows."""
    writer.CHECKPOINT_ROWS = 1
    return db.append_message("chat", "user", "needle folded")


def _together(db: SessionDB) -> None:
    """Three threads share one commit, which is folded back; nothing is done twice.

    Where it fails each is tried in its own thread, and "once" is once for each of those; who is
    told of an error tries again.
    """
    with ThreadPoolExecutor(3) as pool:
        with db.transaction():
            waiting = []
            for number in range(3):
                waiting.append(pool.submit(db.append_message, "chat", "user", "needle shared"))
                _until_queued(db, number + 1)
            writer.CHECKPOINT_ROWS = 1
        failed = [future for future in waiting if future.exception()]
    for _ in failed:
        _tried_again(db)


def _tried_again(db: SessionDB) -> None:
    try:
        db.append_message("chat", "user", "needle shared")
    except StorageError:
        db.append_message("chat", "user", "needle shared")


def _until_queued(db: SessionDB, count: int) -> None:
    pause = threading.Event()
    for _ in range(4000):
        if db._open.writer is not None and len(db._open.writer._turns.queue) >= count:
            return
        pause.wait(0.001)
    raise AssertionError("the threads do not queue up")


def _behind(db: SessionDB) -> None:
    """Rows that the search index has not heard of, as another program leaves them."""
    db._write(
        lambda handle: handle.run(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " SELECT 'done', 'user', 'needle that nobody told', 1 FROM messages LIMIT 4"
        )
    )


def _catch_up(db: SessionDB) -> object:
    """After the next append, bring the search index up to date, as it is done after many rows."""
    fts.LAG = 12
    return db.append_message("chat", "user", "needle caught up")


def _in_one(db: SessionDB) -> None:
    with db.transaction():
        db.append_message("chat", "user", "needle first")
        db.end_session("chat", "cli_close")
        db.set_meta("both", "or none")


def _remove(db: SessionDB) -> object:
    """Delete a session with all that it has, as it was imaged."""
    pages, _ = db.message_images("done", 0, 1_000_000)
    rest = db.session_images("done")
    ids = [row[pages.columns.index("id")] for row in pages.rows]
    with db.transaction():
        db.remove_messages({"done": (ids, db.revision("done"))})
        return db.remove_rows(rest)


def _remove_some(db: SessionDB) -> object:
    return db.remove_messages({"chat": ([_id(db, 1), _id(db, 3)], db.revision("chat"))})


def _image(db: SessionDB) -> None:
    """Keep a session in the home itself, since the change is made by another process."""
    pages, _ = db.message_images("done", 0, 1_000_000)
    kept = b"".join(pack([Kept("", [one.pack() for one in (pages, *db.session_images("done"))])]))
    _remove(db)
    db.set_meta("kept", kept.hex())


def _put(db: SessionDB) -> object:
    kept = bytes.fromhex(db.get_meta("kept") or "")
    (found,) = unpack([kept])
    return db.put_images([Images.unpack(one) for one in found.value])


def _change_row(db: SessionDB) -> object:
    before = {"title": None, "archived": 0}
    return db.change_row("sessions", {"id": "chat"}, before, {"title": "Was", "archived": 1})


def _optimize(db: SessionDB) -> None:
    """What is stored stays as it is, so something that is stored says that it was done."""
    while db.optimize_step():
        pass
    db.set_meta("optimized", "yes")


def _vacuum(db: SessionDB) -> None:
    db.vacuum()
    db.set_meta("vacuumed", "yes")


_ALL = (
    Mutation("create_session", lambda db: db.create_session("new", "cli", model="some-model")),
    Mutation("update_session", lambda db: db.update_session("chat", cwd="/srv/elsewhere")),
    Mutation("append_message", _one),
    Mutation("append_message, hermes", _one, kind="hermes"),
    Mutation("append_message, creating", _create),
    Mutation("append_message, creating, hermes", _create, kind="hermes"),
    Mutation("append_message, first of a home", _create, kind="none"),
    Mutation("append_message, checkpoint", _fold_back),
    Mutation("append_message, checkpoint, hermes", _fold_back, kind="hermes"),
    Mutation("append_message, index behind", _catch_up, prepare=_behind),
    Mutation("append_message, together", _together, in_parts=True),
    Mutation("append_message, journal", _one, kind="journal"),
    Mutation("append_messages", _many),
    Mutation("append_messages, hermes", _many, kind="hermes"),
    Mutation("end_session", lambda db: db.end_session("chat", "cli_close")),
    Mutation("promote_to_session_reset", lambda db: db.promote_to_session_reset("chat")),
    Mutation("reopen_session", lambda db: db.reopen_session("done")),
    Mutation("set_session_title", lambda db: db.set_session_title("chat", "A title")),
    Mutation("set_session_title, from an ancestor", lambda db: db.set_session_title("tip", "Trip")),
    Mutation("set_auto_title_if_empty", lambda db: db.set_auto_title_if_empty("chat", "A title")),
    Mutation("set_session_archived", lambda db: db.set_session_archived("tip", archived=True)),
    Mutation("set_expiry_finalized", lambda db: db.set_expiry_finalized("chat")),
    Mutation("record_gateway_session_peer", _chat),
    Mutation("update_token_counts", _tokens),
    Mutation(
        "record_auxiliary_usage",
        lambda db: db.record_auxiliary_usage("chat", "vision", model="eye", input_tokens=3),
    ),
    Mutation("rewind_to_message", lambda db: db.rewind_to_message("chat", _id(db, 5))),
    Mutation(
        "rewind_to_message, hermes",
        lambda db: db.rewind_to_message("chat", _id(db, 5)),
        kind="hermes",
    ),
    Mutation("restore_rewound", lambda db: db.restore_rewound("chat", _id(db, 1))),
    Mutation("replace_messages", _replace),
    Mutation("replace_messages, hermes", _replace, kind="hermes"),
    Mutation("archive_and_compact", _compact),
    Mutation("archive_and_compact, hermes", _compact, kind="hermes"),
    Mutation("compact_messages", _compact_some),
    Mutation("compact_messages, hermes", _compact_some, kind="hermes"),
    Mutation("copy_messages", lambda db: db.copy_messages("chat", [_id(db, 1)], "done")),
    Mutation("restore_compacted", _restore, prepare=_compact_some),
    Mutation("restore_compacted, hermes", _restore, prepare=_compact_some, kind="hermes"),
    Mutation("restore_compacted, copies", _restore_copies, prepare=_compact_some),
    Mutation("copy_session", lambda db: db.copy_session("chat", "copy", without=("title",))),
    Mutation(
        "put_routing_row",
        lambda db: db.put_routing_row({**db.routing_rows("chat")[0], "updated_at": 1.5}),
    ),
    Mutation("put_session_fields", lambda db: db.put_session_fields("chat", {"title": "Was"})),
    Mutation(
        "try_acquire_compression_lock", lambda db: db.try_acquire_compression_lock("chat", "me")
    ),
    Mutation("refresh_compression_lock", _refresh, prepare=_lock),
    Mutation("release_compression_lock", _release, prepare=_lock),
    Mutation("clear_messages", lambda db: db.clear_messages("chat")),
    Mutation(
        "finalize_orphaned_compression_sessions",
        lambda db: db.finalize_orphaned_compression_sessions(),
    ),
    Mutation("prune_empty_ghost_sessions", lambda db: db.prune_empty_ghost_sessions()),
    Mutation("delete_session", lambda db: db.delete_session("chat")),
    Mutation("delete_session, hermes", lambda db: db.delete_session("chat"), kind="hermes"),
    Mutation("delete_sessions", lambda db: db.delete_sessions(["chat", "done"])),
    Mutation("recount_session", lambda db: db.recount_session("drifted")),
    Mutation("remove_messages", _remove_some),
    Mutation("remove_messages, hermes", _remove_some, kind="hermes"),
    Mutation("remove_rows", _remove),
    Mutation("remove_rows, hermes", _remove, kind="hermes"),
    Mutation("put_images", _put, prepare=_image),
    Mutation("put_images, hermes", _put, prepare=_image, kind="hermes"),
    Mutation("change_row", _change_row),
    Mutation("optimize_step", _optimize),
    Mutation("optimize_step, hermes", _optimize, kind="hermes"),
    Mutation("vacuum", _vacuum, files=(*FILES, *COPY)),
    Mutation("vacuum, hermes", _vacuum, kind="hermes", files=(*FILES, *COPY)),
    Mutation("vacuum, journal", _vacuum, kind="journal"),
    Mutation("set_meta", lambda db: db.set_meta("key", "value")),
    Mutation("delete_meta", lambda db: db.delete_meta("prepared")),
    Mutation("set_meta, first of a home", lambda db: db.set_meta("key", "value"), kind="none"),
    Mutation(
        "save_gateway_routing_entry",
        lambda db: db.save_gateway_routing_entry(ROUTE, '{"moved": 1}', expect=ENTRY),
    ),
    Mutation(
        "delete_gateway_routing_entries",
        lambda db: db.delete_gateway_routing_entries({ROUTE: ENTRY}),
    ),
    Mutation("transaction", _in_one),
    Mutation("transaction, hermes", _in_one, kind="hermes"),
)

MUTATIONS = {mutation.name: mutation for mutation in _ALL}

READING = frozenset(
    {
        *("kind", "immutable", "close", "get_meta", "get_session", "resolve_session_id"),
        *("model_usage", "revision", "get_session_title", "get_session_by_title"),
        *("resolve_session_by_title", "get_next_title_in_lineage", "get_message"),
        "find_messages",
        *("get_messages", "get_messages_as_conversation", "read_window", "message_count"),
        *("has_platform_message_id", "link_kind", "get_compression_tip"),
        *("sanitize_title",),
        *("get_conversation_root", "get_compression_lineage", "children", "list_sessions"),
        *("summarize", "find_sessions", "search", "drifted_sessions", "check_integrity"),
        *("sizes", "changes", "has_routing", "in_transaction", "folder"),
        *("holders", "read_only"),
        *("get_gateway_routing_entry",),
        *("load_gateway_routing_entries", "dump_gateway_routing_entries"),
        *("get_compression_lock_holder", "belongings", "routing_rows"),
        *("session_images", "message_images", "referring_images", "row_images"),
        *("inventory", "health_facts", "claims"),
        *("gateway_routing_scopes", "find_latest_session_for_peer"),
        *("blocked_indexes", "check_rows_writable", "home_id", "path"),
    }
)
"""The public methods that change nothing."""


def _id(db: SessionDB, nth: int) -> int:
    """Return the id of the nth row of the conversation."""
    rows = db.get_messages("chat", include_inactive=True)
    return int(rows[nth - 1]["id"])

"""Every change of the session store, with a home on which it changes data, and its repair.

The sweep of routes makes every write of `ROUTES` fail. A test compares them with the public methods
of the store, so that a new method cannot be left out.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from session_core.chats import SessionSource
from session_core.config import GatewayConfig, SessionResetPolicy
from session_core.routing.entries import SessionEntry
from session_core.routing.session_store import SessionStore
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import state
from tests.faults.mutations import NOW_S
from tests.homes import add_message, add_session, connect, make_hermes_database, make_own_database

NOW_TIME = datetime.fromtimestamp(NOW_S)  # noqa: DTZ006 -- local, as entries store it
SESSIONS_FOLDER = "sessions"
CHAT, ROTATED, OLD, ASLEEP, GONE_ON, OTHER = ("chat", "parent", "old", "asleep", "tip", "other")
"""The sessions; all but the last two are routed."""

FAULTY_FILES = (
    *("", *(f"state.db{end}" for end in ("", "-wal", "-shm", "-journal"))),
    *(f"{SESSIONS_FOLDER}{name}" for name in ("", "/sessions.json", "/.sessions.lock")),
    *(f"{SESSIONS_FOLDER}/.sessions_{number}.tmp" for number in range(4)),
)
"""The files whose calls are made to fail; the child names its temporary ones like this."""

RouteHomeKind = Literal["own", "hermes", "older", "file"]
"""A home with a table, one of Hermes with a table and without one, and a file alone."""


class RouteHome:
    """A store and its database, closed together."""

    def __init__(self, home: Path, *, later: bool = False) -> None:
        path = home / "state.db"
        self.db = SessionDB(path, patience_s=2.0, clock=lambda: NOW_S) if path.exists() else None
        now = NOW_TIME + timedelta(minutes=later)
        self.store = SessionStore(
            home / SESSIONS_FOLDER,
            config=GatewayConfig(),
            db=self.db,
            now=lambda: now,
            new_id=lambda _: "later" if later else "fresh",
        )

    def close(self) -> None:
        """Close the store, which brings its mirror up to date, and then the database."""
        try:
            self.store.close()
        finally:
            if self.db is not None:
                self.db.close()


RouteAction = Callable[[RouteHome], object]


@dataclass(frozen=True, slots=True)
class RouteMutation:
    """One change of the routes, and the sessions in which the next message may land."""

    name: str
    act: RouteAction
    lands: frozenset[str]
    kind: RouteHomeKind = "own"
    chat: str = CHAT
    in_steps: bool = False
    """Whether it has states in between, all of which must heal."""
    files: tuple[str, ...] = field(default=FAULTY_FILES, repr=False)

    @property
    def method(self) -> str:
        """The called public method: the part of the name before the comma."""
        return self.name.partition(",")[0].removeprefix("store.")


def build_source(name: str) -> SessionSource:
    """Return the chat that the session of this name was begun in."""
    return SessionSource("telegram", f"c-{name}", chat_name=f"Chat {name}", user_id=f"u-{name}")


def build_key(name: str) -> str:
    """Return the session key of that chat."""
    return f"agent:main:telegram:dm:c-{name}"


def _update_session(opened: RouteHome) -> object:
    return opened.store.update_session(build_key(CHAT), 77)


def _receive_message(opened: RouteHome) -> object:
    return opened.store.get_or_create_session(build_source(CHAT))


def _receive_first_message(opened: RouteHome) -> object:
    return opened.store.get_or_create_session(build_source("newcomer"))


def _wake_suspended_session(opened: RouteHome) -> object:
    """A message for a suspended session, which begins another one."""
    return opened.store.get_or_create_session(build_source(ASLEEP))


def _save_entry(opened: RouteHome) -> None:
    entry = opened.store.get(build_key(CHAT))
    entry.display_name = "renamed"
    opened.store.save(entry, urgent=True)


def _remove_route(opened: RouteHome) -> object:
    return opened.store.remove({build_key(CHAT): opened.store.get(build_key(CHAT))})


def _follow_continuation(opened: RouteHome) -> object:
    return opened.store.move_to_continuation(build_key(ROTATED), ROTATED, GONE_ON)


def _rotate_session(opened: RouteHome) -> None:
    """An agent compresses the session of a chat and lets its route follow, a step at a time."""
    assert opened.db is not None
    opened.db.end_session(CHAT, "compression")
    summary = [{"role": "user", "content": "needle of the summary"}]
    begun = {"source": "telegram", "parent_session_id": CHAT}
    opened.db.append_messages("continued", summary, create=begun)
    opened.store.move_to_continuation(build_key(CHAT), CHAT, "continued")


def _rotate_in_transaction(opened: RouteHome) -> None:
    """The same in one step."""
    with opened.store.transaction(build_key(CHAT)):
        _rotate_session(opened)


def _claim_expiry(opened: RouteHome) -> object:
    policy = SessionResetPolicy(mode="idle", idle_minutes=60)
    opened.store.config = GatewayConfig(default_reset_policy=policy)
    return opened.store.claim_expiry(opened.store.get(build_key(OLD)))


def _finalize_expiry(opened: RouteHome) -> object:
    _claim_expiry(opened)
    return opened.store.set_expiry_finalized(opened.store.get(build_key(OLD)))


def _begin_turn(opened: RouteHome) -> str:
    return opened.store.begin_turn(build_key(CHAT), CHAT)


def _drop_turn(opened: RouteHome) -> object:
    return opened.store.drop_turn(build_key(CHAT), _begin_turn(opened))


def _make_mutations(
    name: str, act: RouteAction, *lands: str, older: str = CHAT
) -> list[RouteMutation]:
    """Return a change in a home of our own, in Hermes homes, and in a file alone.

    Without the table, sessions change first, so the next message may complete the change (`older`).
    """
    kinds: tuple[RouteHomeKind, ...] = ("own", "hermes", "older", "file")
    labels = [f"store.{name}", *(f"store.{name}, {kind}" for kind in kinds[1:])]
    return [
        RouteMutation(label, act, frozenset({*lands, older} if kind == "older" else lands), kind)
        for label, kind in zip(labels, kinds, strict=True)
    ]


def _make_own_mutation(
    name: str, act: RouteAction, *lands: str, chat: str = CHAT, **more: Any
) -> RouteMutation:
    return RouteMutation(f"store.{name}", act, frozenset(lands), chat=chat, **more)


_RESET_NAME = "reset_session"

_MUTATIONS = (
    *_make_mutations("update_session", _update_session, CHAT),
    *_make_mutations(
        _RESET_NAME,
        lambda opened: opened.store.reset_session(build_key(CHAT)),
        CHAT,
        "fresh",
        older="later",
    ),
    *_make_mutations("remove", _remove_route, CHAT, "later"),
    _make_own_mutation("move_to_continuation", _follow_continuation, GONE_ON, chat=ROTATED),
    _make_own_mutation(
        "move_to_continuation, hermes", _follow_continuation, GONE_ON, chat=ROTATED, kind="hermes"
    ),
    _make_own_mutation(
        "move_to_continuation, older", _follow_continuation, GONE_ON, chat=ROTATED, kind="older"
    ),
    _make_own_mutation(
        "move_to_continuation, a whole rotation", _rotate_session, CHAT, "continued", in_steps=True
    ),
    _make_own_mutation(
        "move_to_continuation, a whole rotation, hermes",
        _rotate_session,
        CHAT,
        "continued",
        in_steps=True,
        kind="hermes",
    ),
    _make_own_mutation("transaction", _rotate_in_transaction, CHAT, "continued"),
    _make_own_mutation(
        "transaction, hermes", _rotate_in_transaction, CHAT, "continued", kind="hermes"
    ),
    _make_own_mutation(
        "switch_session",
        lambda opened: opened.store.switch_session(build_key(CHAT), OTHER),
        CHAT,
        OTHER,
    ),
    _make_own_mutation(
        "switch_session, hermes",
        lambda opened: opened.store.switch_session(build_key(CHAT), OTHER),
        CHAT,
        OTHER,
        kind="hermes",
    ),
    _make_own_mutation(
        "switch_session, older",
        lambda opened: opened.store.switch_session(build_key(CHAT), OTHER),
        CHAT,
        OTHER,
        kind="older",
    ),
    _make_own_mutation(
        "prune_old_entries", lambda opened: opened.store.prune_old_entries(90), OLD, chat=OLD
    ),
    _make_own_mutation(
        "prune_old_entries, file",
        lambda opened: opened.store.prune_old_entries(90),
        OLD,
        "later",
        chat=OLD,
        kind="file",
    ),
    _make_own_mutation("get_or_create_session", _receive_message, CHAT),
    _make_own_mutation(
        "get_or_create_session, first of a chat",
        _receive_first_message,
        "fresh",
        "later",
        chat="newcomer",
    ),
    _make_own_mutation(
        "get_or_create_session, suspended", _wake_suspended_session, "fresh", "later", chat=ASLEEP
    ),
    _make_own_mutation(
        "get_or_create_session, suspended, older",
        _wake_suspended_session,
        "fresh",
        "later",
        chat=ASLEEP,
        kind="older",
    ),
    _make_own_mutation(
        "end_turn", lambda opened: opened.store.end_turn(build_key(CHAT), CHAT, 77), CHAT
    ),
    _make_own_mutation("save", _save_entry, CHAT),
    _make_own_mutation(
        "suspend_session",
        lambda opened: opened.store.suspend_session(build_key(CHAT)),
        CHAT,
        "later",
    ),
    _make_own_mutation(
        "mark_resume_pending",
        lambda opened: opened.store.mark_resume_pending(build_key(CHAT)),
        CHAT,
    ),
    _make_own_mutation(
        "clear_resume_pending",
        lambda opened: opened.store.clear_resume_pending(build_key(ROTATED)),
        GONE_ON,
        chat=ROTATED,
    ),
    _make_own_mutation(
        "suspend_recently_active",
        lambda opened: opened.store.suspend_recently_active(),
        CHAT,
        in_steps=True,
    ),
    _make_own_mutation(
        "set_model_override",
        lambda opened: opened.store.set_model_override(build_key(CHAT), {"model": "m"}),
        CHAT,
    ),
    _make_own_mutation("begin_turn", _begin_turn, CHAT),
    _make_own_mutation("drop_turn", _drop_turn, CHAT, in_steps=True),
    _make_own_mutation(
        "claim_end", lambda opened: opened.store.claim_end(build_key(CHAT), CHAT), CHAT
    ),
    _make_own_mutation(
        "set_end_delivered",
        lambda opened: opened.store.set_end_delivered(build_key(CHAT), CHAT),
        CHAT,
    ),
    _make_own_mutation("claim_expiry", _claim_expiry, OLD, chat=OLD),
    _make_own_mutation(
        "set_expiry_finalized", _finalize_expiry, OLD, "later", chat=OLD, in_steps=True
    ),
    _make_own_mutation(
        "repair_routes",
        lambda opened: opened.store.repair_routes(),
        GONE_ON,
        chat=ROTATED,
        in_steps=True,
    ),
)

ROUTE_MUTATIONS = {mutation.name: mutation for mutation in _MUTATIONS}

READING_NAMES = frozenset(
    {
        "begin_end_delivery",
        "build_peer_fields",
        "build_session_fields",
        "close",
        "config",
        "db",
        "deliver_pending_hooks",
        "find_expiry_reason",
        "find_route_state",
        "folder",
        "forget_stale_marks",
        "get",
        "get_session_key",
        "has_active_turn",
        "hooks",
        "is_end_delivered",
        "is_ended_elsewhere",
        "is_session_finalizable",
        "list_sessions",
        "load_entries",
        "lookup_by_session_id",
        "marks",
        "open",
        "peek_session_id",
        "problems",
        "report",
        "scope",
        "sessions_dir",
    }
)
"""The public names of the store that change nothing in a home, or only bring the mirror up to date.

What hooks are told, and what of that is noted, is swept in `routes_told`.
"""


# -- homes -------------------------------------------------------------------------------------


def build_home(home: Path, kind: RouteHomeKind) -> None:
    """Make a home with five chats, four of them with routes, and at most forty rows."""
    home.mkdir(parents=True)
    if kind != "file":
        path = home / "state.db"
        if kind == "own":
            make_own_database(path)
        else:
            make_hermes_database(path, 22 if kind == "hermes" else 17)
        _add_conversations(path)
    opened = RouteHome(home)
    try:
        for name in (CHAT, ROTATED, OLD, ASLEEP):
            opened.store.save(_build_entry(name))
    finally:
        opened.close()


def _build_entry(name: str) -> SessionEntry:
    used_at = NOW_TIME - timedelta(days=100 if name == OLD else 0, minutes=1)
    return SessionEntry(
        build_key(name),
        name,
        created_at=used_at,
        updated_at=used_at,
        origin=build_source(name),
        platform="telegram",
        suspended=name == ASLEEP,
        resume_pending=name == ROTATED,
        extra={"of_the_future": {"kept": name}},
    )


def _add_conversations(path: Path) -> None:
    long_ago = NOW_S - 1_000_000
    ended = {"ended_at": long_ago + 5, "end_reason": "compression"}
    with connect(path) as connection:
        connection.execute("BEGIN")
        for name in (CHAT, ROTATED, OLD, ASLEEP):
            source = build_source(name)
            peer = {"source": "telegram", "session_key": build_key(name), "chat_type": "dm"}
            peer |= {"user_id": source.user_id, "chat_id": source.chat_id, "started_at": long_ago}
            add_session(connection, name, **peer, **(ended if name == ROTATED else {}))
        bare = {"source": "telegram", "parent_session_id": ROTATED, "started_at": long_ago + 5}
        add_session(connection, GONE_ON, **bare)
        done = {"ended_at": long_ago, "end_reason": "cli_close"}
        add_session(connection, OTHER, started_at=long_ago - 5, **done)
        for name in (CHAT, ROTATED, OLD, ASLEEP, GONE_ON, OTHER):
            for role in ("user", "assistant"):
                text = f"needle of {name}"
                add_message(connection, name, role, text, timestamp=long_ago)
        connection.execute("COMMIT")


def copy_home(home: Path, to: Path) -> Path:
    """Copy a closed home, and move its routes to the folder of the copy."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns("*-shm"))
    path = to / "state.db"
    if path.exists():
        with connect(path, "ro") as guard, connect(path) as connection:
            guard.execute("SELECT count(*) FROM sessions").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if "gateway_routing" in tables:
                scope = str((to / SESSIONS_FOLDER).resolve())
                connection.execute("UPDATE gateway_routing SET scope = ?", (scope,))
    return to


# -- looking -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RouteState:
    """The content of a home: rows without routes, the routes in table and file, and leftovers."""

    rows: Mapping[str, str]
    table: Mapping[str, Any] | None
    file: Mapping[str, Any]
    left_over: int

    @property
    def authoritative_state(self) -> tuple[Any, ...]:
        """The state that must equal before or after: with the table, if there is one."""
        return (self.rows, self.file if self.table is None else self.table)


def read_state(home: Path) -> RouteState:
    """Return the content of a home, read without the library."""
    rows = dict(state.digest_tables(home))
    rows.pop("state_meta", None)  # how far the search index is may lag
    table = _read_route_table(home) if rows.pop("gateway_routing", None) is not None else None
    file = _parse_without_process(
        (home / SESSIONS_FOLDER / "sessions.json").read_text(encoding="utf-8")
    )
    left_over = len(list((home / SESSIONS_FOLDER).glob(".sessions_*.tmp")))
    return RouteState(rows, table, {k: v for k, v in file.items() if k[:1] != "_"}, left_over)


def _read_route_table(home: Path) -> dict[str, Any]:
    with state.open_connection(home / "state.db") as opened:
        found = opened.execute(
            "SELECT session_key, entry_json FROM gateway_routing WHERE scope = ?",
            (str((home / SESSIONS_FOLDER).resolve()),),
        )
        return {key: _parse_without_process(text) for key, text in found}


def _parse_without_process(text: str) -> Any:
    """Return the stored JSON without the id of the process that stored it."""
    return json.loads(re.sub(r"pid=[^\"]*", "somebody", text))

"""Every change of the session store, a home on which it has something to do, and what heals it.

`ROUTES` is what the sweep of routes fails at every write; a test compares it with the public
methods of the store, so that a new one cannot be left out.
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
from session_core.routing.store import SessionStore
from session_core.state.sqlite.database import SessionDB
from tests.faults import state
from tests.faults.mutations import NOW
from tests.homes import add_message, add_session, connect, hermes_database, own_database

AT = datetime.fromtimestamp(NOW)  # noqa: DTZ006 -- local, as entries store it
FOLDER = "sessions"
CHAT, ROTATED, OLD, ASLEEP, GONE_ON, OTHER = ("chat", "parent", "old", "asleep", "tip", "other")
"""The sessions; all but the last two are routed."""

FILES = (
    *("", *(f"state.db{end}" for end in ("", "-wal", "-shm", "-journal"))),
    *(f"{FOLDER}{name}" for name in ("", "/sessions.json", "/.sessions.lock")),
    *(f"{FOLDER}/.sessions_{number}.tmp" for number in range(4)),
)
"""The files whose calls are made to fail; the child names its temporary ones like this."""

Kind = Literal["own", "hermes", "older", "file"]
"""A home with a table, one of Hermes with a table and without one, and a file alone."""


class Opened:
    """A store and its database, closed together."""

    def __init__(self, home: Path, *, later: bool = False) -> None:
        path = home / "state.db"
        self.db = SessionDB(path, patience_s=2.0, clock=lambda: NOW) if path.exists() else None
        now = AT + timedelta(minutes=later)
        self.store = SessionStore(
            home / FOLDER,
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


Act = Callable[[Opened], object]


@dataclass(frozen=True, slots=True)
class RouteMutation:
    """One change of the routes, and the sessions in which the next message may land."""

    name: str
    act: Act
    lands: frozenset[str]
    kind: Kind = "own"
    chat: str = CHAT
    in_steps: bool = False
    """Whether it has states in between, all of which must heal."""
    files: tuple[str, ...] = field(default=FILES, repr=False)

    @property
    def method(self) -> str:
        """The public method that is called: what is before the comma."""
        return self.name.partition(",")[0].removeprefix("store.")


def source_of(name: str) -> SessionSource:
    """Return the chat that the session of this name was begun in."""
    return SessionSource("telegram", f"c-{name}", chat_name=f"Chat {name}", user_id=f"u-{name}")


def key_of(name: str) -> str:
    """Return the session key of that chat."""
    return f"agent:main:telegram:dm:c-{name}"


def _put(opened: Opened) -> object:
    return opened.store.update_session(key_of(CHAT), 77)


def _arrive(opened: Opened) -> object:
    return opened.store.get_or_create_session(source_of(CHAT))


def _first(opened: Opened) -> object:
    return opened.store.get_or_create_session(source_of("newcomer"))


def _wake(opened: Opened) -> object:
    """A message for a suspended session, which begins another one."""
    return opened.store.get_or_create_session(source_of(ASLEEP))


def _save(opened: Opened) -> None:
    entry = opened.store.get(key_of(CHAT))
    entry.display_name = "renamed"
    opened.store.save(entry, urgent=True)


def _remove(opened: Opened) -> object:
    return opened.store.remove({key_of(CHAT): opened.store.get(key_of(CHAT))})


def _follow(opened: Opened) -> object:
    return opened.store.follow(key_of(ROTATED), ROTATED, GONE_ON)


def _rotate(opened: Opened) -> None:
    """An agent compresses the session of a chat and lets its route follow, a step at a time."""
    assert opened.db is not None
    opened.db.end_session(CHAT, "compression")
    summary = [{"role": "user", "content": "needle of the summary"}]
    begun = {"source": "telegram", "parent_session_id": CHAT}
    opened.db.append_messages("continued", summary, create=begun)
    opened.store.follow(key_of(CHAT), CHAT, "continued")


def _rotate_together(opened: Opened) -> None:
    """The same in one step."""
    with opened.store.together(key_of(CHAT)):
        _rotate(opened)


def _claim(opened: Opened) -> object:
    policy = SessionResetPolicy(mode="idle", idle_minutes=60)
    opened.store.config = GatewayConfig(default_reset_policy=policy)
    return opened.store.claim_expiry(opened.store.get(key_of(OLD)))


def _finalize(opened: Opened) -> object:
    _claim(opened)
    return opened.store.set_expiry_finalized(opened.store.get(key_of(OLD)))


def _begin(opened: Opened) -> str:
    return opened.store.begin_turn(key_of(CHAT), CHAT)


def _drop(opened: Opened) -> object:
    return opened.store.drop_turn(key_of(CHAT), _begin(opened))


def _both(name: str, act: Act, *lands: str, older: str = CHAT) -> list[RouteMutation]:
    """Return a change in a home of our own, in those of Hermes, and in a file alone.

    Without the table sessions change first, so the next message may do what is left: `older`.
    """
    kinds: tuple[Kind, ...] = ("own", "hermes", "older", "file")
    labels = [f"store.{name}", *(f"store.{name}, {kind}" for kind in kinds[1:])]
    return [
        RouteMutation(label, act, frozenset({*lands, older} if kind == "older" else lands), kind)
        for label, kind in zip(labels, kinds, strict=True)
    ]


def _own(name: str, act: Act, *lands: str, chat: str = CHAT, **more: Any) -> RouteMutation:
    return RouteMutation(f"store.{name}", act, frozenset(lands), chat=chat, **more)


_RESET = "reset_session"

_ALL = (
    *_both("update_session", _put, CHAT),
    *_both(_RESET, lambda opened: opened.store.reset_session(key_of(CHAT)), CHAT, "fresh",
           older="later"),
    *_both("remove", _remove, CHAT, "later"),
    _own("follow", _follow, GONE_ON, chat=ROTATED),
    _own("follow, hermes", _follow, GONE_ON, chat=ROTATED, kind="hermes"),
    _own("follow, older", _follow, GONE_ON, chat=ROTATED, kind="older"),
    _own("follow, a whole rotation", _rotate, CHAT, "continued", in_steps=True),
    _own("follow, a whole rotation, hermes", _rotate, CHAT, "continued", in_steps=True,
         kind="hermes"),
    _own("together", _rotate_together, CHAT, "continued"),
    _own("together, hermes", _rotate_together, CHAT, "continued", kind="hermes"),
    _own("switch_session", lambda opened: opened.store.switch_session(key_of(CHAT), OTHER),
         CHAT, OTHER),
    _own("switch_session, hermes", lambda opened: opened.store.switch_session(key_of(CHAT), OTHER),
         CHAT, OTHER, kind="hermes"),
    _own("switch_session, older", lambda opened: opened.store.switch_session(key_of(CHAT), OTHER),
         CHAT, OTHER, kind="older"),
    _own("prune_old_entries", lambda opened: opened.store.prune_old_entries(90), OLD, chat=OLD),
    _own("prune_old_entries, file", lambda opened: opened.store.prune_old_entries(90),
         OLD, "later", chat=OLD, kind="file"),
    _own("get_or_create_session", _arrive, CHAT),
    _own("get_or_create_session, first of a chat", _first, "fresh", "later", chat="newcomer"),
    _own("get_or_create_session, suspended", _wake, "fresh", "later", chat=ASLEEP),
    _own("get_or_create_session, suspended, older", _wake, "fresh", "later", chat=ASLEEP,
         kind="older"),
    _own("end_turn", lambda opened: opened.store.end_turn(key_of(CHAT), CHAT, 77), CHAT),
    _own("save", _save, CHAT),
    _own("suspend_session", lambda opened: opened.store.suspend_session(key_of(CHAT)),
         CHAT, "later"),
    _own("mark_resume_pending", lambda opened: opened.store.mark_resume_pending(key_of(CHAT)),
         CHAT),
    _own("clear_resume_pending", lambda opened: opened.store.clear_resume_pending(key_of(ROTATED)),
         GONE_ON, chat=ROTATED),
    _own("suspend_recently_active", lambda opened: opened.store.suspend_recently_active(), CHAT,
         in_steps=True),
    _own("set_model_override",
         lambda opened: opened.store.set_model_override(key_of(CHAT), {"model": "m"}), CHAT),
    _own("begin_turn", _begin, CHAT),
    _own("drop_turn", _drop, CHAT, in_steps=True),
    _own("claim_end", lambda opened: opened.store.claim_end(key_of(CHAT), CHAT), CHAT),
    _own("set_end_told", lambda opened: opened.store.set_end_told(key_of(CHAT), CHAT), CHAT),
    _own("claim_expiry", _claim, OLD, chat=OLD),
    _own("set_expiry_finalized", _finalize, OLD, "later", chat=OLD, in_steps=True),
    _own("check_against_state", lambda opened: opened.store.check_against_state(), GONE_ON,
         chat=ROTATED, in_steps=True),
)  # fmt: skip

ROUTES = {mutation.name: mutation for mutation in _ALL}

LOOKING = frozenset(
    {
        *("config", "db", "hooks", "problems", "get", "entries", "peek_session_id", "key_of"),
        *("lookup_by_session_id", "list_sessions", "is_session_finalizable", "session_fields"),
        "peer_fields",
        *("is_session_expired", "is_in_turn", "is_kept", "state_of", "open", "close"),
        *("folder", "sessions_dir", "is_end_told", "forget_marks", "begin_end", "tell_untold"),
    }
)
"""The public names of the store that change nothing in a home, or only bring the mirror up to date.

What hooks are told, and what of that is noted, is swept in `routes_told`.
"""


# -- homes -------------------------------------------------------------------------------------


def build(home: Path, kind: Kind) -> None:
    """Make a home with five chats, of which four are routed; at most forty rows."""
    home.mkdir(parents=True)
    if kind != "file":
        path = home / "state.db"
        if kind == "own":
            own_database(path)
        else:
            hermes_database(path, 22 if kind == "hermes" else 17)
        _converse(path)
    opened = Opened(home)
    try:
        for name in (CHAT, ROTATED, OLD, ASLEEP):
            opened.store.save(_entry(name))
    finally:
        opened.close()


def _entry(name: str) -> SessionEntry:
    used_at = AT - timedelta(days=100 if name == OLD else 0, minutes=1)
    return SessionEntry(
        key_of(name),
        name,
        created_at=used_at,
        updated_at=used_at,
        origin=source_of(name),
        platform="telegram",
        suspended=name == ASLEEP,
        resume_pending=name == ROTATED,
        extra={"of_the_future": {"kept": name}},
    )


def _converse(path: Path) -> None:
    long_ago = NOW - 1_000_000
    ended = {"ended_at": long_ago + 5, "end_reason": "compression"}
    with connect(path) as connection:
        connection.execute("BEGIN")
        for name in (CHAT, ROTATED, OLD, ASLEEP):
            source = source_of(name)
            peer = {"source": "telegram", "session_key": key_of(name), "chat_type": "dm"}
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


def copy(home: Path, to: Path) -> Path:
    """Copy a home that nobody has open, and let its routes be those of the copy's folder."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns("*-shm"))
    path = to / "state.db"
    if path.exists():
        with connect(path, "ro") as guard, connect(path) as connection:
            guard.execute("SELECT count(*) FROM sessions").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if "gateway_routing" in tables:
                scope = str((to / FOLDER).resolve())
                connection.execute("UPDATE gateway_routing SET scope = ?", (scope,))
    return to


# -- looking -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What a home holds: its rows besides the routes, the routes in either copy, what is left."""

    rows: Mapping[str, str]
    table: Mapping[str, Any] | None
    file: Mapping[str, Any]
    left_over: int

    @property
    def truth(self) -> tuple[Any, ...]:
        """What must be as it was before, or as it is after: where there is a table, with it."""
        return (self.rows, self.file if self.table is None else self.table)


def look(home: Path) -> Seen:
    """Return what a home holds, in files that are read as anybody reads them."""
    rows = dict(state.dump(home))
    rows.pop("state_meta", None)  # how far the search index is may lag
    table = _table(home) if rows.pop("gateway_routing", None) is not None else None
    file = _alike((home / FOLDER / "sessions.json").read_text(encoding="utf-8"))
    left_over = len(list((home / FOLDER).glob(".sessions_*.tmp")))
    return Seen(rows, table, {k: v for k, v in file.items() if k[:1] != "_"}, left_over)


def _table(home: Path) -> dict[str, Any]:
    with state.connection(home / "state.db") as opened:
        found = opened.execute(
            "SELECT session_key, entry_json FROM gateway_routing WHERE scope = ?",
            (str((home / FOLDER).resolve()),),
        )
        return {key: _alike(text) for key, text in found}


def _alike(text: str) -> Any:
    """Return what is stored, without what names the process that has stored it."""
    return json.loads(re.sub(r"pid=[^\"]*", "somebody", text))

"""A home that covers every case of the plans, and states which items belong to which plan.

It is built through `SessionDB` and `SessionStore`, then damaged by SQL. The expectations are
written next to each session, independent of the code that selects.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from session_core import SessionDB, SessionEntry, SessionSource, SessionStore, StateDatabase
from session_core.activity import ActivitySnapshot, gather_activity
from session_core.config import GatewayConfig, SessionResetPolicy
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import MaintenanceSnapshot
from tests.cjk import add_cjk_index, compile_tokenizer
from tests.homes import connect, make_hermes_database, make_own_database
from tests.postgres_home import change_rows, make_again, make_postgres
from tests.thorough import mark_thorough

NOW = 1_800_000_000.0
DAY = 86_400.0

KINDS = ("own", 22, 30, mark_thorough("postgres"))
"""A home of our own, Hermes homes of these schemas, and one without files."""

DELEGATE = {"_delegate_from": "somebody"}
BRANCH = {"_branched_from": "somebody"}

IDLE = GatewayConfig(
    reset_by_platform={"slack": SessionResetPolicy(mode="idle", idle_minutes=60)},
)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def local(self) -> datetime:
        """Return the time as the store has it."""
        return datetime.fromtimestamp(self.now)  # noqa: DTZ006 -- local, as stored


@dataclass
class Stated:
    """The items that a kind of plan selects, the sessions of each, and the protected ones."""

    chosen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    protected: Counter[str] = field(default_factory=Counter)


class Home:
    """A home with a clock and the expected selections."""

    def __init__(self, db: StateDatabase, store: SessionStore, clock: Clock, folder: Path) -> None:
        self.db, self.store, self.clock = db, store, clock
        self.folder = folder
        self.stated: dict[str, Stated] = {}

    def of(self, kind: str) -> Stated:
        """Return the expectation for a kind of plan."""
        return self.stated.setdefault(kind, Stated())

    def chosen(self, kind: str, session_id: str, *together: str) -> None:
        """Expect a kind to select this item with these sessions in order, by default itself."""
        self.of(kind).chosen[session_id] = together or (session_id,)

    def protected(self, kind: str, why: str) -> None:
        """Expect a kind to protect one more item for this reason."""
        self.of(kind).protected[why] += 1

    def session(
        self,
        session_id: str,
        days: float,
        *,
        reason: str | None = None,
        ended: float | None = None,
        begun: float | None = None,
        messages: int = 2,
        config: dict[str, str] | None = None,
        **fields: Any,
    ) -> str:
        """Add a session with a last message this many days ago."""
        self.clock.now = NOW - (days if begun is None else begun) * DAY
        fields.setdefault("source", "cli")
        self.db.create_session(session_id, model_config=config, **fields)
        self.clock.now = NOW - days * DAY
        for number in range(messages):
            role = "assistant" if number % 2 else "user"
            self.db.append_message(session_id, role, f"{session_id} says {number}")
        if reason is not None:
            self.clock.now = NOW - (days if ended is None else ended) * DAY
            self.db.end_session(session_id, reason)
        self.clock.now = NOW
        return session_id

    def large_session(self, session_id: str, days: float) -> str:
        """Add an ended session that takes most of the file."""
        self.session(session_id, days, messages=0)
        for _ in range(20):
            self.db.append_message(session_id, "user", "x" * 100_000, timestamp=NOW - days * DAY)
        self.db.end_session(session_id, "idle")
        return session_id

    def route(self, chat: str, session_id: str, days: float, **fields: Any) -> str:
        """Route a chat to a session since this many days."""
        source = SessionSource(platform=fields.pop("platform", "telegram"), chat_id=chat)
        self.clock.now = NOW - days * DAY
        at = self.clock.local()
        key = self.store.get_session_key(source)
        platform = source.platform
        self.store.save(
            SessionEntry(key, session_id, at, at, origin=source, platform=platform, **fields)
        )
        self.clock.now = NOW
        return key

    def sql(self, statement: str, *values: Any) -> None:
        """Change the database as a careless process does."""
        if self.db.path is None:
            change_rows(self.db, statement, values)
            return
        with connect(self.db.path) as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            connection.execute(statement, values)

    def open_again(self) -> StateDatabase:
        """Open the database again, as another process does. The caller closes it."""
        if self.db.path is None:
            return make_again(self.db, clock=self.clock)
        return SessionDB(self.db.path, clock=self.clock)

    def file(self, name: str, days: float, text: str = "{}") -> Path:
        """Write a file next to the mirror, last modified this many days ago.

        A home without a folder has no mirror, and its plans know of no file.
        """
        path = (self.store.sessions_dir or self.folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (NOW - days * DAY,) * 2)
        return path

    def take_snapshot(self, alive: ActivitySnapshot | None = None) -> MaintenanceSnapshot:
        """Return a snapshot of the home."""
        found = gather_activity(self.db, self.store, NOW) if alive is None else alive
        return MaintenanceSnapshot(
            self.db, ConversationIndex(self.db.admin.list_inventory()), found, self.store
        )


@contextmanager
def opened(folder: Path, kind: str | int, *, cjk: bool = False) -> Iterator[Home]:
    """Create an empty home of a kind. With `cjk` it has that index, and its tokenizer is loaded."""
    clock = Clock()
    path = folder / "state.db"
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "postgres":
        with make_postgres(folder, clock=clock) as db:
            yield Home(db, SessionStore(config=IDLE, db=db, now=clock.local), clock, folder)
        return
    if isinstance(kind, int):
        make_hermes_database(path, kind)
    else:
        make_own_database(path)
    if cjk:
        compile_tokenizer(folder)
        add_cjk_index(path)
    with ExitStack() as stack:
        db = stack.enter_context(SessionDB(path, clock=clock, load_extension=cjk))
        store = stack.enter_context(SessionStore(folder / "sessions", IDLE, db=db, now=clock.local))
        yield Home(db, store, clock, folder)


def fill(home: Home) -> None:
    """Add all cases."""
    _add_old_sessions(home)
    _add_lineages(home)
    _add_protected_sessions(home)
    _add_open_sessions(home)
    _add_continuations(home)
    _add_ghosts(home)
    _add_routes(home)
    _add_orphans(home)
    if home.store.sessions_dir is not None:
        _add_files(home)


def _add_old_sessions(home: Home) -> None:
    """Add sessions of all ages. Only the last message decides which are pruned."""
    home.session("old", 140, reason="idle")
    home.chosen("sessions", "old")
    home.session("old_titled", 91, reason="cli_close", source="slack", cwd="/srv/project/app")
    home.db.set_session_title("old_titled", "The schema")
    home.chosen("sessions", "old_titled")
    home.session("old_ended_now", 120, reason="tui_close", ended=1)
    home.chosen("sessions", "old_ended_now")
    home.session("long_lived", 5, begun=400, reason="cli_close")
    home.session("not_so_old", 89, reason="cli_close")
    home.session("old_archived", 200, reason="cli_close")
    home.db.set_session_archived("old_archived", archived=True)
    home.session("drifted", 300, reason="cli_close")
    home.sql("UPDATE sessions SET message_count = 0 WHERE id = 'drifted'")
    home.chosen("sessions", "drifted")
    home.session("no_reason", 250)
    home.sql("UPDATE sessions SET ended_at = ? WHERE id = 'no_reason'", NOW - 250 * DAY)
    home.chosen("sessions", "no_reason")


def _add_lineages(home: Home) -> None:
    """Add conversations of several sessions, which are removed as a whole."""
    home.session("chain_1", 200, reason="compression")
    home.session("chain_2", 190, reason="compression", parent_session_id="chain_1")
    home.session("chain_3", 180, reason="cli_close", parent_session_id="chain_2")
    home.chosen("sessions", "chain_1", "chain_3", "chain_2", "chain_1")
    home.session("lasting_1", 300, reason="compression")
    home.session("lasting_2", 2, reason="cli_close", parent_session_id="lasting_1")
    home.session("boss", 150, reason="cli_close")
    home.session("worker", 150, parent_session_id="boss", config=DELEGATE)
    home.session("helper", 150, parent_session_id="worker", config=DELEGATE)
    home.chosen("sessions", "boss", "helper", "worker", "boss")
    # Open delegates are finalized with their abandoned conversation.
    home.chosen("abandoned", "helper", "helper", "worker")
    home.session("busy_boss", 150, reason="cli_close")
    home.session("busy_worker", 1, parent_session_id="busy_boss", config=DELEGATE)
    home.session("trunk", 150, reason="branched")
    home.session("branch", 3, reason="cli_close", parent_session_id="trunk", config=BRANCH)
    home.chosen("sessions", "trunk")
    home.session("circle_a", 170, begun=171, reason="cli_close")
    home.session("circle_b", 170, reason="cli_close", parent_session_id="circle_a")
    home.sql("UPDATE sessions SET parent_session_id = 'circle_b' WHERE id = 'circle_a'")
    home.chosen("sessions", "circle_a")
    home.chosen("sessions", "circle_b")
    home.chosen("links", "circle_a")
    home.session("fatherless", 4, reason="cli_close")
    home.sql("UPDATE sessions SET parent_session_id = 'nobody' WHERE id = 'fatherless'")
    home.chosen("links", "fatherless")


def _add_protected_sessions(home: Home) -> None:
    """Add old sessions that stay."""
    home.session("old_routed", 130, reason="agent_close", source="telegram")
    home.route("1", "old_routed", 130)
    home.protected("sessions", "routed")
    home.session("old_suspended", 130, reason="idle", source="telegram")
    home.route("2", "old_suspended", 130, suspended=True)
    home.protected("sessions", "suspended")
    home.protected("routes", "suspended")
    home.session("routed_root", 130, reason="compression", source="telegram")
    home.session("routed_tip", 130, reason="cli_close", parent_session_id="routed_root")
    home.route("3", "routed_root", 130)
    home.protected("sessions", "routed")
    home.chosen("routes", "agent:main:telegram:dm:3")
    home.session("old_locked", 130, reason="cli_close")
    home.db.try_acquire_compression_lock("old_locked", "somebody", 300)
    home.protected("sessions", "compressing")
    home.session("no_time", 130, reason="cli_close", messages=0)
    soon = "'soon'" if home.db.path else "'NaN'"  # a strict column has no other odd value
    home.sql(f"UPDATE sessions SET started_at = {soon} WHERE id = 'no_time'")  # noqa: S608 -- a constant
    home.protected("sessions", "no known age")
    home.protected("ghosts", "no known age")


def _add_open_sessions(home: Home) -> None:
    """Add sessions that never ended."""
    home.session("left", 60, source="tui")
    home.chosen("abandoned", "left")
    home.session("left_long", 140, source="tui")
    home.chosen("abandoned", "left_long")
    home.session("left_lately", 29)
    home.session("chat", 60, source="telegram")
    home.route("4", "chat", 60)
    home.protected("abandoned", "routed")
    home.session("went_1", 70, reason="compression")
    home.session("went_2", 50, parent_session_id="went_1")
    home.db.update_token_counts("went_2", api_call_count=2)
    home.chosen("abandoned", "went_2")


def _add_continuations(home: Home) -> None:
    """Add continuations that never ran, and similar ones that did."""
    home.session("cut_1", 20, reason="compression")
    home.session("cut_2", 20, parent_session_id="cut_1")
    home.chosen("orphaned", "cut_2")
    home.session("null_1", 20, reason="compression")
    home.session("null_2", 20, parent_session_id="null_1")
    home.sql("UPDATE sessions SET api_call_count = NULL WHERE id = 'null_2'")
    home.chosen("orphaned", "null_2")
    home.session("ran_1", 20, reason="compression")
    home.session("ran_2", 20, parent_session_id="ran_1")
    home.db.update_token_counts("ran_2", api_call_count=1)
    home.session("young_1", 20, reason="compression")
    home.session("young_2", 6, parent_session_id="young_1")
    home.session("fork_1", 20, reason="compression")
    home.session("fork_2", 20, parent_session_id="fork_1", config=BRANCH)
    home.session("job_1", 20, reason="compression")
    home.session("job_2", 20, parent_session_id="job_1", config=DELEGATE)
    home.session("led_1", 20, reason="compression", source="telegram")
    home.session("led_2", 20, parent_session_id="led_1", source="telegram")
    home.route("5", "led_2", 20)
    home.protected("orphaned", "routed")


def _add_ghosts(home: Home) -> None:
    """Add empty sessions, and similar ones with content."""
    home.session("ghost", 3, reason="tui_close", messages=0, source="tui")
    home.chosen("ghosts", "ghost")
    home.session("ghost_of_chat", 3, reason="session_reset", messages=0, source="telegram")
    home.chosen("ghosts", "ghost_of_chat")
    home.session("ghost_left", 3, messages=0)
    home.chosen("ghosts", "ghost_left")
    home.session("ghost_parent", 3, reason="compression", messages=0)
    home.session("ghost_child", 3, parent_session_id="ghost_parent", reason="cli_close")
    home.chosen("ghosts", "ghost_parent")
    home.session("ghost_boss", 3, reason="cli_close", messages=0)
    home.session("ghost_worker", 3, parent_session_id="ghost_boss", messages=0, config=DELEGATE)
    home.chosen("ghosts", "ghost_boss", "ghost_worker", "ghost_boss")
    home.session("busy_ghost", 3, reason="cli_close", messages=0)
    home.session("its_worker", 3, parent_session_id="busy_ghost", config=DELEGATE)
    home.session("before", 3, reason="compression")
    home.session("between", 3, reason="compression", messages=0, parent_session_id="before")
    home.session("behind", 3, reason="cli_close", parent_session_id="between")
    home.protected("ghosts", "in between")
    home.session("said", 3, reason="compression")
    home.session("ghost_tip", 3, messages=0, parent_session_id="said")
    home.chosen("ghosts", "ghost_tip")
    home.session("named_ghost", 3, reason="tui_close", messages=0)
    home.db.set_session_title("named_ghost", "To do")
    home.session("young_ghost", 0.5, reason="tui_close", messages=0)
    home.session("ended_ghost", 30, reason="tui_close", messages=0, ended=0.2)
    home.session("rewound", 3, reason="tui_close", messages=1)
    home.sql("UPDATE messages SET active = 0 WHERE session_id = 'rewound'")
    home.session("ghost_routed", 3, messages=0, source="telegram")
    home.route("6", "ghost_routed", 3)
    home.protected("ghosts", "routed")


def _add_routes(home: Home) -> None:
    """Add routes in every state."""
    home.session("reset", 40, reason="session_reset", source="telegram")
    home.chosen("routes", home.route("7", "reset", 40))
    home.chosen("routes", home.route("8", "never_was", 40))
    home.route("9", "not_yet", 0.1)
    home.protected("routes", "fresh")
    home.session("told", 40, reason="session_reset", source="telegram")
    home.route("10", "told", 40, expiry_finalized=True)
    home.protected("routes", "told with its next message")
    home.session("resumed", 40, reason="agent_close", source="telegram")
    home.route("11", "resumed", 40)
    home.session("pending", 40, source="telegram")
    home.route("12", "pending", 40, resume_pending=True)
    home.protected("abandoned", "routed")
    home.session("idle", 0.5, source="slack")
    home.route("13", "idle", 0.5, platform="slack")
    home.chosen("expired", "idle")
    home.session("idle_suspended", 0.5, source="slack")
    home.route("14", "idle_suspended", 0.5, platform="slack", suspended=True)
    home.protected("expired", "suspended")
    home.session("idle_told", 0.5, source="slack")
    home.route("16", "idle_told", 0.5, platform="slack", expiry_finalized=True)
    home.session("talking", 0.01, source="slack")
    home.route("15", "talking", 0.01, platform="slack")
    if home.db.routes.is_available:
        _add_foreign_routes(home)


def _add_foreign_routes(home: Home) -> None:
    """Add rows of a missing folder, and one that cannot be read."""
    scope = str(home.folder.parent / "moved" / "sessions")
    for name, days in (("long_ago", 100), ("lately", 10)):
        at = datetime.fromtimestamp(NOW - days * DAY)  # noqa: DTZ006 -- local, as stored
        entry = SessionEntry(name, "elsewhere", at, at).to_dict()
        home.db.routes.save_entry(name, json.dumps(entry), scope=scope, expect=None)
    home.chosen("routes", "long_ago")
    folder = home.store.sessions_dir
    own = "" if folder is None else str(folder.resolve())
    broken = '{"session_key": "agent:main:telegram:dm:16", "session_id": "old_broken"'
    home.db.routes.save_entry("agent:main:telegram:dm:16", broken, scope=own, expect=None)


def _add_orphans(home: Home) -> None:
    """Add rows without their session, and locks of dead compressions."""
    for name, days in (("gone", 5), ("gone_lately", 0.3), ("not_yet", 50)):
        home.session(name, days, reason="cli_close", messages=3)
        home.db.update_token_counts(name, model="some-model", input_tokens=5)
        home.sql("DELETE FROM sessions WHERE id = ?", name)
    home.chosen("rows", "messages/gone")
    home.protected("rows", "fresh")
    home.protected("rows", "routed")
    if home.db.rows.read_row_images("session_model_usage", {}).columns:
        home.chosen("rows", "session_model_usage/gone")
        home.protected("rows", "fresh")
        home.protected("rows", "routed")
    home.clock.now = NOW - 3 * DAY
    home.db.try_acquire_compression_lock("old", "somebody who died", 300)
    home.clock.now = NOW - 300
    home.db.try_acquire_compression_lock("not_so_old", "somebody who died lately", 60)
    home.clock.now = NOW
    home.chosen("locks", "compression_locks/old")


def _add_files(home: Home) -> None:
    """Add files of existing and missing sessions, and unrelated files."""
    gone = "20260101_120000_abcdef01"
    for name in (
        "session_old.json",
        "old.json",
        "old.jsonl",
        "request_dump_old_20260101_120000.json",
        "session_not_yet.json",
        "notes.json",
        "notes.jsonl",
        "session_.json",
        "sessions.json.broken-20260101_120000",
        "session_old.json.bak",
        ".sessions.lock",
        ".hidden.json",
    ):
        home.file(name, 50)
    for name in (
        f"session_{gone}.json",
        f"{gone}.json",
        f"{gone}.jsonl",
        f"request_dump_{gone}_20260101_120000.json",
        "cron_daily_20260101_120000.json",
        ".sessions_abc.tmp",
    ):
        home.file(name, 50)
        home.chosen("files", name)
    home.file(f"session_{gone}0.json", 0.5)
    home.protected("files", "fresh")
    saved = home.store.sessions_dir / "saved"
    saved.mkdir()
    (saved / f"session_{gone}.json").write_text("{}")

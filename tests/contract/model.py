"""A small model of the state database in plain Python, and steps for both.

A step is a tuple of plain values, so that another process can take it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from session_core import Revision, SessionError, StateDatabase, TitleTaken, Unsupported
from session_core.types import AppendManyResult

Step = tuple[Any, ...]

NOTHING = Revision(0, 0, 0, 0, None)
"""The revision of a missing session."""


def perform_step(db: StateDatabase, step: Step) -> Any:
    """Take a step, and return its result for the stored messages, or the name of the error."""
    verb, session_id, *rest = step
    try:
        done = _VERBS[verb](db, session_id, *rest)
    except SessionError as error:
        return type(error).__name__
    return done if isinstance(done, AppendManyResult) else None


def _append_rows(
    db: StateDatabase, session_id: str, rows: list[dict[str, Any]]
) -> AppendManyResult:
    create = {"source": "lazy", "started_at": rows[0]["timestamp"]}
    return db.append_messages(session_id, rows, create=create)


def _replace_rows(
    db: StateDatabase, session_id: str, rows: list[dict[str, Any]]
) -> AppendManyResult:
    db.delete_session(session_id)
    return _append_rows(db, session_id, rows)


def _continue_session(db: StateDatabase, parent: str, child: str, at: float) -> None:
    with db.transaction():
        db.end_session(parent, "compression")
        db.create_session(child, "cli", parent_session_id=parent, started_at=at)


_VERBS: dict[str, Any] = {
    "create": lambda db, s, at: db.create_session(s, "cli", started_at=at),
    "append": _append_rows,
    "anew": _replace_rows,
    "replace": lambda db, s, rows, live: db.replace_messages(s, rows, active_only=live),
    "compact": lambda db, s, rows: db.archive_and_compact(s, rows),
    "summarise": lambda db, s, ids, rows, carry: db.rows.compact_messages(
        s, ids, rows, carry=carry
    ),
    "revive": lambda db, s, ids, drop: db.rows.restore_compacted(s, ids, drop=drop),
    "copy": lambda db, s, source, ids: db.rows.copy_messages(source, ids, s),
    "rewind": lambda db, s, message_id: db.rewind_to_message(s, message_id),
    "restore": lambda db, s, message_id: db.restore_rewound(s, message_id),
    "clear": lambda db, s: db.clear_messages(s),
    "end": lambda db, s, reason: db.end_session(s, reason),
    "reopen": lambda db, s: db.reopen_session(s),
    "put": lambda db, s, reason: db.rows.put_session_fields(
        s, {"ended_at": None if reason is None else 5.0, "end_reason": reason}
    ),
    "finalize": lambda db, _: db.finalize_orphaned_compression_sessions(),
    "title": lambda db, s, title: db.set_session_title(s, title),
    "archive": lambda db, s, archived: db.set_session_archived(s, archived),
    "continue": _continue_session,
    "delete": lambda db, s: db.delete_session(s),
}


@dataclass
class Message:
    """One row, with the name of its state: live, rewound or compacted."""

    id: int
    role: str
    content: str
    at: float
    state: str = "live"


@dataclass
class Session:
    """One session, with its rows in order."""

    source: str
    started_at: float
    parent: str | None = None
    reason: str | None = None
    title: str | None = None
    archived: bool = False
    rewinds: int = 0
    counter: int = 0
    messages: list[Message] = field(default_factory=list)

    def in_state(self, state: str) -> list[Message]:
        """Return the rows in one state."""
        return [message for message in self.messages if message.state == state]


class Model:
    """The expected contents of the database."""

    def __init__(self, *, compacts: bool) -> None:
        self.compacts = compacts
        self.sessions: dict[str, Session] = {}

    def expected_error(self, step: Step) -> str | None:
        """Return the name of the error with which a step has to be refused."""
        verb, session_id, *rest = step
        if verb in ("compact", "summarise", "revive") and not self.compacts:
            return Unsupported.__name__
        if verb == "title" and rest[0] is not None:
            holder = next((n for n, s in self.sessions.items() if s.title == rest[0]), None)
            free = holder is None or holder in (session_id, *self.list_ancestors(session_id))
            return None if free else TitleTaken.__name__
        return None

    def apply_step(self, step: Step, ids: tuple[int, ...] | None) -> None:
        """Apply a step that was not refused."""
        verb, session_id, *rest = step
        getattr(self, f"_{verb}")(session_id, *rest, *([list(ids)] if ids is not None else []))

    def list_ancestors(self, session_id: str) -> list[str]:
        """Return the earlier sessions of the conversation, the nearest first."""
        found: list[str] = []
        parent = self.sessions[session_id].parent
        while parent in self.sessions and self.sessions[parent].reason == "compression":
            found.append(parent)
            parent = self.sessions[parent].parent
        return found

    def find_continuation(self, session_id: str) -> str | None:
        """Return the session that goes on with this one."""
        if self.sessions[session_id].reason != "compression":
            return None
        return next((n for n, s in self.sessions.items() if s.parent == session_id), None)

    def list_family(self, session_id: str) -> list[str]:
        """Return the session, its ancestors, then its continuations."""
        members = [session_id, *self.list_ancestors(session_id)]
        following = self.find_continuation(session_id)
        while following is not None:
            members.append(following)
            following = self.find_continuation(following)
        return members

    def _create(self, session_id: str, at: float) -> None:
        self.sessions.setdefault(session_id, Session("cli", at))

    def _append(self, session_id: str, rows: list[dict[str, Any]], ids: list[int]) -> None:
        session = self.sessions.setdefault(session_id, Session("lazy", rows[0]["timestamp"]))
        session.counter += len(rows)
        session.messages += _list_messages(rows, ids)

    def _anew(self, session_id: str, rows: list[dict[str, Any]], ids: list[int]) -> None:
        self._delete(session_id)
        self._append(session_id, rows, ids)

    def _replace(self, session_id: str, rows: list[Any], live: bool, ids: list[int]) -> None:
        session = self.sessions[session_id]
        kept = [m for m in session.messages if live and m.state != "live"]
        session.messages = kept + _list_messages(rows, ids)
        session.counter = len(rows)

    def _compact(self, session_id: str, rows: list[Any], ids: list[int]) -> None:
        session = self.sessions[session_id]
        for message in session.in_state("live"):
            message.state = "compacted"
        session.messages += _list_messages(rows, ids)
        session.counter = len(rows)

    def _summarise(
        self, session_id: str, some: list[int], rows: list[Any], carry: list[int], ids: list[int]
    ) -> None:
        session = self.sessions[session_id]
        for message in session.messages:
            message.state = "compacted" if message.id in (*some, *carry) else message.state
        session.messages += _list_messages(rows, ids[: len(rows)])
        session.messages += self._list_copies(session_id, carry, ids[len(rows) :])
        session.counter = len(session.in_state("live"))

    def _revive(self, session_id: str, some: list[int], drop: list[int], _: list[int]) -> None:
        session = self.sessions[session_id]
        session.messages = [m for m in session.messages if m.id not in drop]
        for message in session.messages:
            message.state = "live" if message.id in some else message.state
        session.counter = len(session.in_state("live"))

    def _copy(self, session_id: str, source: str, some: list[int], ids: list[int]) -> None:
        session = self.sessions[session_id]
        session.messages += self._list_copies(source, some, ids)
        session.counter = len(session.in_state("live"))

    def _list_copies(self, source: str, some: list[int], ids: list[int]) -> list[Message]:
        known = {message.id: message for message in self.sessions[source].messages}
        copied = [known[item] for item in some]
        return [
            Message(message_id, message.role, message.content, message.at)
            for message_id, message in zip(ids, copied, strict=True)
        ]

    def _rewind(self, session_id: str, message_id: int) -> None:
        session = self.sessions[session_id]
        session.rewinds += 1
        for message in session.in_state("live"):
            message.state = "rewound" if message.id >= message_id else "live"

    def _restore(self, session_id: str, message_id: int) -> None:
        session = self.sessions[session_id]
        for message in session.in_state("rewound"):
            message.state = "live" if message.id >= message_id else "rewound"
        session.counter = max(session.counter, len(session.in_state("live")))

    def _clear(self, session_id: str) -> None:
        self.sessions[session_id].messages.clear()
        self.sessions[session_id].counter = 0

    def _end(self, session_id: str, reason: str) -> None:
        session = self.sessions[session_id]
        session.reason = session.reason or reason

    def _reopen(self, session_id: str) -> None:
        self.sessions[session_id].reason = None

    def _put(self, session_id: str, reason: str | None) -> None:
        self.sessions[session_id].reason = reason

    def _finalize(self, _: None) -> None:
        for name, session in self.sessions.items():
            if session.reason is None and session.messages and self.list_ancestors(name):
                session.reason = "orphaned_compression"

    def _title(self, session_id: str, title: str | None) -> None:
        for session in self.sessions.values():
            if title is not None and session.title == title:
                session.title = None
        self.sessions[session_id].title = title

    def _archive(self, session_id: str, archived: bool) -> None:
        for member in self.list_family(session_id):
            self.sessions[member].archived = archived

    def _continue(self, parent: str, child: str, at: float) -> None:
        self._end(parent, "compression")
        self.sessions[child] = Session("cli", at, parent)

    def _delete(self, session_id: str) -> None:
        del self.sessions[session_id]
        for session in self.sessions.values():
            session.parent = None if session.parent == session_id else session.parent


def _list_messages(rows: list[dict[str, Any]], ids: list[int]) -> list[Message]:
    return [
        Message(message_id, row["role"], row["content"], row["timestamp"])
        for message_id, row in zip(ids, rows, strict=True)
    ]

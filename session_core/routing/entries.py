"""One entry of the session store, and how it is written and read.

What is not known by name is kept through a round trip. Times are naive local ones, as they have
always been stored; one with a zone is brought to local time when it is read.

In what state a route is: what a person would be told of a chat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from session_core.chats import (
    Platform,
    SessionSource,
    check_session_id,
    check_session_key,
    normalize_text,
    parse_platform,
)
from session_core.errors import InvalidInput
from session_core.routing.recovery import CONTINUABLE_REASONS

if TYPE_CHECKING:
    from session_core.routing.store import SessionStore


_OVERRIDE_FIELDS = ("model", "provider", "base_url")
_COUNT_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "total_tokens",
    "last_prompt_tokens",
)
_FLAG_FIELDS = (
    "suspended",
    "resume_pending",
    "is_fresh_reset",
    "was_auto_reset",
    "reset_had_activity",
)
PENDING_FIELD = "untold_boundaries"
"""What the hooks of a chat are owed, whichever session it is in by now."""

_TEXT_FIELDS = ("display_name", "platform", "resume_reason", "auto_reset_reason")


@dataclass(slots=True)
class SessionEntry:
    """Which session a chat is in, and in what state that is."""

    session_key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: SessionSource | None = None
    display_name: str | None = None
    platform: Platform | str | None = None
    chat_type: str = "dm"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    total_tokens: int = 0
    last_prompt_tokens: int = 0
    estimated_cost_usd: float = 0.0
    cost_status: str = "unknown"
    expiry_finalized: bool = False
    suspended: bool = False
    resume_pending: bool = False
    resume_reason: str | None = None
    last_resume_marked_at: datetime | None = None
    is_fresh_reset: bool = False
    was_auto_reset: bool = False
    auto_reset_reason: str | None = None
    reset_had_activity: bool = False
    model_override: dict[str, str] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    stored: str | None = field(default=None, repr=False, compare=False)
    """The text that it was read from or last written as, by which a lost update is noticed."""
    stored_as: str | None = field(default=None, repr=False, compare=False)
    """The key under which it was found; some files have another one than its own."""

    def __post_init__(self) -> None:
        check_session_key(self.session_key)
        check_session_id(self.session_id)
        self.created_at = to_local_time(self.created_at)
        self.updated_at = to_local_time(self.updated_at)
        if self.last_resume_marked_at is not None:
            self.last_resume_marked_at = to_local_time(self.last_resume_marked_at)
        self.platform = parse_platform(self.platform) if self.platform else None

    @property
    def key(self) -> str:
        """The key under which it is stored."""
        return self.stored_as or self.session_key

    @property
    def has_new_session(self) -> bool:
        """Whether it leads to another session than it did when it was read or last written."""
        return self.stored is None or json.loads(self.stored)["session_id"] != self.session_id

    def create_successor(
        self, session_id: str, now: datetime, origin: SessionSource | None = None
    ) -> SessionEntry:
        """Return the entry of another session of the chat, which takes the place of this one."""
        origin = origin or self.origin
        return SessionEntry(
            session_key=self.session_key,
            session_id=session_id,
            created_at=now,
            updated_at=now,
            origin=origin,
            display_name=self.display_name or (origin.chat_name if origin else None),
            platform=self.platform,
            chat_type=self.chat_type,
            reset_had_activity=self.last_prompt_tokens > 0,
            extra={PENDING_FIELD: self.extra[PENDING_FIELD]} if PENDING_FIELD in self.extra else {},
            stored=self.stored,
        )

    def clear_interruption(self) -> None:
        """Forget that a turn was interrupted."""
        self.resume_pending = False
        self.resume_reason = self.last_resume_marked_at = None

    def copy(self) -> SessionEntry:
        """Return an entry that can be changed without changing this one."""
        return replace(
            self,
            origin=self.origin and self.origin.copy(),
            model_override=self.model_override and dict(self.model_override),
            extra=dict(self.extra),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what is stored, in the order in which it has always been.

        Raises:
            InvalidInput: the key or the id was made one that would never be read again.
        """
        stored: dict[str, Any] = {
            "session_key": check_session_key(self.session_key),
            "session_id": check_session_id(self.session_id),
            "created_at": to_local_time(self.created_at).isoformat(),
            "updated_at": to_local_time(self.updated_at).isoformat(),
            "display_name": self.display_name,
            "platform": None if self.platform is None else str(self.platform),
            "chat_type": self.chat_type,
        }
        stored |= {name: getattr(self, name) for name in _COUNT_FIELDS}
        marked_at = self.last_resume_marked_at
        stored |= {
            "estimated_cost_usd": self.estimated_cost_usd,
            "cost_status": self.cost_status,
            "expiry_finalized": self.expiry_finalized,
            "suspended": self.suspended,
            "resume_pending": self.resume_pending,
            "resume_reason": self.resume_reason,
            "last_resume_marked_at": to_local_time(marked_at).isoformat() if marked_at else None,
            "is_fresh_reset": self.is_fresh_reset,
            "was_auto_reset": self.was_auto_reset,
            "auto_reset_reason": self.auto_reset_reason,
            "reset_had_activity": self.reset_had_activity,
        }
        override = _drop_secrets(self.model_override)
        stored |= {"model_override": override} if override else {}
        if self.origin is not None:
            stored["origin"] = self.origin.to_dict()
        return stored | self.extra | stored

    def to_text(self) -> str:
        """Return the text that is stored.

        Raises:
            InvalidInput: something in it is not of JSON.
        """
        stored = self.to_dict()
        try:
            return json.dumps(stored)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"the entry of {self.session_key} cannot be stored: {error}; "
                "let what is in `extra` and `origin` be text, numbers, lists and mappings of them"
            ) from error

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SessionEntry:
        """Return the entry that was stored.

        Raises:
            InvalidInput: a required field is missing, a time is none, an id is not safe.
        """
        if not isinstance(stored, Mapping):
            raise InvalidInput("an entry is an object")
        given = dict(stored)
        try:
            values = {name: given.pop(name) for name in ("session_key", "session_id")}
            values |= {name: _parse_time(given.pop(name)) for name in ("created_at", "updated_at")}
        except KeyError as error:
            raise InvalidInput(f"an entry has no {error.args[0]}") from error
        flushed = given.pop("memory_flushed", False)
        values["expiry_finalized"] = bool(given.pop("expiry_finalized", flushed))
        values |= {name: bool(given.pop(name, False)) for name in _FLAG_FIELDS}
        values |= {name: _parse_number(given.pop(name, 0)) for name in _COUNT_FIELDS}
        values["estimated_cost_usd"] = _parse_number(given.pop("estimated_cost_usd", 0.0))
        values |= {name: normalize_text(given.pop(name, None)) for name in _TEXT_FIELDS}
        values["chat_type"] = normalize_text(given.pop("chat_type", None)) or "dm"
        values["cost_status"] = normalize_text(given.pop("cost_status", None)) or "unknown"
        values["last_resume_marked_at"] = parse_optional_time(
            given.pop("last_resume_marked_at", None)
        )
        values["model_override"] = _drop_secrets(given.pop("model_override", None))
        origin = given.pop("origin", None)
        if isinstance(origin, Mapping):
            values["origin"] = SessionSource.from_dict(origin)
        elif origin is not None:  # nothing that can be used, and nothing to throw away
            given["origin"] = origin
        return cls(**values, extra=given)


def to_local_time(time: datetime) -> datetime:
    """Return a time as naive local time.

    Raises:
        InvalidInput: it is none that a calendar has here.
    """
    if not isinstance(time, datetime):
        raise InvalidInput("a time of an entry is a datetime")
    try:
        return time.astimezone().replace(tzinfo=None) if time.tzinfo else time
    except (OverflowError, OSError, ValueError) as error:
        raise InvalidInput("a time of an entry is at the end of the calendar") from error


def parse_optional_time(stored: Any) -> datetime | None:
    """Return an optional time; a broken one costs no entry."""
    try:
        return _parse_time(stored) if stored else None
    except InvalidInput:
        return None


def _parse_time(stored: Any) -> datetime:
    try:
        return to_local_time(datetime.fromisoformat(stored.replace("Z", "+00:00")))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput("a time of an entry is not ISO 8601") from error


def _parse_number(stored: Any) -> Any:
    """Return a number that JSON has too."""
    if isinstance(stored, bool) or not isinstance(stored, (int, float)):
        return 0
    try:
        return stored if math.isfinite(stored) else 0
    except OverflowError:  # more digits than any count has
        return 0


def _drop_secrets(override: Any) -> dict[str, str] | None:
    """Return what of a model override is stored; a key of an interface never is."""
    if not isinstance(override, Mapping):
        return None
    return {name: str(value) for name in _OVERRIDE_FIELDS if (value := override.get(name))} or None


RouteState = Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]


def find_route_state(store: SessionStore, entry: SessionEntry) -> RouteState:
    """Return the state of a route; one that the next message would mend is none that is lost."""
    lost = _find_lost_state(store, entry)
    if lost is not None:
        return lost
    if entry.suspended:
        return "suspended"
    if entry.resume_pending:
        return "resume_pending"
    return "expired" if store.find_expiry_reason(entry) else "active"


def _find_lost_state(store: SessionStore, entry: SessionEntry) -> RouteState | None:
    if store.db is None:
        return None
    row = store.db.get_session(entry.session_id)
    if row is None:
        return "dangling"
    if row["end_reason"] == "compression":
        row = store.db.get_session(store.db.get_compression_tip(entry.session_id)) or row
    ended = row["end_reason"] is not None and row["end_reason"] not in CONTINUABLE_REASONS
    return "stale" if ended and not store.is_ended_elsewhere(entry) else None

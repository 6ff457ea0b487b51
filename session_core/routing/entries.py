"""`SessionEntry`: one route as it is stored and read.

Fields with unknown names survive a round trip. Times are stored as naive local times; a time with a
zone is converted to local time when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from session_core.chats import (
    Platform,
    SessionSource,
    check_session_id,
    check_session_key,
    convert_to_text,
    get_key_platform,
    parse_platform,
)
from session_core.errors import InvalidInput

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
"""The field of the pending boundaries of a chat, whichever session it is in (see `outbox`)."""

_TEXT_FIELDS = ("display_name", "platform", "resume_reason", "auto_reset_reason")


@dataclass(slots=True)
class SessionEntry:
    """The route of a chat: its session, and the state of that session."""

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
    """The text from which the entry was read or as which it was last written. If another text is
    stored, writing is a conflict.
    """
    stored_as: str | None = field(default=None, repr=False, compare=False)
    """The key under which the entry is stored. Some files use a key other than `session_key`"""

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
        """The key under which the entry is stored."""
        return self.stored_as or self.session_key

    @property
    def has_new_session(self) -> bool:
        """True if the session differs from the session in the stored text."""
        return self.stored is None or json.loads(self.stored)["session_id"] != self.session_id

    def create_successor(
        self, session_id: str, now: datetime, origin: SessionSource | None = None
    ) -> SessionEntry:
        """Return an entry that moves the chat to another session and replaces this entry."""
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
            # Pending hook calls belong to the chat, not to its session.
            extra={PENDING_FIELD: self.extra[PENDING_FIELD]} if PENDING_FIELD in self.extra else {},
            # It replaces the text of this entry, so a change in between is a conflict.
            stored=self.stored,
        )

    def clear_interruption(self) -> None:
        """Remove the mark of an interrupted turn."""
        self.resume_pending = False
        self.resume_reason = self.last_resume_marked_at = None

    def copy(self) -> SessionEntry:
        """Return an independent copy of the entry."""
        return replace(
            self,
            origin=self.origin and self.origin.copy(),
            model_override=self.model_override and dict(self.model_override),
            extra=dict(self.extra),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields to store, in the order that Hermes uses.

        Raises:
            InvalidInput: the key or the session id was changed to an invalid value.
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
        # Unknown fields come last and cannot replace known ones.
        return stored | self.extra | stored

    def to_text(self) -> str:
        """Return the entry as the JSON text to store.

        Raises:
            InvalidInput: a value cannot be encoded as JSON.
        """
        stored = self.to_dict()
        try:
            return json.dumps(stored)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"the entry of {self.session_key} cannot be stored: {error}; "
                "`extra` and `origin` may hold only strings, numbers, lists and mappings"
            ) from error

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> SessionEntry:
        """Build an entry from its stored fields.

        Raises:
            InvalidInput: a required field is missing, a time is invalid, or an id is not safe.
        """
        if not isinstance(stored, Mapping):
            raise InvalidInput(f"an entry must be an object, got {type(stored).__name__}")
        fields = dict(stored)
        try:
            values = {name: fields.pop(name) for name in ("session_key", "session_id")}
            values |= {name: _parse_time(fields.pop(name)) for name in ("created_at", "updated_at")}
        except KeyError as error:
            raise InvalidInput(f"the entry has no field {error.args[0]}") from error
        # Older releases of Hermes store `expiry_finalized` under this name.
        flushed = fields.pop("memory_flushed", False)
        values["expiry_finalized"] = bool(fields.pop("expiry_finalized", flushed))
        values |= {name: bool(fields.pop(name, False)) for name in _FLAG_FIELDS}
        values |= {name: _parse_number(fields.pop(name, 0)) for name in _COUNT_FIELDS}
        values["estimated_cost_usd"] = _parse_number(fields.pop("estimated_cost_usd", 0.0))
        values |= {name: convert_to_text(fields.pop(name, None)) for name in _TEXT_FIELDS}
        values["chat_type"] = convert_to_text(fields.pop("chat_type", None)) or "dm"
        values["cost_status"] = convert_to_text(fields.pop("cost_status", None)) or "unknown"
        values["last_resume_marked_at"] = parse_optional_time(
            fields.pop("last_resume_marked_at", None)
        )
        values["model_override"] = _drop_secrets(fields.pop("model_override", None))
        origin = fields.pop("origin", None)
        if isinstance(origin, Mapping):
            values["origin"] = SessionSource.from_dict(origin)
        elif origin is not None:  # not usable; kept as it is
            fields["origin"] = origin
        return cls(**values, extra=fields)


def build_session_fields(entry: SessionEntry) -> dict[str, Any]:
    """Return the fields of an entry for `append_message(create=...)`."""
    origin = entry.origin
    fields: dict[str, Any] = {
        "source": str(entry.platform or get_key_platform(entry.session_key) or "unknown"),
        "session_key": entry.session_key,
        "chat_type": entry.chat_type,
        "display_name": entry.display_name,
    }
    if origin is not None:
        fields |= {
            "user_id": origin.user_id,
            "chat_id": origin.chat_id,
            "thread_id": origin.thread_id,
            "profile_name": origin.profile,
            "origin_json": origin.to_dict(),
        }
    return {name: value for name, value in fields.items() if value is not None}


def build_peer_fields(entry: SessionEntry) -> dict[str, Any]:
    """Return the fields of an entry for `record_gateway_session_peer`."""
    fields = build_session_fields(entry)
    fields.pop("profile_name", None)
    return fields


def to_local_time(time: datetime) -> datetime:
    """Convert a time to a naive local time.

    Raises:
        InvalidInput: the value is not a datetime or is outside the local calendar.
    """
    if not isinstance(time, datetime):
        raise InvalidInput(f"a time must be a datetime, got {type(time).__name__}")
    try:
        return time.astimezone().replace(tzinfo=None) if time.tzinfo else time
    except (OverflowError, OSError, ValueError) as error:
        raise InvalidInput(f"time {time} is outside the local calendar") from error


def parse_optional_time(stored: Any) -> datetime | None:
    """Parse a stored time.

    Return None if it is missing or invalid.
    """
    try:
        return _parse_time(stored) if stored else None
    except InvalidInput:
        return None


def _parse_time(stored: Any) -> datetime:
    try:
        # Python 3.10 does not read `Z`.
        return to_local_time(datetime.fromisoformat(stored.replace("Z", "+00:00")))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput("a time of the entry is not valid ISO 8601") from error


def _parse_number(stored: Any) -> Any:
    """Return a stored number, or 0 if the value is not a finite number."""
    if isinstance(stored, bool) or not isinstance(stored, (int, float)):
        return 0
    try:
        return stored if math.isfinite(stored) else 0
    except OverflowError:  # an integer too large for a float
        return 0


def _drop_secrets(override: Any) -> dict[str, str] | None:
    """Return the fields of a model override that may be stored, which excludes API keys."""
    if not isinstance(override, Mapping):
        return None
    return {name: str(value) for name in _OVERRIDE_FIELDS if (value := override.get(name))} or None


RouteState = Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]
"""The states of a route (see `ResetPolicies.find_route_state`)."""

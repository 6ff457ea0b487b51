"""The protocol of `db.sdk`, a part of the state database that every engine implements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from session_core._typing import Unpack
from session_core.state.columns import MessageColumnUpdates
from session_core.types import (
    AppendManyResult,
    FolderUse,
    MessageRow,
    Revision,
    SessionFilter,
    SessionRow,
)


class SdkStorage(Protocol):
    """Changes and look-ups of single messages and sessions, for interfaces of agent SDKs."""

    def get_sessions(self, session_ids: Iterable[str]) -> dict[str, SessionRow]: ...
    def session_count(self, where: SessionFilter | None = None) -> int: ...
    def distinct_session_cwds(self, include_archived: bool = False) -> list[FolderUse]: ...
    def resolve_resume_session_id(self, session_id: str) -> str:
        """Return the last session with messages, from the tip of the conversation on."""

    def delete_session_if_empty(self, session_id: str) -> bool: ...
    def has_archived_messages(self, session_id: str) -> bool: ...
    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[MessageRow]: ...
    def find_platform_sessions(
        self,
        source: str,
        chat_id: str,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
    ) -> list[SessionRow]: ...
    def find_platform_messages(
        self, session_id: str, platform_message_ids: Iterable[str]
    ) -> dict[str, MessageRow]:
        """Return messages by their ids on a platform, including rewound and compacted messages."""

    def append_to_tip(
        self,
        session_id: str,
        new_messages: Iterable[Mapping[str, Any]],
        *,
        create: Mapping[str, Any] | None = None,
    ) -> AppendManyResult:
        """Append messages to the last continuation of a session, in one transaction."""

    def read_tip_payloads(
        self, session_id: str, limit: int | None = None
    ) -> list[tuple[int, str | None]]:
        """Return the ids and payloads of the newest live messages of the last continuation."""

    def list_payloads(self, session_id: str, limit: int | None = None) -> list[str]:
        """Return the newest payloads in order, also payloads that a summary replaced."""

    def update_message(
        self, message_id: int, /, **columns: Unpack[MessageColumnUpdates]
    ) -> Revision:
        """Overwrite columns of a message. The revision of its session counts a rewind."""

    def pop_message(self, session_id: str) -> MessageRow | None:
        """Rewind the newest live message and return it."""

    def delete_messages(self, session_id: str, message_ids: Sequence[int]) -> int:
        """Delete messages of a session. Unknown ids are skipped."""

"""What an agent has of its session during one turn: history, appends, its id, its environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from session_core.context import child_env, session_context, set_current_session_id
from session_core.errors import Conflict, NotFound
from session_core.keys import SessionSource, platform_of
from session_core.models import Appended, AppendedMany
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from session_core.lifecycle.turn import Turn


class Run:
    """One turn of the agent of a chat.

    `superseded` turns true when a later message of the same chat has begun; what such a run finds
    out about its session is not written back.
    """

    def __init__(
        self,
        entry: SessionEntry,
        store: SessionStore,
        db: StateDatabase,
        source: SessionSource | None = None,
    ) -> None:
        self.entry = entry
        self.source = source or entry.origin
        self.session_key = entry.session_key
        self.session_id = entry.session_id
        self.began_as = entry.session_id
        self.superseded = False
        self.turn: Turn[Any] | None = None
        self._store = store
        self._db = db

    @property
    def platform(self) -> str:
        """The platform of the chat."""
        return str(self.entry.platform or platform_of(self.session_key))

    def history(self) -> list[dict[str, Any]]:
        """Return the conversation so far, as a model is sent it."""
        return self._db.get_messages_as_conversation(self.session_id)

    def append(self, role: str, content: Any = None, **columns: Any) -> Appended:
        """Append a message; the session is created with its first one."""
        appended = self._db.append_message(
            self.session_id, role, content, create=self._fields(), **columns
        )
        self._note(appended)
        return appended

    def append_many(self, messages: Iterable[Mapping[str, Any]]) -> AppendedMany:
        """Append messages in one step."""
        appended = self._db.append_messages(self.session_id, messages, create=self._fields())
        self._note(appended)
        return appended

    def follow(self, new_session_id: str) -> None:
        """Go on in the session in which the agent's compression continues this one.

        The route, its saved copies, the context and the cache agree when this returns. An id that
        is the same writes nothing, and neither does a run that is superseded: somebody has said
        meanwhile in which session the chat is.
        """
        old = self.session_id
        if new_session_id == old:
            return
        self._lead_route(old, new_session_id)
        self.session_id = new_session_id
        if not self.superseded:
            self.make_current()
            if self.turn is not None:
                self.turn.moved(old, new_session_id)

    def make_current(self) -> None:
        """Make this the current session where it is not, as after a step in another context."""
        set_current_session_id(self.session_id)

    def child_env(self) -> dict[str, str]:
        """Return the environment for a subprocess of this turn."""
        return child_env()

    def context(self) -> AbstractContextManager[None]:
        """Make this the current session for what runs inside."""
        origin = self.source
        return session_context(
            inherit=False,
            session_id=self.session_id,
            session_key=self.session_key,
            platform=self.platform,
            chat_id=origin.chat_id if origin else None,
            chat_name=origin.chat_name if origin else None,
            thread_id=origin.thread_id if origin else None,
            user_id=origin.user_id if origin else None,
            user_name=origin.user_name if origin else None,
            message_id=origin.message_id if origin else None,
            profile=origin.profile if origin else None,
        )

    def _lead_route(self, old: str, new: str) -> None:
        if self.superseded:
            return
        try:
            self.entry = self._store.follow(self.session_key, old, new)
        except (Conflict, NotFound):
            self.superseded = True

    def _fields(self) -> dict[str, Any]:
        return self._store.session_fields(self.entry)

    def _note(self, appended: Appended | AppendedMany) -> None:
        if self.turn is not None:
            self.turn.appended(self.session_id, appended)

"""Whether the session that an agent names goes on from the one in which its chat is.

What an agent has of its session during one turn: history, appends, its id, its environment.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from session_core.aio import WorkerThreads, get_worker_threads
from session_core.chats import SessionSource, check_session_id, get_key_platform
from session_core.context import build_child_env, session_context, set_current_session_id
from session_core.errors import BlockingCallWarning, Conflict, InvalidInput, NotFound, SessionError
from session_core.event_loops import get_running_loop
from session_core.lifecycle.cache_table import EMPTY_REVISION
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore
from session_core.state.async_db import check_no_transaction
from session_core.state.protocol import StateDatabase
from session_core.types import AppendManyResult, AppendResult, SessionRow

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from session_core.compression.async_compressor import AsyncCompressor
    from session_core.compression.compressor import Compressor
    from session_core.compression.summarizers import Summarizer
    from session_core.compression.types import CompressionResult
    from session_core.lifecycle.cache_table import CachedTurn


def check_continuation(
    store: SessionStore, db: StateDatabase, session_key: str, old: str, new: str
) -> None:
    """Refuse a session in which the chat would lose its conversation, or be in that of another.

    Raises:
        InvalidInput: the id is not safe, or the session is that of another chat.
        NotFound: there is no such session.
    """
    row = db.get_session(check_session_id(new))
    if row is None:
        raise NotFound(f"no session {new!r} to go on in; store it before it is named")
    if old in {row["parent_session_id"], *db.get_compression_lineage(new)}:
        return
    if not _is_chat_session(store, row, session_key):
        raise InvalidInput(f"session {new!r} is that of another chat and continues not {old!r}")


def _is_chat_session(store: SessionStore, row: SessionRow, session_key: str) -> bool:
    """Whether a session belongs to this chat or to none."""
    if row.get("session_key"):
        return row["session_key"] == session_key
    led = store.lookup_by_session_id(row["id"])
    return led is None or led.key == session_key


A = TypeVar("A", AppendResult, AppendManyResult)
T = TypeVar("T")

_warned: weakref.WeakSet[SessionStore] = weakref.WeakSet()
"""The stores of which a run has blocked an event loop: it warns once for each."""


class AgentTurn:
    """One turn of the agent of a chat.

    A coroutine awaits `aappend`, `aappend_many`, `ahistory`, `afollow` and `acompress`: the methods
    without the `a` wait for the database, and block an event loop that runs in their thread.
    `superseded` turns true when a later message of the same chat has begun, or the chat has left
    its session; what such a run finds out about its session is not written back. `closed_as` is why
    the session was ended meanwhile, `turn.how` why the agent was built, or that it comes from
    another session.
    """

    def __init__(
        self,
        entry: SessionEntry,
        store: SessionStore,
        db: StateDatabase,
        source: SessionSource | None = None,
    ) -> None:
        self._entry = entry
        self._session_id = entry.session_id
        self.source = source or entry.origin
        self.session_key = entry.key
        self.superseded = False
        self.closed_as: str | None = None
        self.told_end = False
        self.turn: CachedTurn[Any] | None = None
        self.token: str | None = None
        self.number = 0
        self.tell_start: Callable[[], object] = lambda: None
        """Called when an append of this turn has created the session."""
        self._has_created = False
        self._store = store
        self._db = db
        self._stored = db.get_session(self.session_id) is not None

    @property
    def session_id(self) -> str:
        """The session that it is in by now; `follow` goes to another one."""
        return self._session_id

    @property
    def entry(self) -> SessionEntry:
        """The entry of the chat, as it was when the turn began or followed; it is a copy."""
        return self._entry.copy()

    @property
    def platform(self) -> str:
        """The platform of the chat."""
        return str(self._entry.platform or get_key_platform(self.session_key))

    def history(self) -> list[dict[str, Any]]:
        """Return the conversation so far, as a model is sent it."""
        self._warn_on_loop("history")
        return self._db.get_messages_as_conversation(self.session_id)

    def append(self, role: str, content: Any = None, **columns: Any) -> AppendResult:
        """Append a message; the session is created with its first one.

        Where somebody else has compressed it meanwhile, the message goes where that goes on.
        """
        self._warn_on_loop("append")
        return self._append_to_tip(
            lambda: self._db.append_message(
                self.session_id, role, content, create=self._get_session_fields(), **columns
            )
        )

    def append_many(self, messages: Iterable[Mapping[str, Any]]) -> AppendManyResult:
        """Append messages in one step."""
        self._warn_on_loop("append_many")
        given = list(messages)
        return self._append_to_tip(
            lambda: self._db.append_messages(
                self.session_id, given, create=self._get_session_fields()
            )
        )

    def follow(self, new_session_id: str) -> None:
        """Go on in the session in which the agent's compression continues this one.

        The route, its saved copies, the context and the cache agree when this returns. An id that
        is the same writes nothing, and neither does a run that is superseded: somebody has said
        meanwhile in which session the chat is.

        Raises:
            InvalidInput: the id is not safe, or the session is that of another chat.
            NotFound: there is no such session.
        """
        self._warn_on_loop("follow")
        old = self.session_id
        if new_session_id == old:
            return
        if not self.superseded:
            check_continuation(self._store, self._db, self.session_key, old, new_session_id)
        self._move_to_session(new_session_id)
        if self.turn is not None and not self.superseded:
            self.turn.note_moved(old, new_session_id)

    def catch_up(self) -> None:
        """Go on where somebody else has compressed the session to.

        The agent is kept no longer than this turn: it does not know what that begins with.
        """
        tip = self._find_tip()
        if tip != self.session_id:
            self._move_to_session(tip)
            if self.turn is not None:
                self.turn.forget_agent()

    def compress(
        self, compressor: Compressor, summarizer: Summarizer | None = None, **options: Any
    ) -> CompressionResult:
        """Compress the session of this turn and go on in what that came to.

        A compressor without a store or hooks has those of the runtime meanwhile.

        Raises:
            Conflict: a later message of the chat is at work by now.
            InvalidInput: the compressor is an async one; `acompress` awaits it.
            NotCompressed: nothing was changed; its code says why.
        """
        self._warn_on_loop("compress")
        with self._guard_compression():
            equipped = compressor.with_store(self._store)
            done = equipped.compress(self.session_id, summarizer, **options)
            if inspect.iscoroutine(done):
                done.close()
                raise InvalidInput("an async compressor is awaited: await run.acompress(...)")
            self._note_compression(done)
        return done

    async def ahistory(self) -> list[dict[str, Any]]:
        """Return the conversation so far, while the loop goes on."""
        return await self._run_in_thread(self.history, get_worker_threads(self._db, "looks"))

    async def aappend(self, role: str, content: Any = None, **columns: Any) -> AppendResult:
        """Append a message as `append` does, while the loop goes on.

        A caller that is cancelled gets control back at once; a message whose append has begun is
        stored.
        """
        append = partial(self.append, role, content, **columns)
        return await self._run_in_thread(append, get_worker_threads(self._db, "changes"))

    async def aappend_many(self, messages: Iterable[Mapping[str, Any]]) -> AppendManyResult:
        """Append messages in one step, while the loop goes on."""
        append = partial(self.append_many, list(messages))
        return await self._run_in_thread(append, get_worker_threads(self._db, "changes"))

    async def afollow(self, new_session_id: str) -> None:
        """Go on in another session as `follow` does, while the loop goes on."""
        follow = partial(self.follow, new_session_id)
        await self._run_in_thread(follow, get_worker_threads(self._db, "changes"))

    async def acompress(
        self,
        compressor: Compressor | AsyncCompressor,
        summarizer: Summarizer | None = None,
        **options: Any,
    ) -> CompressionResult:
        """Compress as `compress` does, while the loop goes on: an async summarizer runs on it."""
        from session_core.compression.async_compressor import AsyncCompressor  # noqa: PLC0415 -- as the package does

        inner = compressor.compressor if isinstance(compressor, AsyncCompressor) else compressor
        compress = partial(self.compress, inner, summarizer, **options)
        return await self._run_in_thread(compress, get_worker_threads(inner, "calls"))

    def announce_start(self) -> None:
        """Tell that this turn has created its session, once that is committed.

        Nothing is told of a session that has ended meanwhile: its end was told already.
        """
        if self._has_created and not self._db.in_transaction:
            row = self._db.get_session(self.session_id)
            self._has_created = row is None
            if row is not None and row["ended_at"] is None:
                self.tell_start()

    def make_current(self) -> None:
        """Make this the current session where it is not, as after a step in another context."""
        set_current_session_id(self.session_id)

    def build_child_env(self) -> dict[str, str]:
        """Return the environment for a subprocess of this turn."""
        return build_child_env()

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

    async def _run_in_thread(self, function: Callable[[], T], threads: WorkerThreads) -> T:
        check_no_transaction(self._db)
        before = self.session_id
        try:
            return await threads.run(function)
        finally:
            # What a thread makes current is so in its own context alone.
            if self.session_id != before and not self.superseded:
                self.make_current()

    def _warn_on_loop(self, method: str) -> None:
        if get_running_loop() is None or self._store in _warned:
            return
        _warned.add(self._store)
        warnings.warn(
            f"run.{method} blocks the event loop while it waits for the database; "
            f"await run.a{method} instead",
            BlockingCallWarning,
            stacklevel=3,
        )

    def _append_to_tip(self, append: Callable[[], A]) -> A:
        """Append to a session that nobody compresses meanwhile."""
        while True:
            with self._db.transaction():
                is_there = self._find_tip() == self.session_id
                if is_there:
                    appended = append()
            if is_there:
                self._stored = True
                self._note_append(appended)
                self._has_created = self._has_created or appended.created
                self.announce_start()
                return appended
            self.catch_up()

    def _find_tip(self) -> str:
        row = self._db.get_session(self.session_id)
        if row is None and self._stored:
            return self._find_routed_session()
        if row is None or row["end_reason"] != "compression":
            return self.session_id
        return self._db.get_compression_tip(self.session_id)

    def _find_routed_session(self) -> str:
        """Return the session that the chat is in, since the one of this turn was deleted."""
        led = None if self.superseded else self._store.peek_session_id(self.session_key)
        if led is None:
            raise Conflict(f"session {self.session_id} was deleted meanwhile; nothing goes there")
        return led

    def _move_to_session(self, session_id: str) -> None:
        self._move_route(self.session_id, session_id)
        self._session_id = session_id
        if not self.superseded:
            self.make_current()

    @contextmanager
    def _guard_compression(self) -> Iterator[None]:
        """Go on where the conversation does, also where that is told by an error."""
        if self.superseded:
            raise Conflict(f"{self.session_key} is at work on a later message; leave it to that")
        try:
            yield
        except BaseException:
            with suppress(SessionError):
                self.catch_up()
            raise

    def _note_compression(self, done: CompressionResult) -> None:
        if done.session_id == self.session_id:
            self._note_append(done)
        else:
            self.follow(done.session_id)

    def _move_route(self, old: str, new: str) -> None:
        if self.superseded:
            return
        try:
            self._entry = self._store.move_to_continuation(self.session_key, old, new)
        except (Conflict, NotFound):
            self.superseded = True

    def _get_session_fields(self) -> dict[str, Any]:
        return self._store.build_session_fields(self._entry)

    def _note_append(self, appended: AppendResult | AppendManyResult | CompressionResult) -> None:
        if self.turn is not None:
            self.turn.note_appended(self.session_id, appended)
        if appended.before == EMPTY_REVISION:
            self._end_left_session()

    def _end_left_session(self) -> None:
        """End a session that its chat had left before the first message of it was stored."""
        with suppress(SessionError):  # the message is stored: the agent must not store it twice
            reason = self.closed_as or self._find_reset_reason()
            if reason is not None:
                self._db.end_session(self.session_id, reason)

    def _find_reset_reason(self) -> str | None:
        now_in = self._store.peek_session_id(self.session_key)
        if now_in in {None, self.session_id}:
            return None
        went_on = self._db.get_compression_tip(now_in) == self.session_id
        return None if went_on else "session_reset"

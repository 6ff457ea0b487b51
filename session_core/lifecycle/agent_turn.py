"""`AgentTurn`: history, appends, compression, session id and environment of one turn."""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from session_core._typing import Unpack
from session_core.aio import WorkerThreads, get_worker_threads
from session_core.chats import SessionSource, check_session_id, get_key_platform
from session_core.compression.compressor import AsyncCompressor, Compressor
from session_core.compression.summarizers import Summarizer
from session_core.compression.types import CompressionResult
from session_core.context import build_child_env, session_context, set_current_session_id
from session_core.errors import BlockingCallWarning, Conflict, InvalidInput, NotFound, SessionError
from session_core.event_loops import get_running_loop
from session_core.lifecycle.cache_table import EMPTY_REVISION
from session_core.lifecycle.replies import AgentResult
from session_core.routing.entries import SessionEntry
from session_core.routing.session_store import SessionStore
from session_core.state.async_db import check_no_transaction
from session_core.state.columns import NewMessageColumns
from session_core.state.protocol import StateDatabase
from session_core.types import AppendManyResult, AppendResult, SessionRow

if TYPE_CHECKING:
    from session_core.lifecycle.cache_table import CachedTurn


def check_continuation(
    store: SessionStore, db: StateDatabase, session_key: str, old: str, new: str
) -> None:
    """Check that a chat may continue in the session `new`.

    Raises:
        InvalidInput: the id is not valid, or the session belongs to another chat.
        NotFound: the session does not exist.
    """
    row = db.get_session(check_session_id(new))
    if row is None:
        raise NotFound(f"session {new!r} does not exist; store it before the turn names it")
    if old in {row["parent_session_id"], *db.get_compression_lineage(new)}:
        return
    if not _is_chat_session(store, row, session_key):
        raise InvalidInput(
            f"session {new!r} belongs to another chat and is not a continuation of {old!r}"
        )


def _is_chat_session(store: SessionStore, row: SessionRow, session_key: str) -> bool:
    """Return True if a session belongs to this chat or to no chat."""
    if row.get("session_key"):
        return row["session_key"] == session_key
    entry = store.lookup_by_session_id(row["id"])
    return entry is None or entry.key == session_key


A = TypeVar("A", AppendResult, AppendManyResult)
T = TypeVar("T")

_warned: weakref.WeakSet[SessionStore] = weakref.WeakSet()
"""The stores for which a blocking call on an event loop was reported."""


class AgentTurn:
    """One turn of the agent of a chat.

    Coroutines call `aappend`, `aappend_many`, `ahistory`, `afollow` and `acompress`: the methods
    without the `a` prefix wait for the database and would block the event loop.

    `superseded` becomes True when a later message of the chat has begun, or when the chat has left
    the session; such a turn no longer changes the chat. `closed_as` is the end reason if the
    session was ended meanwhile. `turn.how` is the reason why the agent was built, or "switched" if
    the agent comes from another session.
    """

    def __init__(
        self,
        entry: SessionEntry,
        store: SessionStore,
        db: StateDatabase,
        source: SessionSource | None = None,
        *,
        has_session: bool,
    ) -> None:
        self._entry = entry
        self._session_id = entry.session_id
        self.source = source or entry.origin
        self.session_key = entry.key
        self.superseded = False
        self.closed_as: str | None = None
        self.is_end_reported = False
        self.turn: CachedTurn[Any] | None = None
        self.token: str | None = None
        self.number = 0
        self.report_start: Callable[[], object] = lambda: None
        """Called after an append of this turn has created the session."""
        self._has_created = False
        self._store = store
        self._db = db
        self._stored = has_session

    @property
    def session_id(self) -> str:
        """The current session of the turn, which `follow` changes."""
        return self._session_id

    @property
    def entry(self) -> SessionEntry:
        """A copy of the chat's entry as of the start of the turn or the last `follow`."""
        return self._entry.copy()

    @property
    def platform(self) -> str:
        """The platform of the chat."""
        return str(self._entry.platform or get_key_platform(self.session_key))

    def history(self) -> list[dict[str, Any]]:
        """Return the conversation so far, in the form that is sent to a model."""
        self._warn_if_blocking("history")
        return self._db.get_messages_as_conversation(self.session_id)

    def append(
        self, role: str, content: Any = None, **columns: Unpack[NewMessageColumns]
    ) -> AppendResult:
        """Append a message to the session of this turn.

        The first append creates the session. If another process has compressed the session
        meanwhile, the message goes to the continuation. The agent cache records the append, so that
        the agent is not rebuilt.

        Args:
            role: for example `user`, `assistant` or `tool`.
            content: a text, or any JSON value, such as a list of parts.
            columns: other columns of the message, as in `SessionDB.append_message`.
        """
        self._warn_if_blocking("append")
        return self._append_to_tip(
            lambda create: self._db.append_message(
                self.session_id, role, content, create=create, **columns
            )
        )

    def append_many(self, messages: Iterable[Mapping[str, Any]]) -> AppendManyResult:
        """Append messages in one transaction."""
        self._warn_if_blocking("append_many")
        batch = list(messages)
        return self._append_to_tip(
            lambda create: self._db.append_messages(self.session_id, batch, create=create)
        )

    def follow(self, new_session_id: str) -> None:
        """Continue in the session to which the agent's compression has moved the conversation.

        When this method returns, the route, its stored copies, the context and the cache agree. If
        the id is unchanged, nothing is written. A superseded turn writes nothing either, because
        the chat was moved meanwhile.

        Raises:
            InvalidInput: the id is not valid, or the session belongs to another chat.
            NotFound: the session does not exist.
        """
        self._warn_if_blocking("follow")
        old = self.session_id
        if new_session_id == old:
            return
        if not self.superseded:
            check_continuation(self._store, self._db, self.session_key, old, new_session_id)
        self._move_to_session(new_session_id)
        if self.turn is not None and not self.superseded:
            self.turn.note_moved(old, new_session_id)

    def catch_up(self) -> None:
        """Continue in the tip if another process has compressed the session.

        The agent is removed from the cache, because it does not know the summary of the new
        session.
        """
        tip = self._find_tip(self._db.get_session(self.session_id))
        if tip != self.session_id:
            self._move_to_session(tip)
            if self.turn is not None:
                self.turn.forget_agent()

    def compress(
        self, compressor: Compressor, summarizer: Summarizer | None = None, **options: Any
    ) -> CompressionResult:
        """Compress the session of this turn and continue in the result.

        If the compressor has no session store or hooks, it uses the store and hooks of the runtime.

        Args:
            compressor: the compressor of the home.
            summarizer: as in `Compressor.compress`.
            options: other arguments of `Compressor.compress`, for example `keep_last`.

        Raises:
            Conflict: a later message of the chat is being answered.
            InvalidInput: the compressor is async; use `acompress`.
            NotCompressed: nothing was changed; its code is the reason.
        """
        self._warn_if_blocking("compress")
        with self._guard_compression():
            bound = compressor.with_store(self._store)
            result = bound.compress(self.session_id, summarizer, **options)
            if inspect.iscoroutine(result):
                result.close()
                raise InvalidInput("the compressor is async; call `await run.acompress(...)`")
            self._note_compression(result)
        return result

    async def ahistory(self) -> list[dict[str, Any]]:
        """Return the conversation so far without blocking the event loop."""
        return await self._run_in_thread(self.history, get_worker_threads(self._db, "looks"))

    async def aappend(
        self, role: str, content: Any = None, **columns: Unpack[NewMessageColumns]
    ) -> AppendResult:
        """Append a message without blocking the event loop.

        A caller that is cancelled gets control back at once; an append that has begun is still
        stored.
        """
        append = partial(self.append, role, content, **columns)
        return await self._run_in_thread(append, get_worker_threads(self._db, "changes"))

    async def aappend_many(self, messages: Iterable[Mapping[str, Any]]) -> AppendManyResult:
        """Append messages in one transaction without blocking the event loop."""
        # A generator belongs to the caller's thread, so it is read before the call.
        append = partial(self.append_many, list(messages))
        return await self._run_in_thread(append, get_worker_threads(self._db, "changes"))

    async def afollow(self, new_session_id: str) -> None:
        """Continue in another session without blocking the event loop."""
        follow = partial(self.follow, new_session_id)
        await self._run_in_thread(follow, get_worker_threads(self._db, "changes"))

    async def acompress(
        self,
        compressor: Compressor | AsyncCompressor,
        summarizer: Summarizer | None = None,
        **options: Any,
    ) -> CompressionResult:
        """Compress the session without blocking the event loop.

        An async summarizer runs on the event loop.
        """
        from session_core.compression.compressor import AsyncCompressor  # noqa: PLC0415 -- slow to import

        inner = compressor.compressor if isinstance(compressor, AsyncCompressor) else compressor
        compress = partial(self.compress, inner, summarizer, **options)
        return await self._run_in_thread(compress, get_worker_threads(inner, "calls"))

    def announce_start(self) -> None:
        """Call the start hooks if this turn has created the session and it is committed.

        The start of a session that has ended meanwhile is not reported, because its end was
        reported already.
        """
        # The transaction of the caller may still be rolled back, and the session with it.
        if self._has_created and not self._db.in_transaction:
            row = self._db.get_session(self.session_id)
            self._has_created = row is None
            if row is not None and row["ended_at"] is None:
                self.report_start()

    def make_current(self) -> None:
        """Make the session of this turn the current session of the running context."""
        set_current_session_id(self.session_id)

    def build_child_env(self) -> dict[str, str]:
        """Return the environment for a subprocess of this turn."""
        return build_child_env()

    def context(self) -> AbstractContextManager[None]:
        """Make the session of this turn the current session inside the block."""
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
        # The thread would wait for the transaction that this task keeps open.
        check_no_transaction(self._db)
        before = self.session_id
        try:
            return await threads.run(function)
        finally:
            # The thread has set the current session in its own context only.
            if self.session_id != before and not self.superseded:
                self.make_current()

    def _warn_if_blocking(self, method: str) -> None:
        if get_running_loop() is None or self._store in _warned:
            return
        _warned.add(self._store)
        warnings.warn(
            f"run.{method} blocks the event loop while it waits for the database; "
            f"await run.a{method} instead",
            BlockingCallWarning,
            stacklevel=3,
        )

    def _append_to_tip(self, append: Callable[[dict[str, Any] | None], A]) -> A:
        """Append in one transaction with a check that no other process has compressed the session.

        `append` receives the fields of the session if the session does not exist, else None.
        """
        while True:
            # In one transaction: another process must not compress the session in between.
            with self._db.transaction():
                is_open = self._is_open()
                row = None if is_open else self._db.get_session(self.session_id)
                is_tip = is_open or self._find_tip(row) == self.session_id
                if is_tip:
                    is_new = row is None and not is_open
                    appended = append(self._get_session_fields() if is_new else None)
            if is_tip:
                self._stored = True
                # After the commit: the cache must not follow an append that is rolled back.
                self._note_append(appended)
                self._has_created = self._has_created or appended.created
                self.announce_start()
                return appended
            self.catch_up()

    def _is_open(self) -> bool:
        """Return True if the session is stored and has not ended.

        The append needs the revision anyway and shares it, so this check costs no additional read.
        """
        if not self._stored:
            return False
        try:
            return self._db.get_revision(self.session_id).ended_at is None
        except NotFound:
            return False

    def _find_tip(self, row: SessionRow | None) -> str:
        """Return the session that continues the session of this turn.

        `row` is the current row of the session, or None if it is not stored.
        """
        if row is None and self._stored:
            return self._find_routed_session()
        if row is None or row["end_reason"] != "compression":
            return self.session_id
        return self._db.get_compression_tip(self.session_id)

    def _find_routed_session(self) -> str:
        """Return the current session of the chat after the session of this turn was deleted."""
        session_id = None if self.superseded else self._store.peek_session_id(self.session_key)
        if session_id is None:
            raise Conflict(f"session {self.session_id} was deleted; the message was not stored")
        return session_id

    def _move_to_session(self, session_id: str) -> None:
        self._move_route(self.session_id, session_id)
        self._session_id = session_id
        if not self.superseded:
            self.make_current()

    @contextmanager
    def _guard_compression(self) -> Iterator[None]:
        """Refuse compression in a superseded turn, and move to the tip if the block fails."""
        if self.superseded:
            raise Conflict(
                f"{self.session_key} is answering a later message; compress in that turn"
            )
        try:
            yield
        except BaseException:
            # The compression may have been committed before it failed.
            with suppress(SessionError):
                self.catch_up()
            raise

    def _note_compression(self, result: CompressionResult) -> None:
        if result.session_id == self.session_id:
            self._note_append(result)
        else:
            self.follow(result.session_id)

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
        """End the session if the chat had left it before its first message was stored."""
        # The message is stored: an error would make the caller store it again.
        with suppress(SessionError):
            reason = self.closed_as or self._find_reset_reason()
            if reason is not None:
                self._db.end_session(self.session_id, reason)

    def _find_reset_reason(self) -> str | None:
        routed_id = self._store.peek_session_id(self.session_key)
        if routed_id in {None, self.session_id}:
            return None
        is_continued = self._db.get_compression_tip(routed_id) == self.session_id
        return None if is_continued else "session_reset"


Agent = Callable[[AgentTurn, Any], AgentResult | Awaitable[AgentResult]]
"""Answers a message in a turn: with text, or with a mapping of results."""

AgentFactory = Callable[[AgentTurn], Agent | Awaitable[Agent]]
"""Makes the agent of a session."""

"""A turn of an agent, from a message to its reply.

Only the agent itself is awaited or called in between; what comes before and after it is the same
for sync and async. A run that was superseded by a later message of its chat, or whose chat was put
into another session meanwhile, writes nothing back; the later one has an agent of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from session_core.errors import InvalidInput, NotFound, SessionError
from session_core.hooks import Hooks
from session_core.isolated import Report, log_fault, off_loop
from session_core.keys import SessionSource, check_session_id
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.at_work import AtWork
from session_core.lifecycle.calling import called, settled
from session_core.lifecycle.replies import normalize_empty_agent_response
from session_core.lifecycle.result import Agent, Factory, Reply, Result, known, model_of, told_by
from session_core.lifecycle.run import Run
from session_core.lifecycle.titles import PendingTitles
from session_core.lifecycle.turn import Turn
from session_core.routing.entries import SessionEntry
from session_core.routing.notes import new_token
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase


class Turns:
    """Runs the agents of all chats, and knows which of them are at work."""

    def __init__(
        self,
        store: SessionStore,
        build: Factory,
        *,
        db: StateDatabase | None = None,
        cache: AgentCache[Agent] | None = None,
        hooks: Hooks | None = None,
        signature: Callable[[SessionEntry], Any] = model_of,
        report: Report = log_fault,
    ) -> None:
        state = store.db if db is None else db
        if state is None:
            raise NotFound("a runtime keeps what is said, and needs a state database")
        if None not in {hooks, store.hooks} and hooks is not store.hooks:
            raise InvalidInput(
                "the store has hooks of its own; give it none, or give both the same"
            )
        self.store = store
        self.db = state
        self.hooks = store.hooks = hooks or store.hooks or Hooks(report=report)
        self.cache: AgentCache[Agent] = AgentCache(state, report=report) if cache is None else cache
        self._build = build
        self._signature = signature
        self._report = store.report = report
        self._at_work = AtWork()
        self._titles = PendingTitles(state, report)
        if state.kind == "hermes":
            from session_core.ledger.marks import keep_marks  # noqa: PLC0415 -- the others need none

            keep_marks(store, state, report)
        elif state.kind == "own":
            with self._reporting("the routes could not be checked against their sessions"):
                store.check_against_state()

    @property
    def running(self) -> list[str]:
        """The keys of the chats in which an agent is at work."""
        return self._at_work.keys()

    def handle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; an async agent runs on a loop of its own.

        Raises:
            Denied: the runtime is shutting down.
        """
        run = self._begin(source)
        try:
            with self._working(run):
                return self._answer(run, message)
        finally:
            self._forget(run)

    async def ahandle(self, source: SessionSource, message: Any) -> Reply:
        """Answer a message of a chat; the loop goes on meanwhile, also while the agent is sync.

        A sync agent cannot be stopped: where the task is cancelled, it waits until that has ended.

        Raises:
            Denied: the runtime is shutting down.
        """
        run = await self._begin_aside(source)
        try:
            with self._working(run):
                return await self._answered(run, message)
        finally:
            if run.token is not None:
                await off_loop(partial(self._forget, run), to_its_end=True)

    def reset(self, session_key: str) -> str:
        """Begin a new session because somebody asked, and say so, whatever a hook did."""
        entry = self.store.reset_session(session_key)
        self._leave(session_key)
        self.cache.evict(session_key)
        if entry is None:
            return "New session: your next message begins it."
        return f"Session reset. New session {entry.session_id} begins with your next message."

    def _answer(self, run: Run, message: Any) -> Reply:
        try:
            with self._claim(run) as turn:
                agent = turn.agent
                if agent is None:
                    agent = turn.keep(settled(self._build(run)))
                result = settled(agent(run, message))
                run.make_current()
                return self._finish(run, result)
        except BaseException:
            self._end(run, completed=False)
            raise

    async def _answered(self, run: Run, message: Any) -> Reply:
        try:
            async with self._claim(run) as turn:
                agent = turn.agent
                if agent is None:
                    agent = turn.keep(await called(self._build, run))
                result = await called(agent, run, message)
                run.make_current()
                return await off_loop(partial(self._finish, run, result), to_its_end=True)
        except GeneratorExit:  # its loop is gone, and nothing can be awaited any more
            self._forget(run)
            raise
        except BaseException:
            await off_loop(partial(self._end, run, completed=False), to_its_end=True)
            raise

    def _begin(self, source: SessionSource) -> Run:
        """Let a message come in; the step that stores this notes that a turn has begun.

        From then on no watcher, of whatever process, ends the session in the middle of the turn.
        """
        self._at_work.refuse_if_stopping()
        token = new_token()
        entry = self.store.get_or_create_session(source, turn=token)
        try:
            run = Run(entry, self.store, self.db, source)
            run.token = token
            self._tell_start(run, entry)
        except BaseException:
            self.store.drop_turn(entry.key, token)
            raise
        return run

    async def _begin_aside(self, source: SessionSource) -> Run:
        begun: list[Run] = []
        try:
            await off_loop(lambda: begun.append(self._begin(source)), to_its_end=True)
        except BaseException:
            for run in begun:  # nobody waits for it any more
                await off_loop(partial(self._forget, run), to_its_end=True)
            raise
        return begun[0]

    def _tell_start(self, run: Run, entry: SessionEntry) -> None:
        """Tell that a session begins; one that is in use has no end that was told."""
        self.hooks.reopened(run.session_id)
        if entry.is_fresh_reset or entry.was_auto_reset:
            # It would take along what was said before the reset, where that was never stored.
            self.cache.evict(run.session_key, unless=run.session_id)
        if self.db.get_session(run.session_id) is None:
            self.hooks.once(
                "on_session_start",
                session_id=run.session_id,
                platform=run.platform,
                **known(entry.model_override or {}, "model"),
            )

    def _forget(self, run: Run) -> None:
        """Take the note back, unless that is done or a later turn has put its own there."""
        token, run.token = run.token, None
        if token is not None:
            with self._reporting(f"{run.session_key} stays noted as at work"):
                self.store.drop_turn(run.session_key, token)

    def _claim(self, run: Run) -> Turn[Agent]:
        signature = self._signature(run.entry)
        run.turn = self.cache.claim(run.session_key, signature, run.session_id, alone=True)
        return run.turn

    @contextmanager
    def _working(self, run: Run) -> Iterator[None]:
        with self._at_work.entered(run), run.context():
            run.make_current()
            yield

    def _leave(self, session_key: str) -> None:
        """Note that a chat has left its session, whoever is still at work there."""
        self._titles.drop(session_key)
        self._at_work.supersede(session_key)

    def _finish(self, run: Run, result: Result) -> Reply:
        """Write back what the turn has changed, and say what a person is answered."""
        told = told_by(result)
        failed = bool(told.get("failed"))
        whole = not any(told.get(flag) for flag in ("failed", "partial", "interrupted"))
        history_len = 0
        with self._reporting(f"how long the session of {run.session_key} is cannot be told"):
            history_len = self.db.message_count(run.session_id) if failed else 0
        text = normalize_empty_agent_response(
            told, told.get("final_response"), history_len=history_len
        )
        # The reply is there, and is worth more than what cannot be stored beside it.
        with self._reporting(f"what a turn of {run.session_key} has changed is not stored"):
            self._write_back(run, told, whole=whole)
        superseded = run.superseded
        if told.get("compression_exhausted") and not superseded:
            with self._reporting(f"{run.session_key} could not be reset"):
                self.reset(run.session_key)
        self._end(
            run,
            completed=whole,
            interrupted=bool(told.get("interrupted")),
            **known(told, "model", "task_id", "turn_id"),
        )
        return Reply(text, run.session_id, run.session_key, superseded, failed)

    def _write_back(self, run: Run, told: Mapping[str, Any], *, whole: bool) -> None:
        with self._reporting(f"{run.session_key} does not follow its agent"):
            self._follow(run, told.get("session_id"))
        if not run.superseded:
            run.catch_up()
        if run.superseded:
            return
        tokens, token = told.get("last_prompt_tokens"), run.token
        if not self.store.end_turn(
            run.session_key, run.session_id, tokens, finished=whole, token=token
        ):
            run.superseded = True
            return
        run.token = None
        if whole:
            self._titles.apply(run.session_key, run.session_id)

    def _follow(self, run: Run, goes_on_in: str | None) -> None:
        """Go where the agent says that it is; one that is elsewhere is kept no longer."""
        if not goes_on_in:
            return
        try:
            if self.db.get_compression_tip(check_session_id(goes_on_in)) != run.session_id:
                run.follow(goes_on_in)
        except (InvalidInput, NotFound):
            if run.turn is not None:
                run.turn.forget()
            raise

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        try:
            yield
        except (SessionError, OSError) as error:
            self._report(what, error)

    def _end(self, run: Run, *, completed: bool, interrupted: bool = False, **more: Any) -> None:
        """Tell that a turn has ended, once: whoever cut it off has told it already."""
        self._forget(run)
        if run.superseded and run.turn is not None:
            run.turn.forget()
        if self._at_work.take_end(run):
            self.hooks.call(
                "on_session_end",
                session_id=run.session_id,
                platform=run.platform,
                completed=completed,
                interrupted=interrupted,
                **more,
            )

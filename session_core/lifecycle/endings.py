"""What a turn of an agent leaves behind: the reply, its session and route, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from session_core.errors import InvalidInput, NotFound, SessionError
from session_core.hooks import Hooks
from session_core.isolated import Report, log_fault
from session_core.keys import check_session_id
from session_core.lifecycle.agent_cache import AgentCache
from session_core.lifecycle.at_work import AtWork
from session_core.lifecycle.replies import normalize_empty_agent_response
from session_core.lifecycle.result import Agent, Factory, Reply, Result, known, model_of, told_by
from session_core.lifecycle.run import Run
from session_core.lifecycle.titles import PendingTitles
from session_core.routing.entries import SessionEntry
from session_core.routing.store import SessionStore, check_database
from session_core.state.contract import StateDatabase


class Endings:
    """Writes back what turns have changed, unless a later one of the chat has begun."""

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
        check_database(store, state)
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
        self._closings: set[Future[Any]] = set()
        self._titles = PendingTitles(state, report)
        if state.kind == "hermes":
            from session_core.ledger.marks import keep_marks  # noqa: PLC0415 -- the others need none

            keep_marks(store, state, report)
        with self._reporting("what was owed to the hooks is told later"):
            store.tell_untold()
        if state.kind == "own":
            with self._reporting("the routes could not be checked against their sessions"):
                store.check_against_state()

    def reset(self, session_key: str) -> str:
        """Begin a new session because somebody asked, and say so, whatever a hook did."""
        entry = self.store.reset_session(session_key)
        self._leave(session_key)
        self.cache.evict(session_key)
        if entry is None:
            return "New session: your next message begins it."
        return f"Session reset. New session {entry.session_id} begins with your next message."

    def _forget(self, run: Run) -> None:
        """Take the note back, unless that is done or a later turn has put its own there."""
        token, run.token = run.token, None
        if token is not None:
            with self._reporting(f"{run.session_key} stays noted as at work"):
                self.store.drop_turn(run.session_key, token)

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
        with self._reporting(f"the start of {run.session_id} is not told"):
            run.announce_start()
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

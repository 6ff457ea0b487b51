"""A turn of an agent, from a message to its reply.

Only the agent itself is awaited or called in between; what comes before and after it is the same
for sync and async. A run that was superseded by a later message of its chat, or whose chat was put
into another session meanwhile, writes nothing back; the later one has an agent of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

from session_core.aio import finished, threads_of
from session_core.keys import SessionSource
from session_core.lifecycle.calling import called, check_agent, check_result, settled
from session_core.lifecycle.ending import Ending
from session_core.lifecycle.endings import Endings
from session_core.lifecycle.result import Agent, Reply, Result, known
from session_core.lifecycle.run import Run
from session_core.lifecycle.turn import Turn
from session_core.routing.entries import SessionEntry
from session_core.routing.notes import new_token

T = TypeVar("T")


class Turns(Endings):
    """Runs the agents of all chats, and knows which of them are at work."""

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

        A cancelled caller gets control back at once. A sync agent cannot be stopped: its turn ends
        when it has returned, and its result is dropped.

        Raises:
            Denied: the runtime is shutting down.
        """
        ending = Ending()
        try:
            run = await self._begin_in_thread(source, ending)
            with run.context():
                run.make_current()
                result = await self._call_agent(run, message, ending)
                run.make_current()
                finishing = self._close(partial(self._finish_last, run, result, ending))
        except BaseException as error:
            closing = self._close(ending.let_go)
            if isinstance(error, Exception):  # a cancelled caller does not wait
                await finished(closing)
            raise
        await finished(finishing)
        return finishing.result()

    def _answer(self, run: Run, message: Any) -> Reply:
        try:
            with self._claim(run) as turn:
                agent = turn.agent
                if agent is None:
                    agent = turn.keep(check_agent(settled(self._build(run))))
                result = check_result(settled(agent(run, message)))
                run.make_current()
                return self._finish(run, result)
        except BaseException:
            self._end(run, completed=False)
            raise

    async def _begin_in_thread(self, source: SessionSource, ending: Ending) -> Run:
        def begin() -> Run:
            run = self._begin(source)
            ending.stack.callback(self._forget, run)
            return run

        ending.hold()
        run = await threads_of(self, "calls").run(begin, on_end=ending.let_go)
        ending.stack.enter_context(self._at_work.entered(run))
        ending.stack.callback(self._end, run, completed=False)  # unless it has ended otherwise
        return run

    async def _call_agent(self, run: Run, message: Any, ending: Ending) -> Result:
        call = partial(called, threads=threads_of(self, "agents"), ending=ending)
        turn = await self._claim(run).__aenter__()
        ending.stack.push(turn)
        agent = turn.agent
        if agent is None:
            agent = turn.keep(check_agent(await call(self._build, run)))
        return cast("Result", check_result(await call(agent, run, message)))

    def _close(self, function: Callable[[], T]) -> Future[T]:
        """Run the end of a turn in a thread; a shutdown waits for it as it waits for no agent."""
        closing = threads_of(self, "calls").submit(function)
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)
        return closing

    def _finish_last(self, run: Run, result: Result, ending: Ending) -> Reply:
        try:
            return self._finish(run, result)
        finally:
            ending.let_go()

    def _begin(self, source: SessionSource) -> Run:
        """Let a message come in; the step that stores this notes that a turn has begun.

        From then on no watcher, of whatever process, ends the session in the middle of the turn.
        """
        number = self._at_work.arrived()
        token = new_token()
        entry = self.store.get_or_create_session(source, turn=token)
        try:
            run = Run(entry, self.store, self.db, source)
            run.token, run.number = token, number
            self._prepare_start(run, entry)
        except BaseException:
            self.store.drop_turn(entry.key, token)
            raise
        return run

    def _prepare_start(self, run: Run, entry: SessionEntry) -> None:
        """Let a run tell that its session begins; one that is in use has no end that was told."""
        self.hooks.reopened(run.session_id)
        if entry.is_fresh_reset or entry.was_auto_reset:
            # It would take along what was said before the reset, where that was never stored.
            self.cache.evict(run.session_key, unless=run.session_id)
        # The append that creates the session decides: several processes may begin a turn in it.
        run.tell_start = partial(
            self.hooks.once,
            "on_session_start",
            session_id=run.session_id,
            platform=run.platform,
            **known(entry.model_override or {}, "model"),
        )

    def _claim(self, run: Run) -> Turn[Agent]:
        signature = self._signature(run.entry)
        run.turn = self.cache.claim(run.session_key, signature, run.session_id, alone=True)
        return run.turn

    @contextmanager
    def _working(self, run: Run) -> Iterator[None]:
        with self._at_work.entered(run), run.context():
            run.make_current()
            yield

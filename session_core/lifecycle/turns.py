"""A turn of an agent, from a message to its reply.

Only the agent itself is awaited or called in between; what comes before and after it is the same
for sync and async. A run that was superseded by a later message of its chat, or whose chat was put
into another session meanwhile, writes nothing back; the later one has an agent of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from session_core.isolated import off_loop
from session_core.keys import SessionSource
from session_core.lifecycle.calling import called, check_agent, check_result, settled
from session_core.lifecycle.endings import Endings
from session_core.lifecycle.result import Agent, Reply, known
from session_core.lifecycle.run import Run
from session_core.lifecycle.turn import Turn
from session_core.routing.entries import SessionEntry
from session_core.routing.notes import new_token


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

    async def _answered(self, run: Run, message: Any) -> Reply:
        try:
            async with self._claim(run) as turn:
                agent = turn.agent
                if agent is None:
                    agent = turn.keep(check_agent(await called(self._build, run)))
                result = check_result(await called(agent, run, message))
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
        number = self._at_work.arrived()
        token = new_token()
        entry = self.store.get_or_create_session(source, turn=token)
        try:
            run = Run(entry, self.store, self.db, source)
            run.token, run.number = token, number
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

    def _claim(self, run: Run) -> Turn[Agent]:
        signature = self._signature(run.entry)
        run.turn = self.cache.claim(run.session_key, signature, run.session_id, alone=True)
        return run.turn

    @contextmanager
    def _working(self, run: Run) -> Iterator[None]:
        with self._at_work.entered(run), run.context():
            run.make_current()
            yield

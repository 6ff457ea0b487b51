"""One turn of an agent: inside it the agent is not evicted, and what we append is noted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from session_core.aio import threads_of
from session_core.errors import InvalidInput
from session_core.lifecycle.coherence import How
from session_core.lifecycle.slots import Slot
from session_core.lifecycle.table import Table
from session_core.models import Appended, AppendedMany, Revision

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from session_core.compression.records import Compressed

A = TypeVar("A")


class Turn(Generic[A]):
    """A turn with the agent of a session key; where it has none yet, `keep` the one you build.

    `how` is why there is none, or whether it was switched to another session.
    """

    def __init__(
        self,
        key: str,
        table: Table,
        enter: Callable[[], tuple[Slot | None, How]],
        tidy: Callable[[str, Slot | None], None],
        revision: Callable[[str], Revision | None],
    ) -> None:
        self.key = key
        self.how: How = "new"
        self._table = table
        self._enter = enter
        self._tidy = tidy
        self._revision = revision
        self._lock = threading.Lock()
        self._slot: Slot | None = None
        self._ended = False

    @property
    def agent(self) -> A | None:
        """The agent, None where there is none yet."""
        slot = self._slot
        return None if slot is None or slot.pending else cast("A", slot.agent)

    def keep(self, agent: A) -> A:
        """Store the agent that was built, and return it.

        Raises:
            InvalidInput: nothing is to be built in this turn, or nothing was.
        """
        if agent is None:
            raise InvalidInput("there is no agent to keep; does its factory return one?")
        if self._slot is None or not self._slot.pending:
            raise InvalidInput("this turn builds no agent; claim one")
        displaced = self._table.keep(self.key, self._slot, agent)
        self._tidy(self.key, displaced)
        return agent

    def appended(self, session_id: str, result: Appended | AppendedMany | Compressed) -> None:
        """Note what our own turn has appended, in whatever order."""
        if self._slot is not None:
            self._table.appended(self._slot, session_id, result.before, result.after)

    def moved(self, old: str, new: str, revision: Revision | None = None) -> None:
        """Note that our own compression made the conversation go on in another session.

        Without the revision that it had then, the one that it has now is taken.
        """
        if self._slot is not None:
            self._table.moved(self._slot, old, new, revision or self._revision(new))

    def forget(self) -> None:
        """Keep the agent no longer than this turn, since its chat has gone on without it."""
        slot = self._slot
        if slot is not None and self._table.drop_slot(self.key, slot):
            self._tidy(self.key, slot)

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    async def __aenter__(self) -> Self:
        try:
            await threads_of(self._table, "claims").run(self._begin)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _begin(self) -> None:
        slot, self.how = self._enter()
        with self._lock:
            self._slot = slot
            given_up = self._ended
        if given_up:  # whoever waited for this thread was cancelled meanwhile
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            slot, self._slot = self._slot, None
        if slot is not None:
            self._table.leave(self.key, slot)
            self._tidy(self.key, None)

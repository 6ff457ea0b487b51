"""Asking for a summary: a function of the caller's, within what its failures allow.

What is noted of failures stands in the row of the session, so that a restart forgets nothing, and
goes over to the session in which the conversation goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from session_core.compression import callables, condense, summaries
from session_core.compression.callables import Failure, State, Summarizer
from session_core.compression.records import Brief, NotCompressed, Request
from session_core.event_loops import EventLoop
from session_core.ledger.steps import noting
from session_core.models import MessageRow
from session_core.state.contract import StateDatabase


class Asked:
    """One time that a summary of a session is asked for, and what is noted of it."""

    def __init__(self, db: StateDatabase, session_id: str, clock: Callable[[], float]) -> None:
        self._db = db
        self._session_id = session_id
        self._clock = clock
        self._outcome: str | Failure | None = None

    def require_allowed(self, *, force: bool) -> None:
        """Make sure that a summary may be asked for now.

        Raises:
            NotCompressed: it is not, after failures.
        """
        refused = callables.decide(self._state(), self._clock(), force)
        if refused is not None:
            raise NotCompressed(refused.code, refused.reason)

    def summary(
        self,
        summarizer: Summarizer,
        brief: Brief,
        messages: Sequence[MessageRow],
        timeout_s: float,
        loop: EventLoop | None = None,
    ) -> str | None:
        """Return a summary by the function; None where one without a model may take its place.

        A function that has failed is not asked again.

        Raises:
            NotCompressed: its failure leaves the session as it is.
        """
        if isinstance(self._outcome, Failure):
            return None
        request = request_of(brief, messages)
        self._outcome = callables.call(summarizer, request, timeout_s, loop)
        if not isinstance(self._outcome, Failure):
            return self._outcome
        state = callables.failed(self._state(), self._outcome, self._clock())
        self._store(self._session_id, state)
        if self._outcome.aborts:
            raise NotCompressed(
                f"summary_{self._outcome.kind}",
                f"no summary: {self._outcome.message}; mend that, then try again",
            ) from self._outcome.error
        return None

    def committed(self, session_id: str) -> None:
        """Note what came of it, in the session in which the conversation goes on."""
        if self._outcome is None:
            return
        with noting("what came of the summary"):
            state = State()
            if isinstance(self._outcome, Failure):
                before = self._state()
                state = replace(before, streak=before.streak + 1)
            self._store(session_id, state)

    def _state(self) -> State:
        return State.of(self._row(self._session_id))

    def _row(self, session_id: str) -> Mapping[str, Any]:
        return self._db.get_session(session_id) or {}

    def _store(self, session_id: str, state: State) -> None:
        row = self._row(session_id)
        here = {name: value for name, value in state.columns().items() if name in row}
        if any(row[name] != value for name, value in here.items()):
            self._db.put_session_fields(session_id, here)


def request_of(brief: Brief, messages: Sequence[MessageRow]) -> Request:
    """Return what a function is given; an earlier summary is no message, but beside them."""
    new = [_without_summary(message) for message in messages if not summaries.is_summary(message)]
    return Request(brief, condense.condense(new), tuple(summaries.earlier(messages)))


def _without_summary(message: MessageRow) -> Mapping[str, Any]:
    """Return a message without the summary in it, with what it says beside that."""
    found = summaries.read(message)
    if found is None:
        return message
    return {**message, "content": "\n\n".join(filter(None, (found.before, found.after)))}

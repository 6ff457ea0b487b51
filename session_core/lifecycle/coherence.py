"""Whether a cached agent still knows its session as it is, or somebody else wrote meanwhile.

Nothing here changes a slot, and nothing here is called under a lock: the database is asked. What it
cannot tell is unknown, and what is unknown is no reason to rebuild.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from session_core.errors import NotFound
from session_core.isolated import Report
from session_core.lifecycle.slots import NOTHING, Slot
from session_core.models import Revision, SessionRow
from session_core.state.contract import StateDatabase

T = TypeVar("T")

How = Literal["reused", "switched", "new", "signature", "foreign", "ended", "busy"]
"""An agent is reused, also for another session; or it is built: there is none, it has another
signature, somebody else wrote to its session, that session has ended, or it is in another turn."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a cached agent, and what the session that is asked for is now."""

    how: How
    baseline: Revision | int | None = None

    @property
    def keeps(self) -> bool:
        """Whether the agent is kept."""
        return self.how in {"reused", "switched"}


class Sessions:
    """What the database says of sessions; None is that it does not say."""

    def __init__(self, db: StateDatabase | None, report: Report) -> None:
        self._db = db
        self._report = report

    def revision(self, session_id: str | None) -> Revision | None:
        """Return what a session is now; one without a row is one without messages."""

        def ask(db: StateDatabase, session_id: str) -> Revision:
            try:
                return db.revision(session_id)
            except NotFound:
                return NOTHING

        return self._ask(ask, session_id)

    def message_count(self, session_id: str | None) -> int | None:
        """Return the counter of a session."""
        found = self._row(session_id)
        return None if found is None or found[0] is None else found[0].get("message_count")

    def has_ended(self, slot: Slot) -> bool:
        """Whether the session of a slot has ended; one that is gone has, if it was ever there."""
        found = self._row(slot.session_id)
        if found is None:
            return False
        if found[0] is None:
            return isinstance(slot.baseline, Revision) and slot.baseline.last_id > 0
        return found[0].get("ended_at") is not None

    def _row(self, session_id: str | None) -> tuple[SessionRow | None] | None:
        return self._ask(lambda db, session_id: (db.get_session(session_id),), session_id)

    def _ask(self, question: Callable[[StateDatabase, str], T], session_id: str | None) -> T | None:
        if self._db is None or session_id is None:
            return None
        try:
            return question(self._db, session_id)
        except Exception as error:  # noqa: BLE001 -- a turn goes on with the agent that is there
            self._report(f"session {session_id} could not be looked up", error)
            return None


def judge(slot: Slot, signature: Any, session_id: str | None, sessions: Sessions) -> Verdict:
    """Return what to do with an agent that is asked for; see the table in the tests."""
    if slot.signature != signature:
        return Verdict("signature")
    if slot.shape == "unguarded":
        return Verdict("reused")
    if None not in {slot.session_id, session_id} and slot.session_id != session_id:
        if sessions.has_ended(slot):
            return Verdict("ended")
        return Verdict("switched", sessions.revision(session_id))
    ours = slot.shape == "ours"
    now = sessions.revision(session_id) if ours else sessions.message_count(session_id)
    if slot.links or (None not in {slot.baseline, now} and slot.baseline != now):
        return Verdict("foreign")
    return Verdict("reused", now)

"""Who tells that the session of a chat ends, and what is noted of it, so that it is told once.

Whoever tells it claims that first, in the entry, notes there that a hook begins just before it
does, and afterwards that it was told; on a Hermes home, whose entries may not be marked, in `marks`
beside it. A claim of a process that has died counts for nothing, but a hook that began counts as
told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from session_core.errors import SessionError
from session_core.routing.deciding import Beside, Deciding
from session_core.routing.entries import SessionEntry
from session_core.routing.file import File
from session_core.routing.marks import Noted
from session_core.routing.notes import BEGUN, CLAIM, token_of
from session_core.routing.recovery import is_over

_MOST_CHATS = 8
"""So many chats that share a session have marks of their own."""


class Ends(Deciding):
    """Ends are claimed, told and noted."""

    def is_end_told(self, entry: SessionEntry) -> bool:
        """Whether the end of a session was told, as it was last used."""
        if entry.expiry_finalized or not self._is_hermes:
            return entry.expiry_finalized
        noted = self.marks.get(entry.session_id)
        return bool(noted) and is_told(entry, noted, lives=self._lives(entry.session_id))

    def claim_end(self, session_key: str, session_id: str) -> bool:
        """Take on to tell that the session of a chat ends, whatever the clock says.

        Also from somebody else who has taken it on and not begun, since it does end now.
        """
        take = partial(self._take, lives=self._lives(session_id), ends_now=True)
        return self._change_noted(session_key, session_id, take)

    def begin_end(self, session_key: str, session_id: str) -> bool:
        """Note that a hook begins to be told of the end that was claimed here, and counts as told.

        False where it began before, was another's by then, or is none any more. Where that cannot
        be noted it is told all the same, better twice than never.
        """

        def change(current: SessionEntry) -> bool:
            is_ours = CLAIM.holder(current, self._now()) == self._token
            if not is_ours or current.expiry_finalized or has_begun(current):
                return False
            current.extra[BEGUN] = used_at(current)
            return True

        return self._noted(partial(self._change_noted, session_key, session_id, change))

    def set_end_told(self, session_key: str, session_id: str) -> bool:
        """Note that the end of the session of a chat was told, by whatever path."""

        def change(current: SessionEntry) -> bool:
            CLAIM.clear(current)
            is_new, current.expiry_finalized = not current.expiry_finalized, True
            return is_new

        return self._change_noted(session_key, session_id, change)

    def forget_marks(self) -> None:
        """Forget what is noted beside a Hermes home of sessions in which no chat is any more."""
        if self._is_hermes:
            self.marks.keep({entry.session_id for entry in self._copies.all().values()})

    def _take(self, current: SessionEntry, *, lives: bool, ends_now: bool = False) -> bool:
        """Note that the end of a session is told here, unless it was or somebody else does.

        What lives and has no mark was told by nobody, whatever this process remembers. Where a hook
        has begun, that stays noted: what is left to do is to note the end.
        """
        now, token = self._now(), self._token
        holder = CLAIM.holder(current, now)
        is_left = holder in {None, token} or (ends_now and not has_begun(current))
        if current.expiry_finalized or not is_left:
            return False
        if holder is None and lives and self.hooks is not None:
            self.hooks.reopened(current.session_id)
        if not has_begun(current):
            CLAIM.clear(current)
        CLAIM.put(current, token, now)
        over = not self._is_hermes and self._is_over(current.session_id)
        if over or self._was_told_here(current.session_id, lives=lives):
            current.extra[BEGUN] = used_at(current)
        return True

    def _was_told_here(self, session_id: str, *, lives: bool) -> bool:
        """Whether this process has told the end of a session, by another chat or by its id."""
        return not lives and self.hooks is not None and self.hooks.has_finalized(session_id)

    def _is_over(self, session_id: str) -> bool:
        """Whether a session has ended for good, so that its end is told by whoever has ended it.

        Not where routes are in a file: the step that has ended it may have been cut short.
        """
        if self.db is None or isinstance(self._copies, File) or self._lives(session_id):
            return False
        return is_over(self.db.get_session(session_id))

    def _change_noted(
        self,
        session_key: str,
        session_id: str,
        change: Callable[[SessionEntry], bool],
        beside: Beside | None = None,
    ) -> bool:
        """Change what is noted of the end of a session: in its entry, or beside a Hermes home."""

        def change_here(current: SessionEntry) -> bool:
            return current.session_id == session_id and change(current)

        if not self._is_hermes:
            return self._change(session_key, change_here, beside) is not None
        lives = self._lives(session_id)
        with self._flights.of(session_key):
            current = self._copies.get(session_key)
            return current is not None and self._change_mark(current, change_here, lives=lives)

    def _change_mark(
        self, entry: SessionEntry, change: Callable[[SessionEntry], bool], *, lives: bool
    ) -> bool:
        def step(noted: Noted) -> Noted | None:
            current = entry.copy()
            current.expiry_finalized |= is_told(entry, noted, lives=lives)
            is_known = noted.get(CLAIM.names[0]) == self._token or BEGUN in noted
            # What was told, or claimed here, before the session was used again was another end.
            if not is_known or noted.get("used_at") == used_at(entry):
                current.extra |= {name: noted[name] for name in CLAIM.names if name in noted}
            return _noted_of(current, noted) if change(current) else None

        return self.marks.change(entry.session_id, step)

    def _went_on(self, session_id: str) -> None:
        """Note that a session was reopened, so that its next end is told again."""
        if self._is_hermes:
            self._told.afterwards.append(partial(self.marks.forget, session_id))
        if self.hooks is not None:
            self._told.afterwards.append(partial(self.hooks.reopened, session_id))

    @property
    def _is_hermes(self) -> bool:
        return self.db is not None and self.db.kind == "hermes"

    @property
    def _token(self) -> str:
        """What this store claims with."""
        return token_of(self._nonce)

    def _noted(self, note: Callable[[], bool]) -> bool:
        """Return whether a hook is to be told, as is noted; it is where that cannot be."""
        try:
            return note()
        except (SessionError, OSError) as error:
            self.report("what a hook is told of could be told a second time", error)
            return True

    def _lives(self, session_id: str) -> bool:
        """Whether a session goes on, up to this step where that is what ends it."""
        step = self._told.together
        if step is not None and session_id in step.ending:
            return True
        row = None if self.db is None else self.db.get_session(session_id)
        return row is None or row["ended_at"] is None


def has_begun(entry: SessionEntry) -> bool:
    """Whether a hook has begun to be told that a session ends, as it was last used."""
    return entry.extra.get(BEGUN) == used_at(entry)


def used_at(entry: SessionEntry) -> str:
    """Return by what is known which use of a session is meant: when that was."""
    return entry.updated_at.isoformat()


def is_told(entry: SessionEntry, noted: Noted, *, lives: bool) -> bool:
    """Whether an end was told, as noted beside the entry.

    That counts as long as nobody has used the session since, and for one that has ended, whatever
    its last turn has written since.
    """
    told = noted.get("told", [])
    return used_at(entry) in told or bool(told and not lives)


def told_too(told: list[str], use: str | None) -> list[str]:
    """Return the uses of which the end was told, with one more."""
    return told if use is None or use in told else [*told, use][-_MOST_CHATS:]


def _noted_of(entry: SessionEntry, noted: Noted) -> Noted:
    claim = {name: entry.extra[name] for name in CLAIM.names if name in entry.extra}
    told: list[str] = noted.get("told", [])
    if entry.expiry_finalized:
        told = told_too(told, used_at(entry))
    return {**claim, "used_at": used_at(entry), "told": told}

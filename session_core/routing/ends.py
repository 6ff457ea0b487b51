"""Who tells that the session of a chat ends, and what is noted of it, so that it is told once.

Whoever tells it claims that first, in the entry, and notes it there afterwards; on a Hermes home,
whose entries may not be marked, in `marks` beside it. A claim of a process that has died counts for
nothing: what it may not have told to its end is told again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from session_core.keys import platform_of
from session_core.routing.deciding import Beside, Deciding
from session_core.routing.entries import SessionEntry
from session_core.routing.marks import Noted
from session_core.routing.notes import CLAIM, token_of

_MOST_CHATS = 8
"""So many chats that share a session have marks of their own."""


class Ends(Deciding):
    """Ends are claimed, told and noted."""

    def is_end_told(self, entry: SessionEntry) -> bool:
        """Whether the end of a session was told, as it was last used."""
        if entry.expiry_finalized or not self._is_hermes:
            return entry.expiry_finalized
        noted = self.marks.get(entry.session_id)
        return bool(noted) and _is_told(entry, noted, lives=self._lives(entry.session_id))

    def claim_end(self, session_key: str, session_id: str) -> bool:
        """Take on to tell that the session of a chat ends, whatever the clock says."""
        take = partial(self._take, lives=self._lives(session_id))
        return self._change_noted(session_key, session_id, take)

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

    def _take(self, current: SessionEntry, *, lives: bool) -> bool:
        """Note that the end of a session is told here, unless it was or somebody else does.

        What lives and has no mark was told by nobody, whatever this process remembers.
        """
        now, token = self._now(), self._token
        holder = CLAIM.holder(current, now)
        if current.expiry_finalized or holder not in {None, token}:
            return False
        if holder is None and lives and self.hooks is not None:
            self.hooks.reopened(current.session_id)
        CLAIM.put(current, token, now)
        return True

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
            current.expiry_finalized |= _is_told(entry, noted, lives=lives)
            token = noted.get(CLAIM.names[0])
            # What was claimed here before the session was used again was for another end.
            if token != self._token or noted.get("used_at") == _used_at(entry):
                current.extra |= {name: noted[name] for name in CLAIM.names if name in noted}
            return _noted_of(current, noted) if change(current) else None

        return self.marks.change(entry.session_id, step)

    # -- boundaries ------------------------------------------------------------------------

    def _crossed(self, old: SessionEntry, new: SessionEntry, reason: str) -> None:
        """Note a boundary, whose hooks are called once the decision is stored."""
        lives = self._lives(old.session_id)
        self._told.afterwards.append(partial(self._tell, old, new, reason, lives=lives))

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

    def _tell(self, old: SessionEntry, new: SessionEntry, reason: str, *, lives: bool) -> None:
        """Call the hooks of a boundary; the end of an expired session was told already."""
        if self.hooks is None:
            return
        platform = str(new.platform or platform_of(new.session_key))
        ended = old.session_id if self._is_left_to_tell(old, lives=lives) else None
        self.hooks.boundary(ended, new.session_id, platform, reason)

    def _is_left_to_tell(self, old: SessionEntry, *, lives: bool) -> bool:
        """Whether the end of a session that its chat has left is told here.

        What this store has claimed is told by another thread, for which the hooks wait.
        """
        if self._is_hermes:
            return self._change_mark(old, partial(self._take, lives=lives), lives=lives)
        return self._take(old, lives=lives)

    def _lives(self, session_id: str) -> bool:
        row = None if self.db is None else self.db.get_session(session_id)
        return row is None or row["ended_at"] is None


def _used_at(entry: SessionEntry) -> str:
    return entry.updated_at.isoformat()


def _is_told(entry: SessionEntry, noted: Noted, *, lives: bool) -> bool:
    """Whether an end was told, as noted beside the entry.

    That counts as long as nobody has used the session since, and for one that has ended, whatever
    its last turn has written since.
    """
    told = noted.get("told", [])
    return _used_at(entry) in told or bool(told and not lives)


def _noted_of(entry: SessionEntry, noted: Noted) -> Noted:
    claim = {name: entry.extra[name] for name in CLAIM.names if name in entry.extra}
    told: list[str] = noted.get("told", [])
    if entry.expiry_finalized and _used_at(entry) not in told:
        told = [*told, _used_at(entry)][-_MOST_CHATS:]
    return {**claim, "used_at": _used_at(entry), "told": told}

"""Boundaries that a chat crosses when it changes its session: owed to the hooks, and then told.

What is owed stands in the entry that the change stores, and leaves it just before it is told. What
a process that has died still owes is told by whoever comes next: at a start, at a tick of the
watcher, or before a message of the chat is answered.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from session_core.hooks.specs import FINALIZE, RESET
from session_core.keys import platform_of
from session_core.routing.ends import Ends, has_begun, is_told, told_too, used_at
from session_core.routing.entries import UNTOLD, SessionEntry, local
from session_core.routing.marks import Noted
from session_core.routing.notes import BEGUN, CLAIM, holder_of, new_token
from session_core.routing.owed import Owed, begin_finalize, begin_reset, owe, owed_by, take_over


class Crossings(Ends):
    """Boundaries are owed, told, and taken over from the dead."""

    def tell_untold(self, session_key: str | None = None) -> None:
        """Tell what processes that have died owed the hooks, of all chats or before more of one is.

        Raises:
            Denied: a live gateway holds the routes, in which that would have to be noted.
        """
        if not self._is_heard:
            return
        if session_key is None:
            found = self._copies.all(having=UNTOLD)
        else:
            entry = self._copies.get(session_key)
            found = {} if entry is None else {session_key: entry}
        for key, entry in found.items():
            for owed in self._left_behind(entry):
                self._tell_of_dead(key, entry, owed)

    def _owe(self, old: SessionEntry, new: SessionEntry, reason: str) -> None:
        """Owe a boundary to the hooks, in the entry that is to be stored; then it is told.

        It is called inside the step that ends the old session: of several chats that leave one, at
        once or one after another, the first alone finds it alive, and owes its end.
        """
        if self.hooks is None:
            return
        left = self._is_left_to_tell(old)
        if self._told.together is not None:
            self._told.together.ending.discard(old.session_id)
        token = new_token()
        owed = Owed(
            id=token,
            holder=token,
            since=local(self._now()).isoformat(),
            new_session_id=new.session_id,
            reason=reason,
            old_session_id=old.session_id if left else None,
            used_at=used_at(old),
        )
        noted = self.hooks.may_tell()
        if noted:
            owe(new, owed)
        ended = old.session_id if left or self._is_claimed_here(old) else None
        tell = partial(self._tell, old.key, new, owed, ended, noted=noted)
        self._told.afterwards.append(tell)

    def _pass_on(self, key: str, entry: SessionEntry) -> None:
        """Tell what a process that has died owed, before anything that follows this decision."""
        for owed in self._left_behind(entry):
            self._told.afterwards.append(partial(self._tell_of_dead, key, entry, owed))

    def _tell(
        self, key: str, entry: SessionEntry, owed: Owed, ended: str | None, *, noted: bool = True
    ) -> None:
        """Call the hooks of a boundary; what another thread tells is waited for."""
        if self.hooks is None:
            return
        platform = str(entry.platform or platform_of(entry.session_key))
        begins = partial(self._begins, key, owed) if noted else None
        self.hooks.boundary(ended, owed.new_session_id, platform, owed.reason, begins)

    def _tell_of_dead(self, key: str, entry: SessionEntry, owed: Owed) -> None:
        """Tell what is owed by a process that has died, unless somebody else was faster."""
        mine = replace(owed, holder=new_token(), since=local(self._now()).isoformat())
        if self._change(key, partial(take_over, owed=owed, mine=mine)) is not None:
            self._tell(key, entry, mine, mine.old_session_id)

    def _left_behind(self, entry: SessionEntry) -> list[Owed]:
        """Return what the dead owe; where nobody listens it is left to who does."""
        if not self._is_heard:
            return []
        now = self._now()
        return [owed for owed in owed_by(entry) if not holder_of(owed.holder, owed.since, now)]

    def _begins(self, key: str, owed: Owed, hook: str) -> bool:
        """Note that a hook is told of a boundary now, and counts as told; False where it was."""
        begin = begin_reset if hook == RESET else begin_finalize

        def decide(entry: SessionEntry | None) -> bool:
            if entry is None:  # it was removed, with what it owed: nobody else tells that
                return True
            if not begin(entry, owed):
                return False
            self._put(key, entry, urgent=False)
            return True

        def note() -> bool:
            elsewhere = hook == FINALIZE and self._is_hermes and not self._begin_mark(owed)
            return self._deciding(key, decide) and not elsewhere

        return self._noted(note)

    def _begin_mark(self, owed: Owed) -> bool:
        """Note beside a Hermes home that an end is told, unless a watcher has begun to tell it.

        Where the process dies before it is noted in the route too, the hook has not begun.
        """

        def step(noted: Noted) -> Noted | None:
            told = noted.get("told", [])
            use = owed.used_at
            if use in {noted.get(BEGUN), *told} and noted.get(CLAIM.names[0]) != owed.id:
                return None
            claim = dict(zip(CLAIM.names, (owed.id, owed.since, use), strict=True))
            # Told: another chat in that session knows it by this.
            return {**noted, **claim, "used_at": use, "told": told_too(told, use)}

        return owed.old_session_id is not None and self.marks.change(owed.old_session_id, step)

    @property
    def _is_heard(self) -> bool:
        return self.hooks is not None and self.hooks.may_tell()

    def _is_left_to_tell(self, old: SessionEntry) -> bool:
        """Whether nobody has begun to tell the end of a session that its chat is leaving.

        Who has only claimed it finds the chat gone.
        """
        lives = self._lives(old.session_id)
        if self._was_told_here(old.session_id, lives=lives) or self._is_over(old.session_id):
            return False
        if not self._is_hermes:
            return not (old.expiry_finalized or has_begun(old))
        noted = self.marks.get(old.session_id)
        return not (is_told(old, noted, lives=lives) or noted.get(BEGUN) == used_at(old))

    def _is_claimed_here(self, old: SessionEntry) -> bool:
        noted = self.marks.get(old.session_id) if self._is_hermes else old.extra
        return noted.get(CLAIM.names[0]) == self._token

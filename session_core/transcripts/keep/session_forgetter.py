"""`SessionForgetter`: plans to forget sessions, and their irreversible removal.

The exclusion of sessions and the removal of their copies are one transaction. The index is emptied
after it; a record in the same transaction lets another process continue if this process is killed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from session_core import _sqlite3
from session_core.errors import Busy, Changed, NotFound
from session_core.transcripts.keep.copies import WHOLE_STORE
from session_core.transcripts.keep.copies_database import (
    MUST_CLEAR,
    MUST_PURGE,
    SQL,
    increment_counter,
    request_clearing,
)
from session_core.transcripts.keep.copy_changes import delete_copy
from session_core.transcripts.keep.types import ForgetPlan
from session_core.transcripts.listing import Condition, SummaryRow
from session_core.transcripts.places import AGENTS, forget_kept_store
from session_core.transcripts.types import TranscriptSummary

if TYPE_CHECKING:
    from session_core.transcripts.index import Index
    from session_core.transcripts.indexer import Indexer

_PLAN_S = 86_400.0
_HANDLE_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
_HANDLE_LENGTH = 8
_MAX_ROWS = 100_000
_TRIES = 100
_REFRESH_S = 0.3


class SessionAccess(NamedTuple):
    """The functions that find and summarize the sessions of a transcript store."""

    select: Callable[[Sequence[Condition], int], list[SummaryRow]]
    require: Callable[[str], SummaryRow]
    make_summary: Callable[[SummaryRow, float], TranscriptSummary]


class _Target(NamedTuple):
    """A session with its subagents, or a whole store if `first` is None."""

    store: str
    first: SummaryRow | None
    rows: list[SummaryRow]
    unlisted: list[str]
    """The sessions of a store that exist only as copies and are not served."""

    @property
    def key(self) -> str:
        """The name by which the target is found again."""
        return self.store if self.first is None else str(self.first["session_id"])

    @property
    def native_ids(self) -> list[str]:
        """The ids that the agent gave to the sessions."""
        return sorted({row["native_id"] for row in self.rows}.union(self.unlisted))


class SessionForgetter:
    """Plans and applies the removal of sessions from the copies and the index."""

    def __init__(self, index: Index, indexer: Indexer, access: SessionAccess) -> None:
        self._index = index
        self._indexer = indexer
        self._access = access
        self._copies = indexer.catalog.copies
        self._database = self._copies.database

    def make_plan(self, name: str) -> ForgetPlan:
        """Store a plan to forget a session or a store, and return it."""
        target = self._find_target(name)
        handle = "p-" + "".join(secrets.choice(_HANDLE_LETTERS) for _ in range(_HANDLE_LENGTH))
        expires_at = time.time() + _PLAN_S
        with self._database.open_transaction() as db:
            db.execute(SQL["delete_old_plans"], (time.time(),))
            values = (handle, target.key, json.dumps(target.native_ids), expires_at)
            db.execute(SQL["put_plan"], values)
        return self._build_plan(target, handle, expires_at)

    def load_plan(self, handle: str) -> ForgetPlan:
        """Return a stored plan, if its sessions are still the same."""
        target, expires_at = self._load_target(handle)
        return self._build_plan(target, handle, expires_at)

    def apply_plan(self, handle: str) -> ForgetPlan:
        """Remove the sessions of a plan."""
        target, expires_at = self._load_target(handle)
        plan = self._build_plan(target, handle, expires_at)
        first = "" if target.first is None else target.first["native_id"]
        ids = [WHOLE_STORE] if target.first is None else target.native_ids
        heirs = {} if target.first is None else self._find_shared_sidecars(target)
        with self._database.open_transaction() as db:
            # Another process may have kept a new session of the store since the plan was read.
            if target.first is None and not _list_kept(db, target.store) <= {*target.native_ids}:
                raise _make_changed(target)
            for (root, path), heir in heirs.items():
                values = (heir, increment_counter(db, "change"), target.store, root, path)
                db.execute(SQL["set_sidecar_session"], values)
            for native_id in ids:
                _remove_session(db, target.store, native_id)
                exclusion = (target.store, native_id, "" if native_id == first else first)
                db.execute(SQL["put_exclusion"], (*exclusion, time.time()))
            db.execute(SQL["delete_plan"], (handle,))
            request_clearing(db)
            increment_counter(db, "removal")
        if target.first is None:
            forget_kept_store(self._index.path.parent, target.store)
        self._copies.load_changes()
        if not self.finish_removal(_TRIES):
            raise Busy(
                "the sessions are forgotten, but another process still reads the files that had "
                "them; their bytes are overwritten with its next call"
            )
        return plan

    def finish_removal(self, tries: int) -> bool:
        """Empty the index and overwrite removed bytes.

        Return False if another process is reading them.
        """
        # Before the state, which is then as new as this number or newer.
        clearing = self._database.get_setting("clearing")
        self._copies.load_changes()
        # A table of words without text cannot drop the words of one session, so all of it goes.
        if self._copies.unfinished == MUST_CLEAR:
            self._indexer.clear_index()
            self._record_unfinished(MUST_PURGE, clearing)
        is_done = self._index.overwrite_removed_bytes(
            tries
        ) and self._database.overwrite_removed_bytes(tries)
        if is_done:
            self._record_unfinished(0, clearing)
        return is_done

    def _record_unfinished(self, state: int, clearing: Any) -> None:
        """Record the remaining work, unless another process has forgotten more meanwhile."""
        with self._database.open_transaction() as db:
            if db.execute(SQL["get_setting"], ("clearing",)).fetchone() in (None, (clearing,)):
                db.execute(SQL["put_setting"], ("unfinished", state))
        self._copies.load_changes()

    def _load_target(self, handle: str) -> tuple[_Target, float]:
        rows = self._database.read(SQL["get_plan"], (handle,))
        if not rows or rows[0][2] < time.time():
            raise NotFound(f"plan {handle!r:.40} does not exist, was applied or has expired")
        key, native_ids, expires_at = rows[0]
        target = self._find_target(key)
        # The user has agreed to these sessions; a subagent that began since is not one of them.
        if target.native_ids != json.loads(native_ids):
            raise _make_changed(target)
        return target, expires_at

    def _find_target(self, name: str) -> _Target:
        if name in AGENTS:
            self._indexer.refresh_index(_REFRESH_S)
            in_store = Condition("s.store = ?", (name,))
            rows = self._access.select([in_store], _MAX_ROWS)
            kept = self._database.read(SQL["list_kept_sessions"], (name,))
            unlisted = {row[0] for row in kept} - {row["native_id"] for row in rows}
            if not rows and not unlisted:
                raise NotFound(f"there is no session of {name}")
            return _Target(name, None, rows, sorted(unlisted))
        first = self._access.require(name)
        return _Target(first["store"], first, self._add_delegates([first]), [])

    def _add_delegates(self, rows: list[SummaryRow]) -> list[SummaryRow]:
        """Return sessions with all their subagents, direct and indirect."""
        known = {row["id"] for row in rows}
        for row in rows:
            condition = Condition(
                "s.store = ? AND (s.native_id = ? OR (s.parent_id = ? AND s.link = 'delegate'))",
                (row["store"], row["native_id"], row["native_id"]),
            )
            more = self._access.select([condition], _MAX_ROWS)
            rows += [other for other in more if other["id"] not in known]
            known |= {other["id"] for other in more}
        return rows

    def _find_shared_sidecars(self, target: _Target) -> dict[tuple[str, str], str]:
        """Return the sidecars that other sessions use too, each with one such session.

        Sessions of a project may share a sidecar, and its copy names the first of them.
        """
        forgotten = set(target.native_ids)
        heirs: dict[tuple[str, str], str] = {}
        for root in self._indexer.catalog.roots.values():
            if not root.has_store(target.store):
                continue
            copies = self._copies.list_copies(root.root.path, target.store)
            for path in [path for path, copy in copies.items() if copy.kind == "file"]:
                file = root.match_file(path)
                if file is None or file.session_id in forgotten:
                    continue
                for sidecar in file.sidecars:
                    copy = copies.get(sidecar)
                    if copy is not None and copy.session_id in forgotten:
                        heirs[copy.root, sidecar] = file.session_id
        return heirs

    def _find_forks(self, target: _Target) -> Iterable[str]:
        """Yield sessions outside of the target that begin with a copy of a session in it."""
        if target.first is None:
            return
        for row in target.rows:
            forks = Condition(
                "s.store = ? AND s.parent_id = ? AND s.link = 'branch'",
                (row["store"], row["native_id"]),
            )
            yield from (fork["session_id"] for fork in self._access.select([forks], _MAX_ROWS))

    def _build_plan(self, target: _Target, handle: str, expires_at: float) -> ForgetPlan:
        now = time.time()
        sessions = [self._access.make_summary(row, now) for row in target.rows]
        ids = [WHOLE_STORE] if target.first is None else target.native_ids
        sizes = [
            self._database.read(SQL["count_session_bytes"], (target.store, name, name))[0][0]
            for name in ids
        ]
        gone = sum(session.is_kept for session in sessions)
        forks = list(self._find_forks(target))
        counts = (sum(sizes), gone)
        is_store, unlisted = target.first is None, target.unlisted
        return ForgetPlan(
            handle, expires_at, target.store, is_store, sessions, *counts, forks, unlisted
        )


def _make_changed(target: _Target) -> Changed:
    return Changed(f"the sessions of {target.key!r:.80} have changed; make a new plan")


def _list_kept(db: _sqlite3.Connection, store: str) -> set[str]:
    return {row[0] for row in db.execute(SQL["list_kept_sessions"], (store,))}


def _remove_session(db: _sqlite3.Connection, store: str, session_id: str) -> None:
    """Remove the copies of a session, or of a store if the id is `WHOLE_STORE`."""
    for (copy,) in db.execute(
        SQL["list_session_copies"], (store, session_id, session_id)
    ).fetchall():
        delete_copy(db, copy)
    db.execute(SQL["delete_changed_sessions"], (store, session_id, session_id))
    if session_id == WHOLE_STORE:
        db.execute(SQL["delete_databases"], (store,))

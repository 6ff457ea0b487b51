"""Copy the sessions of a home into another home: resumable, incremental and verified."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from session_core.errors import InvalidInput, NotFound, Unsupported
from session_core.maintenance.transfer import digests, home_values
from session_core.maintenance.transfer.digests import MESSAGES
from session_core.maintenance.types import CountFn, SkippedItem, StopFn
from session_core.state.protocol import StateDatabase
from session_core.types import PutResult, Revision, RowImages

MARK_PREFIX = "mcp_sessions:copy:"
"""The prefix of the keys in a target that record the progress of a copy, by session."""

_SESSIONS = "sessions"
_STATE = "ms_session_state"
_KEYS = {
    _SESSIONS: ("id",),
    "session_model_usage": (
        *("session_id", "model", "billing_provider", "billing_base_url", "billing_mode", "task"),
    ),
    _STATE: ("session_id", "key"),
}
"""The keys of the tables whose rows a later copy changes."""

_MAX_MESSAGE_ID = 1 << 40
_MAX_TRIES = 3

_DIFFERS_REASON = "the target has another session with this id; it was left as it is"
_CHANGED_REASON = "it was changed in the target; it was left as it is"
_REMOVED_REASON = "messages were removed in the source; the target keeps them"
_MOVING_REASON = "it changes while it is copied; copy again"
_SPAN_REASON = "its message ids are too far apart for the target"
_TITLE_REASON = "title: another session of the target has it"


@dataclass(frozen=True, slots=True)
class CopyPreview:
    """The sessions that a copy would bring, and the data that the target cannot hold."""

    sessions: int
    """Sessions that the target lacks."""
    messages: int
    present: int
    """Sessions that the target has, which are compared."""
    left_out: tuple[SkippedItem, ...]
    dropped_columns: Mapping[str, tuple[str, ...]]
    """The columns that the target lacks, by table, or all columns if it lacks the table."""
    removed: int
    """Sessions that an earlier copy has brought and that were removed from the target since."""
    values: int
    """Values of applications in the source. The target gets those whose keys it lacks."""
    pins: int
    """Pinned sessions of the source, which are pinned in the target too."""
    routes: int
    """Routes of the source, which are not copied."""
    batches: int
    """Batches whose trash stays in the source."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of a copy.

    Each copied, updated and unchanged session is equal on both sides.
    """

    outcome: Literal["applied", "partial"]
    copied: int = 0
    updated: int = 0
    unchanged: int = 0
    messages: int = 0
    """Messages that were added to the target."""
    removed: int = 0
    """Sessions that were removed from the target since an earlier copy, and not copied again."""
    values: int = 0
    """Values of applications that were added to the target."""
    pins: int = 0
    """Sessions that were pinned in the target."""
    renumbered: tuple[str, ...] = ()
    """Sessions whose messages have other ids in the target."""
    left_out: tuple[SkippedItem, ...] = ()
    """Values that the target refused."""
    differing: tuple[SkippedItem, ...] = ()
    """Sessions that are not equal on both sides, and why."""


class _IdsTaken(Exception):
    """Other messages of the target have these ids."""


class _Stopped(Exception):
    """The caller has asked to stop."""


class _CopyRefused(Exception):
    """A session cannot be made equal, for the reason in the message."""


@dataclass(slots=True)
class _Mark:
    """The progress of one session, as stored in the target."""

    origin: str
    last: int | None = None
    """The last message of the source that is stored."""
    shifts: list[tuple[int, int]] = field(default_factory=list)
    """From which message of the source on ids differ by how much."""
    without: list[str] = field(default_factory=list)
    """The columns of the session's row whose values the target refused."""
    done: list[Any] | None = None
    """Revisions of source and target and the digest of the rows, after the copy was verified."""

    def to_json(self) -> str:
        """Return the mark as stored."""
        return json.dumps([self.origin, self.last, self.shifts, self.without, self.done])

    @classmethod
    def from_json(cls, text: str) -> _Mark:
        """Return a stored mark."""
        origin, last, shifts, without, done = json.loads(text)
        return cls(origin, last, [(at, by) for at, by in shifts], without, done)

    def shift(self, message_id: int) -> int:
        """Return the id of a message in the target."""
        return message_id + next((by for at, by in reversed(self.shifts) if at <= message_id), 0)


def preview_copy(
    source: StateDatabase,
    target: StateDatabase,
    *,
    copies_removed: bool = False,
    progress: CountFn | None = None,
) -> CopyPreview:
    """Return the sessions that a copy would add or change, and data that the target cannot hold.

    Nothing is changed. The arguments and errors are the same as for `copy_home`.

    Raises:
        InvalidInput: both are the same home.
        Unsupported: the target is a Hermes home.
    """
    _check_target(source, target)
    there = {session.id: session.title for session in target.admin.list_inventory()}
    removed = set() if copies_removed else _find_copied(source, target) - there.keys()
    titles = {title: session_id for session_id, title in there.items() if title is not None}
    left_out: list[SkippedItem] = []
    dropped: dict[str, dict[str, None]] = {}
    find_columns = _make_column_finder(source, target)
    inventory = [item for item in source.admin.list_inventory() if item.id not in removed]
    for done, session in enumerate(inventory, 1):
        if titles.get(session.title or "", session.id) != session.id:
            left_out.append(SkippedItem(session.id, _TITLE_REASON))
        if session.id not in there:
            for table, row in digests.iter_session_rows(source, session.id):
                known = find_columns(table)
                lost = [name for name, value in row.items() if name not in known]
                names = [name for name in lost if row[name] is not None]
                dropped.setdefault(table, {}).update(dict.fromkeys(names))
        if progress is not None:
            progress(done, len(inventory))
    unknown = set(source.rows.list_columns(MESSAGES)) - find_columns(MESSAGES)
    dropped.setdefault(MESSAGES, {}).update(dict.fromkeys(sorted(unknown)))
    new = [session for session in inventory if session.id not in there]
    return CopyPreview(
        sessions=len(new),
        messages=sum(session.rows for session in new),
        present=len(inventory) - len(new),
        left_out=tuple(left_out),
        dropped_columns={table: tuple(names) for table, names in dropped.items() if names},
        removed=len(removed),
        values=home_values.count_values(source),
        pins=home_values.count_pins(source),
        routes=sum(source.routes.list_scopes().values()),
        batches=home_values.count_batches(source),
    )


def _find_copied(source: StateDatabase, target: StateDatabase) -> set[str]:
    """Return the sessions of the source that copies have brought, also if they were removed."""
    origin = _name_origin(source)
    image = target.rows.read_row_images("state_meta", {})
    marks = {str(row[0]): str(row[1]) for row in image.rows}
    return {
        session.id
        for session in source.admin.list_inventory()
        if (text := marks.get(MARK_PREFIX + session.id)) and _Mark.from_json(text).origin == origin
    }


def copy_home(
    source: StateDatabase,
    target: StateDatabase,
    *,
    copies_removed: bool = False,
    progress: CountFn | None = None,
    stop: StopFn | None = None,
) -> CopyResult:
    """Copy all sessions of a home into another home, and verify each by a digest of both sides.

    A second call continues a stopped copy, and copies only the changes since a finished copy. Both
    homes may be in use. No session is removed from the target. After the sessions, values of
    applications whose keys the target lacks, and pins, are added.

    Args:
        source: the database to copy from.
        target: the database to copy into.
        copies_removed: also copy sessions that were removed from the target since an earlier copy.
        progress: called with the number of finished sessions and their total.
        stop: ends the copy if it returns True; the same call continues.

    Raises:
        InvalidInput: both are the same home.
        Unsupported: the target is a Hermes home.

    Example:
        >>> from session_core import SessionDB
        >>> from session_core.maintenance import copy_home
        >>> with SessionDB(":memory:") as source, SessionDB(":memory:") as target:
        ...     _ = source.append_message("s1", "user", "hello", create={"source": "cli"})
        ...     _ = copy_home(source, target)
        ...     [message["content"] for message in target.get_messages("s1")]
        ['hello']
    """
    return _Copy(source, target, stop, copies_removed=copies_removed).run(progress)


def _check_target(source: StateDatabase, target: StateDatabase) -> None:
    if target.kind != "own":
        raise Unsupported("a Hermes home cannot be the target of a copy; name another home")
    paths = [None if db.path is None else db.path.resolve() for db in (source, target)]
    home = source.admin.get_home_id()
    is_same_home = home is not None and home == target.admin.get_home_id()
    # The copy of a file has the same id and is another home.
    if paths[0] == paths[1] and (paths[0] is not None or is_same_home):
        raise InvalidInput("source and target are the same home; name two")


def _name_origin(source: StateDatabase) -> str:
    """Return a name that identifies a source: its id, or the path of a Hermes home."""
    return source.admin.get_home_id() or f"file:{source.path}"


def _make_column_finder(
    source: StateDatabase, target: StateDatabase
) -> Callable[[str], frozenset[str]]:
    """Return a cached function that returns the columns of a table that both homes have."""

    @cache
    def find_columns(table: str) -> frozenset[str]:
        columns = (frozenset(db.rows.list_columns(table)) for db in (source, target))
        return frozenset.intersection(*columns)

    return find_columns


class _Copy:
    """One run of a copy."""

    def __init__(
        self,
        source: StateDatabase,
        target: StateDatabase,
        stop: StopFn | None,
        *,
        copies_removed: bool,
    ) -> None:
        _check_target(source, target)
        self._source = source
        self._target = target
        self._stop = stop
        self._copies_removed = copies_removed
        self._origin = _name_origin(source)
        self._find_columns = _make_column_finder(source, target)
        self._free_id: int | None = None
        """The first id that no message needs, found when one is taken."""
        self._counts: Counter[str] = Counter()
        self._renumbered: dict[str, None] = {}
        self._left_out: dict[SkippedItem, None] = {}
        self._differing: list[SkippedItem] = []

    def run(self, progress: CountFn | None) -> CopyResult:
        """Copy all sessions."""
        outcome: Literal["applied", "partial"] = "applied"
        session_ids = [session.id for session in self._source.admin.list_inventory()]
        try:
            for done, session_id in enumerate(session_ids, 1):
                self._check_stop()
                self._copy_or_report(session_id)
                if progress is not None:
                    progress(done, len(session_ids))
            self._copy_values()
        except _Stopped:
            outcome = "partial"
        return CopyResult(
            outcome,
            copied=self._counts["copied"],
            updated=self._counts["updated"],
            unchanged=self._counts["unchanged"],
            messages=self._counts["messages"],
            removed=self._counts["removed"],
            values=self._counts["values"],
            pins=self._counts["pins"],
            renumbered=tuple(self._renumbered),
            left_out=tuple(self._left_out),
            differing=tuple(self._differing),
        )

    def _check_stop(self) -> None:
        if self._stop is not None and self._stop():
            raise _Stopped

    def _copy_values(self) -> None:
        """Copy what belongs to the home and not to a session."""
        self._check_stop()
        self._counts["values"], differing = home_values.copy_values(self._source, self._target)
        self._left_out |= dict.fromkeys(differing)
        self._counts["pins"] = home_values.copy_pins(self._source, self._target)

    def _copy_or_report(self, session_id: str) -> None:
        try:
            self._counts[self._copy_session(session_id)] += 1
        except _CopyRefused as left:
            self._differing.append(SkippedItem(session_id, str(left)))
        except NotFound:  # it was deleted meanwhile
            self._counts["gone"] += 1
        except (InvalidInput, Unsupported) as error:
            self._differing.append(SkippedItem(session_id, str(error)))

    def _copy_session(self, session_id: str) -> str:
        """Make a session equal on both sides, and return the name of the count for its outcome."""
        mark, is_new = self._load_mark(session_id), False
        is_there = self._target.get_session(session_id) is not None
        if mark is not None and not is_there and not self._copies_removed:
            return "removed"
        if mark is None or not is_there:
            is_new = not is_there
            mark = _Mark(self._origin)
            if not is_new:
                return self._adopt_session(session_id, mark)
        elif mark.done is None:
            is_new = True
        elif self._is_unchanged(session_id, mark):
            self._record_deviations(session_id, mark)
            return "unchanged"
        else:
            self._require_untouched(session_id, mark)
        for tries in range(_MAX_TRIES):
            if tries:
                mark.last = None  # compare all of its messages
            self._write_session(session_id, mark)
            if self._verify_session(session_id, mark):
                self._record_deviations(session_id, mark)
                return "copied" if is_new else "updated"
        raise _CopyRefused(
            _MOVING_REASON if self._has_uncopied_tail(session_id) else _REMOVED_REASON
        )

    def _load_mark(self, session_id: str) -> _Mark | None:
        text = self._target.get_meta(MARK_PREFIX + session_id)
        mark = None if text is None else _Mark.from_json(text)
        return mark if mark is not None and mark.origin == self._origin else None

    def _adopt_session(self, session_id: str, mark: _Mark) -> str:
        """Regard a session of the target as its copy if both are equal."""
        if not self._verify_session(session_id, mark):
            raise _CopyRefused(_DIFFERS_REASON)
        return "unchanged"

    def _is_unchanged(self, session_id: str, mark: _Mark) -> bool:
        if mark.done is None:
            return False
        columns = self._get_columns(session_id, mark)
        with self._source.snapshot():
            source = self._source.get_revision(session_id)
            rows = digests.digest_rows(self._source, session_id, columns)
        with self._target.snapshot():
            target = self._target.get_revision(session_id)
            rows_there = digests.digest_rows(self._target, session_id, columns)
        return [list(source), list(target), rows, rows_there] == [*mark.done, mark.done[2]]

    def _require_untouched(self, session_id: str, mark: _Mark) -> None:
        """Refuse to change a session that was changed in the target since it was copied."""
        columns = self._get_columns(session_id, mark)
        with self._target.snapshot():
            revision = self._target.get_revision(session_id)
            rows = digests.digest_rows(self._target, session_id, columns)
        if mark.done is not None and [list(revision), rows] != mark.done[1:]:
            raise _CopyRefused(_CHANGED_REASON)

    def _has_uncopied_tail(self, session_id: str) -> bool:
        """Return True if the last message of the source has no counterpart yet."""
        revision = self._source.get_revision(session_id)
        there = self._target.get_revision(session_id)
        return (revision.live, revision.compacted) > (there.live, there.compacted)

    def _record_deviations(self, session_id: str, mark: _Mark) -> None:
        """Report a session with other message ids or without a value in the target."""
        if mark.shifts:
            self._renumbered[session_id] = None
        for name in mark.without:
            self._left_out[SkippedItem(session_id, f"{name}: the target refused the value")] = None

    def _get_columns(self, session_id: str, mark: _Mark) -> dict[str, frozenset[str]]:
        """Return the columns in which a session is compared, by table."""
        tables = {image.table for image in self._source.rows.read_session_images(session_id)}
        tables |= {_SESSIONS, MESSAGES, *_KEYS}
        columns = {table: self._find_columns(table) for table in tables}
        columns[_SESSIONS] -= set(mark.without)
        return {table: names for table, names in columns.items() if names}

    def _verify_session(self, session_id: str, mark: _Mark) -> bool:
        """Return True if a session is equal on both sides, and record that."""
        columns = self._get_columns(session_id, mark)
        looks = []
        for db in (self._source, self._target):
            before = db.get_revision(session_id)
            messages = digests.digest_messages(db, session_id, columns, self._check_stop)
            # The digest that is compared is the one that the mark gets: a title has no revision.
            rows = digests.digest_rows(db, session_id, columns)
            looks.append((before, messages, rows, db.get_revision(session_id)))
        source, target = looks
        is_still = all(look[0] == look[3] for look in looks)
        if not is_still or source[1:3] != target[1:3]:
            return False
        mark.last = _find_last_id(self._source, source[0], session_id)
        mark.done = [list(source[0]), list(target[0]), source[2]]
        self._target.set_meta(MARK_PREFIX + session_id, mark.to_json())
        return True

    def _write_session(self, session_id: str, mark: _Mark) -> None:
        """Copy the rows of a session, and its messages after the last copied message."""
        mark.done = None
        rows = list(digests.iter_session_rows(self._source, session_id))
        if not rows:
            raise NotFound(f"session {session_id!r:.80} was deleted")
        with self._target.transaction(linked=False):
            self._write_rows(session_id, rows, mark)
            self._target.set_meta(MARK_PREFIX + session_id, mark.to_json())
        for piece in self._iter_pieces(session_id, mark):
            self._check_stop()
            while not self._try_write_piece(session_id, piece, mark):
                self._shift_ids(piece[0]["id"], piece[-1]["id"], mark)

    def _write_rows(
        self, session_id: str, rows: Sequence[tuple[str, dict[str, Any]]], mark: _Mark
    ) -> None:
        """Add the missing rows of a session, change the others, and remove state that is gone."""
        there: dict[tuple[Any, ...], dict[str, Any]] = {}
        for table, row in digests.iter_session_rows(self._target, session_id):
            there[_get_key(table, row)] = row
        images = []
        for table, row in rows:
            names = self._find_columns(table)
            values = {name: value for name, value in row.items() if name in names}
            present = there.pop(_get_key(table, row), None) if table in _KEYS else None
            if present is not None:
                self._change_row(table, present, values, mark)
            elif values:
                images.append(RowImages(table, tuple(values), (tuple(values.values()),)))
        self._note_refusals(session_id, self._target.rows.put_images(images), mark)
        gone = [key[2] for key in there if key[0] == _STATE]
        if gone:
            self._target.state.merge_session_state(session_id, {}, remove=gone)

    def _change_row(
        self, table: str, present: Mapping[str, Any], values: Mapping[str, Any], mark: _Mark
    ) -> None:
        """Set the columns of a row of the target that differ."""
        refused = mark.without if table == _SESSIONS else []
        after = {
            name: value
            for name, value in values.items()
            if name not in refused and not digests.is_same_content(present.get(name), value)
        }
        key = {name: present[name] for name in _KEYS.get(table, ("id",))}
        if after:
            before = {name: present[name] for name in after}
            self._target.rows.change_row(table, key, before, after)

    def _note_refusals(self, session_id: str, result: PutResult, mark: _Mark) -> None:
        """Record the values and rows that the target refused, or raise if a copy needs them."""
        for mismatch in result.emptied:
            if mismatch.table == _SESSIONS and mismatch.column is not None:
                mark.without.append(mismatch.column)
            else:
                raise _CopyRefused(f"{mismatch.column} of {mismatch.table}: {mismatch.why}")
        for mismatch in result.refused:
            if mismatch.table in _KEYS:
                raise _CopyRefused(f"a row of {mismatch.table}: {mismatch.why}")
            reason = f"a row of {mismatch.table}: {mismatch.why}"
            self._left_out[SkippedItem(session_id, reason)] = None

    def _iter_pieces(self, session_id: str, mark: _Mark) -> Iterator[list[dict[str, Any]]]:
        """Yield the messages of the source after the last stored message, in pieces."""
        after, more = mark.last, True
        while more:
            image, more = self._source.rows.read_message_images(
                session_id, after, digests.ROOM_BYTES
            )
            if image.rows:
                piece = [dict(zip(image.columns, row, strict=True)) for row in image.rows]
                after = piece[-1]["id"]
                yield piece

    def _try_write_piece(self, session_id: str, piece: list[dict[str, Any]], mark: _Mark) -> bool:
        """Write a piece, or return False if another session has taken its ids."""
        try:
            self._write_piece(session_id, piece, mark)
        except _IdsTaken:
            if mark.shifts and mark.shifts[-1][0] == piece[0]["id"]:
                self._free_id = None  # another process has taken the ids that were free
            return False
        return True

    def _write_piece(self, session_id: str, piece: list[dict[str, Any]], mark: _Mark) -> None:
        """Add or change messages of the target, in one transaction with the mark."""
        names = [name for name in piece[0] if name in self._find_columns(MESSAGES)]
        ids = [mark.shift(row["id"]) for row in piece]
        if not all(0 < number <= _MAX_MESSAGE_ID for number in ids):
            raise _IdsTaken
        with self._target.transaction(linked=False):
            there = self._find_messages(session_id, ids[0], ids[-1])
            missing = []
            for number, row in zip(ids, piece, strict=True):
                values = {**{name: row[name] for name in names}, "id": number}
                if number in there:
                    self._change_row(MESSAGES, there[number], values, mark)
                else:
                    missing.append(tuple(values.values()))
            if missing:
                self._put_messages(tuple(names), missing)
            mark.last = piece[-1]["id"]
            self._target.set_meta(MARK_PREFIX + session_id, mark.to_json())
        self._counts["messages"] += len(missing)

    def _find_messages(self, session_id: str, first: int, last: int) -> dict[int, dict[str, Any]]:
        """Return the messages of the target between two ids."""
        found = {}
        check: Callable[[], None] = lambda: None  # noqa: E731 -- a transaction is not stopped
        for row in digests.iter_messages(self._target, session_id, first - 1, check=check):
            if row["id"] > last:
                break
            found[row["id"]] = row
        return found

    def _put_messages(self, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        result = self._target.rows.put_images([RowImages(MESSAGES, names, tuple(rows))])
        for mismatch in result.refused:
            if self._target.get_message(mismatch.key[0]) is not None:
                raise _IdsTaken
            raise _CopyRefused(f"a message: {mismatch.why}")
        if result.emptied:
            raise _CopyRefused(f"{result.emptied[0].column} of a message: {result.emptied[0].why}")

    def _shift_ids(self, first: int, last: int, mark: _Mark) -> None:
        """Give the messages between two ids new ids after all messages of both homes."""
        free = self._find_free_id() if self._free_id is None else self._free_id
        if free + last - first > _MAX_MESSAGE_ID:
            raise _CopyRefused(_SPAN_REASON)
        mark.shifts.append((first, free - first))
        self._free_id = free + last - first + 1

    def _find_free_id(self) -> int:
        """Return the first id after all messages of both homes, which later sessions may need."""
        highest = 0
        for db in (self._source, self._target):
            for session in db.admin.list_inventory():
                if session.revision.last_id <= _MAX_MESSAGE_ID:
                    highest = max(highest, session.revision.last_id)
        return highest + 1


def _get_key(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of a row of a session, with its table."""
    return (table, *(row.get(name) for name in _KEYS.get(table, ())))


def _find_last_id(source: StateDatabase, revision: Revision, session_id: str) -> int | None:
    """Return the last message of a session, live or not, so that a later copy begins after it."""
    image, _ = source.rows.read_message_images(session_id, revision.last_id - 1, 1)
    return image.rows[0][image.columns.index("id")] if image.rows else None

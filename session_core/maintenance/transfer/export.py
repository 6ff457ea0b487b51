"""Whole sessions and conversations as a file, with all that was compacted or taken back.

As JSON Lines, which `importing` reads, or as Markdown for people, in one file or in one for each
conversation. A session is read a page at a
time, so that however long it is little of it is in memory.

A session as it is exported: its row, what other tables have of it, its messages page by page.

A session as a person reads it: who said what and when, calls of tools in a line each.

What was compacted or taken back is there as well, and says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from session_core import _atomic
from session_core.compression import chat_messages
from session_core.compression.rebuild import condense, describe
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.execute import noting
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import refusals
from session_core.maintenance.select.conversations import Conversations
from session_core.maintenance.select.snapshot import matching
from session_core.maintenance.transfer import format as transfer_format
from session_core.maintenance.transfer.format import OF_OTHERS
from session_core.maintenance.types import CountFn
from session_core.state.content import decode, decode_json, plain_text
from session_core.state.protocol import StateDatabase
from session_core.types import Images, Raw, Revision, SessionFilter, SessionSummary, Stock

Form = Literal["jsonl", "markdown"]

WHAT = "export"

_ENDS: dict[Form, str] = {"jsonl": ".jsonl", "markdown": ".md"}
_LONGEST_NAME = 180
_PREFIX = ".export_"
_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    sessions: int
    messages: int
    bytes: int
    gone: tuple[str, ...] = ()
    """Sessions that were deleted meanwhile."""
    changed: tuple[str, ...] = ()
    """Sessions in which more was done meanwhile than to append: export them again."""
    there: tuple[str, ...] = ()
    """Files of a folder that were there already, and stay as they are."""


@dataclass(slots=True)
class Tally:
    """What was written so far."""

    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    gone: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)

    def result(self) -> Exported:
        """Return it as it is told."""
        said = tuple(self.gone), tuple(self.changed), tuple(self.there)
        return Exported(self.sessions, self.messages, self.bytes, *said)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is exported, and how; all where neither sessions are named nor a filter is given."""

    sessions: Sequence[str] | None = None
    where: SessionFilter | None = None
    """It applies to those that are named too."""
    form: Form = "jsonl"
    whole: bool = True
    """Whether the conversations of the sessions that are named are taken along."""
    progress: CountFn | None = None


ALL = Wish()


class Exporting:
    """Exports sessions of one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client

    def write(self, write: Callable[[bytes], object], wish: Wish = ALL) -> Exported:
        """Write sessions.

        Raises:
            NotFound: one of them is not there.
        """
        tally = Tally()
        ids = _together(self._chosen(wish))
        for part in self._parts(ids, wish.form, tally, _telling(wish.progress, len(ids))):
            write(part)
        return self._done(tally)

    def write_file(self, path: Path, wish: Wish = ALL) -> Exported:
        """Write a file that is whole or not there, and that only its owner reads.

        Raises:
            Conflict: there is a file of that name; it stays as it is.
            NotFound: one of the sessions is not there.
        """
        if path.is_symlink() or path.exists():
            raise _taken(path)
        tally = Tally()
        ids = _together(self._chosen(wish))
        parts = self._parts(ids, wish.form, tally, _telling(wish.progress, len(ids)))
        with refusals(path):
            try:
                _atomic.write_new(path, parts, prefix=_PREFIX, mode=_MODE)
            except FileExistsError as error:
                raise _taken(path) from error
        return self._done(tally)

    def write_folder(self, folder: Path, wish: Wish = ALL) -> Exported:
        """Write a file for each conversation, named by its root; those that are there stay.

        Raises:
            NotFound: one of the sessions is not there.
        """
        tally, groups = Tally(), self._chosen(wish)
        tell = _telling(wish.progress, sum(map(len, groups)))
        for group in groups:
            path = folder / _name(group[0], wish.form)
            parts = self._parts(group, wish.form, tally, tell)
            with refusals(path):
                _write_part(path, parts, tally)
        return self._done(tally)

    def _done(self, tally: Tally) -> Exported:
        done = tally.result()
        counts = {"sessions": done.sessions, "messages": done.messages, "bytes": done.bytes}
        with noting(WHAT):
            self._ledger.audit(self._client, WHAT, None, counts)
        return done

    def _chosen(self, wish: Wish) -> list[list[str]]:
        """Return what is exported by conversation, each session behind what it came from."""
        if wish.form not in _ENDS:
            raise InvalidInput(f"unknown form {wish.form!r:.40}; known are {', '.join(_ENDS)}")
        conversations = Conversations(self._db.inventory())
        groups = self._groups(conversations, wish)
        if wish.where is not None:
            found = matching(self._db, conversations, wish.where)
            allowed = {stock.id for each in found for stock in each.sessions}
            groups = (group for group in groups if group[0].id in allowed)
        seen: set[str] = set()
        chosen = []
        for group in groups:
            new = [stock.id for stock in group if stock.id not in seen]
            seen.update(new)
            chosen += [new] if new else []
        return chosen

    def _groups(self, conversations: Conversations, wish: Wish) -> Iterable[Sequence[Stock]]:
        if wish.sessions is None:
            return [each.sessions for each in conversations.all]
        for each in wish.sessions:
            if each not in conversations.stocks:
                self._db.revision(each)  # knows what may have been meant
        if not wish.whole:
            return [(conversations.stocks[each],) for each in wish.sessions]
        named = map(conversations.named, wish.sessions)
        return [each.sessions for each in named if each is not None]

    def _parts(
        self, session_ids: Sequence[str], form: Form, tally: Tally, tell: Callable[[], object]
    ) -> Iterator[bytes]:
        for session_id in session_ids:
            tell()
            try:
                source = Source.of(self._db, session_id)
                lines = self._lines(source, form)
            except NotFound:
                tally.gone.append(session_id)
                continue
            for part in lines:
                data = part.encode("utf-8", "replace")
                tally.bytes += len(data)
                yield data
            tally.sessions += 1
            tally.messages += source.count
            if source.has_changed():
                tally.changed.append(session_id)

    def _lines(self, source: Source, form: Form) -> Iterator[str]:
        if form == "jsonl":
            return _line(source)
        return session(source, self._db.summarize(source.id))


def _write_part(path: Path, parts: Iterator[bytes], tally: Tally) -> None:
    """Write a file of a folder, where there is none and anything to write."""
    if path.is_symlink() or path.exists():
        tally.there.append(path.name)
        return
    first = next(parts, None)
    if first is None:
        return
    try:
        _atomic.write_new(path, chain([first], parts), prefix=_PREFIX, mode=_MODE)
    except FileExistsError:
        tally.there.append(path.name)


def _together(groups: Iterable[Iterable[str]]) -> list[str]:
    return [each for group in groups for each in group]


def _telling(progress: CountFn | None, total: int) -> Callable[[], object]:
    """Return what says of one more session that it is begun."""
    done = count()
    return lambda: None if progress is None else progress(next(done), total)


def _name(session_id: str, form: Form) -> str:
    """Return the name of a file that a session may have anywhere; long ids are told by a digest."""
    name = quote(session_id, safe=" ")
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:16]
        name = f"{name[:_LONGEST_NAME]}_{digest}"
    return name + _ENDS[form]


def _line(source: Source) -> Iterator[str]:
    """Yield the line of a session in parts."""
    carried = {
        "version": transfer_format.VERSION,
        "tables": [transfer_format.table(each) for each in source.tables],
    }
    row = transfer_format.row(source.columns, source.values)
    head = transfer_format.text({**row, transfer_format.OURS: carried})
    yield f'{head[:-1]},"{transfer_format.MESSAGES}":['
    separator = ""
    for image in source.pages():
        rows = (
            transfer_format.text(transfer_format.row(image.columns, values))
            for values in image.rows
        )
        yield separator + ",".join(rows)
        separator = ","
    yield "]}\n"


def _taken(path: Path) -> Conflict:
    return Conflict(f"{path} is there already; name another file, or move that away")


_OWN = "sessions"
_PAGE_BYTES = 1 << 20


class Source:
    """One session, as of one moment but for what happens to its messages meanwhile."""

    def __init__(self, db: StateDatabase, row: Images, rest: list[Images], at: Revision) -> None:
        self._db = db
        self._at = at
        self.columns, self.values = row.columns, row.rows[0]
        self.id: str = self.values[self.columns.index("id")]
        self.tables = [each for each in rest if each.table not in OF_OTHERS]
        self.count = 0

    @classmethod
    def of(cls, db: StateDatabase, session_id: str) -> Source:
        """Look at a session.

        Raises:
            NotFound: it is not there.
        """
        revision = db.revision(session_id)
        images = db.session_images(session_id)
        own = [each for each in images if each.table == _OWN]
        if not own:
            raise NotFound(f"session {session_id} is gone")
        return cls(db, own[0], [each for each in images if each.table != _OWN], revision)

    def pages(self) -> Iterator[Images]:
        """Yield its messages, up to the last one that there was."""
        after: int | None = None
        more = True
        while more and (after is None or after < self._at.last_id):
            image, more = self._db.message_images(self.id, after, _PAGE_BYTES)
            place = image.columns.index("id")
            rows = tuple(row for row in image.rows if row[place] <= self._at.last_id)
            self.count += len(rows)
            if not rows:
                return
            yield Images(image.table, image.columns, rows)
            after = rows[-1][place]

    def has_changed(self) -> bool:
        """Whether more was done since than to append."""
        with suppress(NotFound):
            now = self._db.revision(self.id)
            grown = now.last_id >= self._at.last_id and now.live >= self._at.live
            kept = (now.compacted, now.rewinds) == (self._at.compacted, self._at.rewinds)
            return not (grown and kept)
        return True


_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"(?=#{1,6}(\s|\Z))")
_SPACE = re.compile(r"\s+")


def session(source: Source, summary: SessionSummary) -> Iterator[str]:
    """Yield the text of a session in parts; its source and folder are those of its summary."""
    row = dict(zip(source.columns, map(_plain, source.values), strict=True))
    yield f"# {_heading_line(row['title'] or row['id'])}\n\n"
    yield "".join(f"- {name}: {_heading_line(value)}\n" for name, value in _facts(row, summary))
    for image in source.pages():
        rows = [dict(zip(image.columns, map(_plain, values), strict=True)) for values in image.rows]
        for message, short in zip(rows, condense(map(_decoded, rows)), strict=True):
            yield _message(message, short)
    yield "\n"


def _facts(row: Mapping[str, Any], summary: SessionSummary) -> Iterator[tuple[str, Any]]:
    yield "session", row["id"]
    ended = _time(row["ended_at"]) if row["ended_at"] is not None else None
    facts = {
        "source": summary.source,
        "model": row.get("model"),
        "project": summary.project,
        "came from": row.get("parent_session_id"),
        "began": _time(row["started_at"]),
        "ended": f"{ended} ({row['end_reason']})" if ended and row["end_reason"] else ended,
    }
    yield from ((name, value) for name, value in facts.items() if value)


def _message(row: Mapping[str, Any], short: Mapping[str, Any]) -> str:
    mark = ""
    if row.get("compacted"):
        mark = " · compacted"
    elif row.get("active") == 0:
        mark = " · taken back"
    name = f" {_heading_line(row['tool_name'])}" if row.get("tool_name") else ""
    said = _text(short)
    calls = "".join(f"- calls `{_code(describe(call))}`\n" for call in chat_messages.calls(short))
    body = "\n\n".join(part for part in (said, calls.rstrip()) if part)
    return f"\n## {_heading_line(row['role'])}{name} · {_time(row['timestamp'])}{mark}\n\n{body}\n"


def _text(message: Mapping[str, Any]) -> str:
    """Return what was said, in which no line is taken for one of our headings."""
    fenced = False
    lines = []
    for line in plain_text(message.get("content")).strip("\n").split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        lines.append(
            line if fenced else _HEADING.sub(r"\\", line, count=1) if line[:1] == "#" else line
        )
    return "\n".join([*lines, "```"] if fenced else lines)


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    calls = decode_json(row.get("tool_calls"))
    return {**row, "content": decode(row.get("content")), "tool_calls": calls}


def _plain(value: Any) -> Any:
    return value.stored.decode("utf-8", "replace") if isinstance(value, Raw) else value


def _time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def _heading_line(value: Any) -> str:
    return _SPACE.sub(" ", str(value)).strip()


def _code(text: str) -> str:
    return text.replace("`", "'")

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
from session_core.compression.rebuild import condense_messages, describe_call
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import translate_os_errors
from session_core.maintenance.select.conversations import ConversationIndex
from session_core.maintenance.select.snapshot import iter_matching
from session_core.maintenance.transfer import format as transfer_format
from session_core.maintenance.transfer.format import EXCLUDED_TABLES
from session_core.maintenance.types import CountFn
from session_core.state.content import decode_content, decode_json, extract_plain_text
from session_core.state.protocol import StateDatabase
from session_core.types import (
    InventoryItem,
    RawText,
    Revision,
    RowImages,
    SessionFilter,
    SessionSummary,
)

ExportForm = Literal["jsonl", "markdown"]

AUDIT_ACTION = "export"

_FILE_SUFFIXES: dict[ExportForm, str] = {"jsonl": ".jsonl", "markdown": ".md"}
_MAX_NAME_LENGTH = 180
_TEMP_PREFIX = ".export_"
_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class ExportResult:
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
class ExportTally:
    """What was written so far."""

    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    gone: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)

    def build_result(self) -> ExportResult:
        """Return it as it is told."""
        said = tuple(self.gone), tuple(self.changed), tuple(self.there)
        return ExportResult(self.sessions, self.messages, self.bytes, *said)


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is exported, and how; all where neither sessions are named nor a filter is given."""

    sessions: Sequence[str] | None = None
    where: SessionFilter | None = None
    """It applies to those that are named too."""
    form: ExportForm = "jsonl"
    whole: bool = True
    """Whether the conversations of the sessions that are named are taken along."""
    progress: CountFn | None = None


EXPORT_ALL = ExportRequest()


class Exporter:
    """Exports sessions of one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client

    def write_sessions(
        self, write: Callable[[bytes], object], wish: ExportRequest = EXPORT_ALL
    ) -> ExportResult:
        """Write sessions.

        Raises:
            NotFound: one of them is not there.
        """
        tally = ExportTally()
        ids = _flatten_groups(self._select_sessions(wish))
        for part in self._iter_parts(
            ids, wish.form, tally, _make_progress_counter(wish.progress, len(ids))
        ):
            write(part)
        return self._finish_export(tally)

    def write_file(self, path: Path, wish: ExportRequest = EXPORT_ALL) -> ExportResult:
        """Write a file that is whole or not there, and that only its owner reads.

        Raises:
            Conflict: there is a file of that name; it stays as it is.
            NotFound: one of the sessions is not there.
        """
        if path.is_symlink() or path.exists():
            raise _make_exists_error(path)
        tally = ExportTally()
        ids = _flatten_groups(self._select_sessions(wish))
        parts = self._iter_parts(
            ids, wish.form, tally, _make_progress_counter(wish.progress, len(ids))
        )
        with translate_os_errors(path):
            try:
                _atomic.write_new_file(path, parts, prefix=_TEMP_PREFIX, mode=_FILE_MODE)
            except FileExistsError as error:
                raise _make_exists_error(path) from error
        return self._finish_export(tally)

    def write_folder(self, folder: Path, wish: ExportRequest = EXPORT_ALL) -> ExportResult:
        """Write a file for each conversation, named by its root; those that are there stay.

        Raises:
            NotFound: one of the sessions is not there.
        """
        tally, groups = ExportTally(), self._select_sessions(wish)
        tell = _make_progress_counter(wish.progress, sum(map(len, groups)))
        for group in groups:
            path = folder / _make_file_name(group[0], wish.form)
            parts = self._iter_parts(group, wish.form, tally, tell)
            with translate_os_errors(path):
                _write_folder_file(path, parts, tally)
        return self._finish_export(tally)

    def _finish_export(self, tally: ExportTally) -> ExportResult:
        done = tally.build_result()
        counts = {"sessions": done.sessions, "messages": done.messages, "bytes": done.bytes}
        with suppress_note_errors(AUDIT_ACTION):
            self._ledger.add_audit_entry(self._client, AUDIT_ACTION, None, counts)
        return done

    def _select_sessions(self, wish: ExportRequest) -> list[list[str]]:
        """Return what is exported by conversation, each session behind what it came from."""
        if wish.form not in _FILE_SUFFIXES:
            raise InvalidInput(
                f"unknown form {wish.form!r:.40}; known are {', '.join(_FILE_SUFFIXES)}"
            )
        conversations = ConversationIndex(self._db.list_inventory())
        groups = self._group_sessions(conversations, wish)
        if wish.where is not None:
            found = iter_matching(self._db, conversations, wish.where)
            allowed = {stock.id for each in found for stock in each.sessions}
            groups = (group for group in groups if group[0].id in allowed)
        seen: set[str] = set()
        chosen = []
        for group in groups:
            new = [stock.id for stock in group if stock.id not in seen]
            seen.update(new)
            chosen += [new] if new else []
        return chosen

    def _group_sessions(
        self, conversations: ConversationIndex, wish: ExportRequest
    ) -> Iterable[Sequence[InventoryItem]]:
        if wish.sessions is None:
            return [each.sessions for each in conversations.all]
        for each in wish.sessions:
            if each not in conversations.stocks:
                self._db.get_revision(each)  # knows what may have been meant
        if not wish.whole:
            return [(conversations.stocks[each],) for each in wish.sessions]
        named = map(conversations.find_removed_together, wish.sessions)
        return [each.sessions for each in named if each is not None]

    def _iter_parts(
        self,
        session_ids: Sequence[str],
        form: ExportForm,
        tally: ExportTally,
        tell: Callable[[], object],
    ) -> Iterator[bytes]:
        for session_id in session_ids:
            tell()
            try:
                source = ExportSource.from_session(self._db, session_id)
                lines = self._iter_lines(source, form)
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

    def _iter_lines(self, source: ExportSource, form: ExportForm) -> Iterator[str]:
        if form == "jsonl":
            return _iter_session_line(source)
        return render_session(source, self._db.summarize_session(source.id))


def _write_folder_file(path: Path, parts: Iterator[bytes], tally: ExportTally) -> None:
    """Write a file of a folder, where there is none and anything to write."""
    if path.is_symlink() or path.exists():
        tally.there.append(path.name)
        return
    first = next(parts, None)
    if first is None:
        return
    try:
        _atomic.write_new_file(path, chain([first], parts), prefix=_TEMP_PREFIX, mode=_FILE_MODE)
    except FileExistsError:
        tally.there.append(path.name)


def _flatten_groups(groups: Iterable[Iterable[str]]) -> list[str]:
    return [each for group in groups for each in group]


def _make_progress_counter(progress: CountFn | None, total: int) -> Callable[[], object]:
    """Return what says of one more session that it is begun."""
    done = count()
    return lambda: None if progress is None else progress(next(done), total)


def _make_file_name(session_id: str, form: ExportForm) -> str:
    """Return the name of a file that a session may have anywhere; long ids are told by a digest."""
    name = quote(session_id, safe=" ")
    if len(name) > _MAX_NAME_LENGTH:
        digest = hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:16]
        name = f"{name[:_MAX_NAME_LENGTH]}_{digest}"
    return name + _FILE_SUFFIXES[form]


def _iter_session_line(source: ExportSource) -> Iterator[str]:
    """Yield the line of a session in parts."""
    carried = {
        "version": transfer_format.FORMAT_VERSION,
        "tables": [transfer_format.encode_table(each) for each in source.tables],
    }
    row = transfer_format.encode_row(source.columns, source.values)
    head = transfer_format.encode_json({**row, transfer_format.FORMAT_KEY: carried})
    yield f'{head[:-1]},"{transfer_format.MESSAGES_KEY}":['
    separator = ""
    for image in source.iter_pages():
        rows = (
            transfer_format.encode_json(transfer_format.encode_row(image.columns, values))
            for values in image.rows
        )
        yield separator + ",".join(rows)
        separator = ","
    yield "]}\n"


def _make_exists_error(path: Path) -> Conflict:
    return Conflict(f"{path} is there already; name another file, or move that away")


_OWN_TABLE = "sessions"
_PAGE_BYTES = 1 << 20


class ExportSource:
    """One session, as of one moment but for what happens to its messages meanwhile."""

    def __init__(
        self, db: StateDatabase, row: RowImages, rest: list[RowImages], at: Revision
    ) -> None:
        self._db = db
        self._at = at
        self.columns, self.values = row.columns, row.rows[0]
        self.id: str = self.values[self.columns.index("id")]
        self.tables = [each for each in rest if each.table not in EXCLUDED_TABLES]
        self.count = 0

    @classmethod
    def from_session(cls, db: StateDatabase, session_id: str) -> ExportSource:
        """Look at a session.

        Raises:
            NotFound: it is not there.
        """
        revision = db.get_revision(session_id)
        images = db.read_session_images(session_id)
        own = [each for each in images if each.table == _OWN_TABLE]
        if not own:
            raise NotFound(f"session {session_id} is gone")
        return cls(db, own[0], [each for each in images if each.table != _OWN_TABLE], revision)

    def iter_pages(self) -> Iterator[RowImages]:
        """Yield its messages, up to the last one that there was."""
        after: int | None = None
        more = True
        while more and (after is None or after < self._at.last_id):
            image, more = self._db.read_message_images(self.id, after, _PAGE_BYTES)
            place = image.columns.index("id")
            rows = tuple(row for row in image.rows if row[place] <= self._at.last_id)
            self.count += len(rows)
            if not rows:
                return
            yield RowImages(image.table, image.columns, rows)
            after = rows[-1][place]

    def has_changed(self) -> bool:
        """Whether more was done since than to append."""
        with suppress(NotFound):
            now = self._db.get_revision(self.id)
            grown = now.last_id >= self._at.last_id and now.live >= self._at.live
            kept = (now.compacted, now.rewinds) == (self._at.compacted, self._at.rewinds)
            return not (grown and kept)
        return True


_FENCE_PATTERN = re.compile(r"\s*(```|~~~)")
_HEADING_PATTERN = re.compile(r"(?=#{1,6}(\s|\Z))")
_SPACE_PATTERN = re.compile(r"\s+")


def render_session(source: ExportSource, summary: SessionSummary) -> Iterator[str]:
    """Yield the text of a session in parts; its source and folder are those of its summary."""
    row = dict(zip(source.columns, map(_decode_raw, source.values), strict=True))
    yield f"# {_format_heading(row['title'] or row['id'])}\n\n"
    yield "".join(
        f"- {name}: {_format_heading(value)}\n" for name, value in _iter_facts(row, summary)
    )
    for image in source.iter_pages():
        rows = [
            dict(zip(image.columns, map(_decode_raw, values), strict=True)) for values in image.rows
        ]
        for message, short in zip(rows, condense_messages(map(_decode_row, rows)), strict=True):
            yield _render_message(message, short)
    yield "\n"


def _iter_facts(row: Mapping[str, Any], summary: SessionSummary) -> Iterator[tuple[str, Any]]:
    yield "session", row["id"]
    ended = _format_time(row["ended_at"]) if row["ended_at"] is not None else None
    facts = {
        "source": summary.source,
        "model": row.get("model"),
        "project": summary.project,
        "came from": row.get("parent_session_id"),
        "began": _format_time(row["started_at"]),
        "ended": f"{ended} ({row['end_reason']})" if ended and row["end_reason"] else ended,
    }
    yield from ((name, value) for name, value in facts.items() if value)


def _render_message(row: Mapping[str, Any], short: Mapping[str, Any]) -> str:
    mark = ""
    if row.get("compacted"):
        mark = " · compacted"
    elif row.get("active") == 0:
        mark = " · taken back"
    name = f" {_format_heading(row['tool_name'])}" if row.get("tool_name") else ""
    said = _render_text(short)
    calls = "".join(
        f"- calls `{_format_code(describe_call(call))}`\n"
        for call in chat_messages.list_calls(short)
    )
    body = "\n\n".join(part for part in (said, calls.rstrip()) if part)
    return (
        f"\n## {_format_heading(row['role'])}{name} · "
        f"{_format_time(row['timestamp'])}{mark}\n\n{body}\n"
    )


def _render_text(message: Mapping[str, Any]) -> str:
    """Return what was said, in which no line is taken for one of our headings."""
    fenced = False
    lines = []
    for line in extract_plain_text(message.get("content")).strip("\n").split("\n"):
        if _FENCE_PATTERN.match(line):
            fenced = not fenced
        lines.append(
            line
            if fenced
            else _HEADING_PATTERN.sub(r"\\", line, count=1)
            if line[:1] == "#"
            else line
        )
    return "\n".join([*lines, "```"] if fenced else lines)


def _decode_row(row: Mapping[str, Any]) -> dict[str, Any]:
    calls = decode_json(row.get("tool_calls"))
    return {**row, "content": decode_content(row.get("content")), "tool_calls": calls}


def _decode_raw(value: Any) -> Any:
    return value.stored.decode("utf-8", "replace") if isinstance(value, RawText) else value


def _format_time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def _format_heading(value: Any) -> str:
    return _SPACE_PATTERN.sub(" ", str(value)).strip()


def _format_code(text: str) -> str:
    return text.replace("`", "'")

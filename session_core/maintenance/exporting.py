"""Whole sessions and conversations as a file, with all that was compacted or taken back.

As JSON Lines, which `importing` reads, or as Markdown for people, in one file or in one for each
conversation. A session is read a page at a
time, so that however long it is little of it is in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from session_core import _files
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.folder import refusals
from session_core.ledger.ledger import Ledger
from session_core.ledger.steps import noting
from session_core.maintenance import carrying, markdown
from session_core.maintenance.answers import CountFn
from session_core.maintenance.conversations import Conversations
from session_core.maintenance.scene import matching
from session_core.maintenance.sources import Source
from session_core.models import SessionFilter, Stock
from session_core.state.contract import StateDatabase

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
                _files.write_new(path, parts, prefix=_PREFIX, mode=_MODE)
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
        return markdown.session(source, self._db.summarize(source.id))


def _write_part(path: Path, parts: Iterator[bytes], tally: Tally) -> None:
    """Write a file of a folder, where there is none and anything to write."""
    if path.is_symlink() or path.exists():
        tally.there.append(path.name)
        return
    first = next(parts, None)
    if first is None:
        return
    try:
        _files.write_new(path, chain([first], parts), prefix=_PREFIX, mode=_MODE)
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
        "version": carrying.VERSION,
        "tables": [carrying.table(each) for each in source.tables],
    }
    row = carrying.row(source.columns, source.values)
    head = carrying.text({**row, carrying.OURS: carried})
    yield f'{head[:-1]},"{carrying.MESSAGES}":['
    separator = ""
    for image in source.pages():
        rows = (carrying.text(carrying.row(image.columns, values)) for values in image.rows)
        yield separator + ",".join(rows)
        separator = ","
    yield "]}\n"


def _taken(path: Path) -> Conflict:
    return Conflict(f"{path} is there already; name another file, or move that away")

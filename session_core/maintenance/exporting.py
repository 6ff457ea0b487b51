"""Whole sessions and conversations as a file, with all that was compacted or taken back.

As JSON Lines, which `importing` reads, or as Markdown for people. A session is read a page at a
time, so that however long it is little of it is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from session_core import _files
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.folder import refusals
from session_core.ledger.ledger import Ledger
from session_core.ledger.steps import noting
from session_core.maintenance import carrying, markdown
from session_core.maintenance.conversations import Conversations
from session_core.maintenance.sources import Source
from session_core.state.contract import StateDatabase

Form = Literal["jsonl", "markdown"]

CountFn = Callable[[int, int], object]
"""Told how many sessions of how many are done; what it raises ends it there."""

WHAT = "export"

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


@dataclass(slots=True)
class Tally:
    """What was written so far."""

    sessions: int = 0
    messages: int = 0
    bytes: int = 0
    gone: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def result(self) -> Exported:
        """Return it as it is told."""
        gone, changed = tuple(self.gone), tuple(self.changed)
        return Exported(self.sessions, self.messages, self.bytes, gone, changed)


class Exporting:
    """Exports sessions of one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client

    def write(
        self,
        write: Callable[[bytes], object],
        sessions: Sequence[str] | None = None,
        *,
        form: Form = "jsonl",
        whole: bool = True,
        progress: CountFn | None = None,
    ) -> Exported:
        """Write sessions, all where none are named; `whole` takes their conversations along.

        Raises:
            NotFound: one of them is not there.
        """
        tally = Tally()
        for part in self._parts(self._chosen(sessions, whole=whole), form, tally, progress):
            write(part)
        return self._done(tally)

    def write_file(
        self,
        path: Path,
        sessions: Sequence[str] | None = None,
        *,
        form: Form = "jsonl",
        whole: bool = True,
        progress: CountFn | None = None,
    ) -> Exported:
        """Write a file that is whole or not there, and that only its owner reads.

        Raises:
            Conflict: there is a file of that name; it stays as it is.
            NotFound: one of the sessions is not there.
        """
        if path.is_symlink() or path.exists():
            raise _taken(path)
        tally = Tally()
        parts = self._parts(self._chosen(sessions, whole=whole), form, tally, progress)
        with refusals(path):
            try:
                _files.write_new(path, parts, prefix=_PREFIX, mode=_MODE)
            except FileExistsError as error:
                raise _taken(path) from error
        return self._done(tally)

    def _done(self, tally: Tally) -> Exported:
        done = tally.result()
        counts = {"sessions": done.sessions, "messages": done.messages, "bytes": done.bytes}
        with noting(WHAT):
            self._ledger.audit(self._client, WHAT, None, counts)
        return done

    def _chosen(self, sessions: Sequence[str] | None, *, whole: bool) -> list[str]:
        """Return what is exported, each session behind the one that it came from."""
        conversations = Conversations(self._db.inventory())
        for each in sessions or ():
            if each not in conversations.stocks:
                self._db.revision(each)  # knows what may have been meant
        if sessions is None:
            groups = [each.sessions for each in conversations.all]
        elif whole:
            named = [conversations.named(each) for each in sessions]
            groups = [each.sessions for each in named if each is not None]
        else:
            groups = [(conversations.stocks[each],) for each in sessions]
        return list(dict.fromkeys(stock.id for group in groups for stock in group))

    def _parts(
        self, session_ids: Sequence[str], form: Form, tally: Tally, progress: CountFn | None
    ) -> Iterator[bytes]:
        if form not in ("jsonl", "markdown"):
            raise InvalidInput(f"unknown form {form!r:.40}; known are jsonl and markdown")
        for done, session_id in enumerate(session_ids):
            if progress is not None:
                progress(done, len(session_ids))
            try:
                source = Source.of(self._db, session_id)
            except NotFound:
                tally.gone.append(session_id)
                continue
            lines = markdown.session(source) if form == "markdown" else _line(source)
            for part in lines:
                data = part.encode("utf-8", "replace")
                tally.bytes += len(data)
                yield data
            tally.sessions += 1
            tally.messages += source.count
            if source.has_changed():
                tally.changed.append(session_id)


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

"""Sessions that were exported, by us or by Hermes, come into a home.

What is there stays: a session whose id is there is skipped, a title or a parent that cannot be is
left out, and all of it is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Literal

from session_core.errors import InvalidInput, NotFound
from session_core.ledger.folder import refusals
from session_core.ledger.ledger import Ledger
from session_core.ledger.steps import noting
from session_core.maintenance import arriving
from session_core.maintenance.answers import CountFn, Skipped, StopFn
from session_core.maintenance.arriving import Broken, Found
from session_core.maintenance.imported import Arrivals, Coming, Imported, Tally
from session_core.maintenance.storing import STRANGE, Reading, Refused, Storing
from session_core.state.contract import StateDatabase

WHAT = "import"

_THERE = "it is there already"


class Importing:
    """Imports sessions into one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client
        self._storing = Storing(db)

    def read_file(
        self,
        path: Path,
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> Imported:
        """Import the lines of a file; `progress` is told how many sessions of how many are done.

        Raises:
            NotFound: there is no such file.
        """
        _require(path)
        tally = Tally()
        outcome: Literal["applied", "partial"] = "applied"
        with refusals(path), path.open("rb") as file:
            found = list(takewhile(lambda _: stop is None or not stop(), _whole(file, tally)))
            done = 0
            reading = Reading(file, {each.id: each for each in found}, tally)
            if stop is not None and stop():
                outcome, found = "partial", []
            self._check_writable(found)
            for group in arriving.in_order(found):
                if stop is not None and stop():
                    outcome = "partial"
                    break
                self._import(reading, group)
                done += len(group)
                if progress is not None:
                    progress(done, len(found))
        result = tally.result(outcome)
        self._note(result)
        return result

    def look_into(self, path: Path, *, progress: CountFn | None = None) -> Arrivals:
        """Return what an import of a file would bring, as far as the file and the home tell.

        `progress` is told how many bytes of how many are read.

        Raises:
            NotFound: there is no such file.
        """
        _require(path)
        tally, coming = Tally(), []
        lines: dict[str, Found] = {}
        with refusals(path), path.open("rb") as file:
            size = path.stat().st_size
            for each in _whole(file, tally):
                lines[each.id] = each
                if progress is not None:
                    progress(min(file.tell(), size), size)
        there = {stock.id for stock in self._db.inventory()}
        for each in lines.values():
            if each.id in there and not self._is_new(each):
                tally.skipped.append(Skipped(each.id, _THERE))
                continue
            coming.append(Coming(each.id, each.title, each.messages))
            if each.parent in there and not self._storing.may_have(lines, each.parent):
                tally.left_out.append(Skipped(each.id, STRANGE))
        self._check_writable(lines[each.id] for each in coming)
        left = tuple(tally.skipped), tuple(tally.broken), tuple(tally.left_out)
        return Arrivals(tuple(coming), *left)

    def _check_writable(self, found: Iterable[Found]) -> None:
        """Refuse before anything comes in if an index takes no rows of it.

        Raises:
            Unsupported: it does not.
        """
        if self._db.blocked_indexes():
            new = [each for each in found if self._is_new(each)]
            tables = ["sessions"] if new else []
            messages = ["messages"] if any(each.messages for each in new) else []
            self._db.check_rows_writable(tables + messages)

    def _note(self, result: Imported) -> None:
        counts = {
            "sessions": result.sessions,
            "messages": result.messages,
            "skipped": len(result.skipped),
            "broken": len(result.broken),
        }
        with noting(WHAT):
            self._ledger.audit(self._client, WHAT, None, counts)

    def _import(self, reading: Reading, group: Sequence[Found]) -> None:
        """Import a session, or several of which each is an ancestor of the others."""
        tally = reading.tally
        for each in group:
            if not self._is_new(each):
                tally.skipped.append(Skipped(each.id, _THERE))
        new = [each for each in group if self._is_new(each)]
        with _reporting(new, tally):
            if len(new) > 1:
                self._storing.begin_together(reading, new)
            for each in new:
                with _reporting([each], tally):
                    self._storing.store(reading, each)

    def _is_new(self, found: Found) -> bool:
        """Whether a session is not there, or an import of this very line was cut short."""
        return self._db.get_session(found.id) is None or self._storing.stored(found) is not None


def _require(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"{path} is not there, or no file")


def _whole(file: BinaryIO, tally: Tally) -> Iterator[Found]:
    """Yield the lines that can be imported; the others are noted."""
    seen: dict[str, int] = {}
    for each in arriving.survey(file):
        if isinstance(each, Broken):
            tally.broken.append(each)
        elif each.id in seen:
            why = f"line {each.number} has it once more, after line {seen[each.id]}"
            tally.skipped.append(Skipped(each.id, why))
        else:
            seen[each.id] = each.number
            yield each


@contextmanager
def _reporting(group: Sequence[Found], tally: Tally) -> Iterator[None]:
    """Note lines that do not fit, and go on with the next."""
    try:
        yield
    except (InvalidInput, Refused) as error:
        tally.broken += [Broken(each.number, str(error)) for each in group]

"""Files that go with a step: kept before it, and deleted once it is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from session_core.errors import Changed, Denied, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept, Step
from session_core.ledger.steps import noting
from session_core.maintenance import files
from session_core.maintenance.members import Outdated

Head = Mapping[str, Any]


def keep(path: Path, home: Path, heads: list[Head], member: str) -> Iterator[Kept]:
    """Yield what brings a file back, and note its head; one that may not be touched is left.

    Raises:
        Outdated: somebody is writing it.
    """
    try:
        for kept in files.keep(path, home):
            if kept.what == files.FILE:
                heads.append(kept.value)
            yield kept
    except Changed as error:
        raise Outdated(member, str(error)) from error
    except (Denied, NotFound):
        return


def remove(heads: Iterable[Head], home: Path) -> None:
    """Delete files that are still as they were kept; where one cannot be, that is reported."""
    for head in heads:
        with noting(f"that {head['name']} is deleted"):
            files.remove(head, home)


def finish(ledger: Ledger, step: Step, home: Path) -> None:
    """Delete what a step has kept that was cut short behind its commit."""
    if (step.result or {}).get("files"):
        kept = (each.value for each in ledger.trash(step.id) if each.what == files.FILE)
        remove(list(kept), home)

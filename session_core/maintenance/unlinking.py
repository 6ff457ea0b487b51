"""Files that go with a step: kept before it, and deleted once it is committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from session_core.errors import Changed, Denied, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept, Step
from session_core.ledger.steps import noting
from session_core.maintenance import files, orphans
from session_core.maintenance.left import Left
from session_core.maintenance.members import Outdated

NAMES = "names"
"""In the result of a step: the files of what it took, also those that may not be touched."""

Head = Mapping[str, Any]

_MOST = 20


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


def remove(heads: Iterable[Head], home: Path, store: Path | None = None) -> None:
    """Delete files that are still as they were kept; where one cannot be, that is reported."""
    for head in heads:
        with noting(f"that {head['name']} is deleted"):
            files.remove(head, home, store)


def finish(ledger: Ledger, step: Step, home: Path, store: Path | None = None) -> None:
    """Delete what a step has kept that was cut short behind its commit, but what came back."""
    if not (step.result or {}).get("files"):
        return
    with noting(f"that the files of step {step.id} are deleted"):
        left = Left.of(ledger.tried(step.id))
        kept = (each.value for each in ledger.trash(step.id) if each.what == files.FILE)
        gone = [head for head in kept if left is None or head["name"] in left.files]
        remove(gone, home, store)


def staying(steps: Iterable[Step], folder: Path, but: Collection[str]) -> list[str]:
    """Return warnings of the files of what steps have removed that are still there.

    Those of some sessions may be there.
    """
    owners = orphans.Names(but)
    results = (step.result for step in steps if isinstance(step.result, dict))
    names = [name for result in results for name in result.get(NAMES, ())]
    found = [
        name for name in names if _is_there(folder / name) and owners.owner_of(name) not in but
    ]
    said = [
        f"{name} of a session that was removed is still there: it is a link, a database or no "
        "ordinary file, could not be deleted, or was written just then"
        for name in found[:_MOST]
    ]
    rest = len(found) - len(said)
    return [*said, f"{rest:,} more such files are still there"] if rest else said


def _is_there(path: Path) -> bool:
    with suppress(OSError):
        path.lstat()
        return True
    return False

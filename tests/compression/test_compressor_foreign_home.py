"""Plans and undos of one home are refused in another home at its path."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import Changed, Compressor, Conflict, Ledger, NotFound, SessionDB, StateFolder
from session_core.state.sqlite.database_file import get_sidecar_path
from tests.compression.homes import LAST, Chat, read_tables, summarize_short
from tests.homes import make_hermes_database, make_own_database

Swap = Callable[[Path, Path], object]


def swap_file(path: Path, other: Path) -> None:
    """Replace a database by another file."""
    other.replace(path)


def swap_content(path: Path, other: Path) -> None:
    """Replace the content of a database file, as if the system had reused its inode."""
    shutil.copyfile(other, path)


SWAPS: dict[str, Swap] = {"another file": swap_file, "the same inode": swap_content}


@pytest.fixture(params=SWAPS.values(), ids=SWAPS)
def swapped(request: pytest.FixtureRequest, chat: Chat, kind: str) -> Callable[[str], Path]:
    """Closes the home and puts another in its place, in which the session has the same id."""

    def swap(session_id: str) -> Path:
        path = chat.db.path
        for opened in (chat.ledger, chat.store, chat.db):
            opened.close()
        other = path.parent.parent / "other" / "state.db"
        other.parent.mkdir()
        (make_own_database if kind == "own" else make_hermes_database)(other)
        with SessionDB(other) as db:
            rows = [{"role": "user", "content": f"another {at} " * 30} for at in range(200)]
            db.append_messages(session_id, rows, create={"source": "telegram"})
        for name in ("-wal", "-shm"):
            for file in (path, other):
                get_sidecar_path(file, name).unlink(missing_ok=True)
        request.param(path, other)
        return path

    return swap


@contextmanager
def open_compressor(path: Path, chat: Chat) -> Iterator[Compressor]:
    with (
        SessionDB(path, clock=chat.clock) as db,
        Ledger(StateFolder(path, root=chat.state), clock=chat.clock) as ledger,
        Compressor(db, ledger, clock=chat.clock) as compressor,
    ):
        yield compressor


@pytest.mark.needs_files
@pytest.mark.requirement("compression:other-home")
def test_plan_is_refused_in_another_home(chat: Chat, swapped: Callable[[str], Path]) -> None:
    plan = chat.compressor().plan(chat.session_id, keep_last=LAST)
    path = swapped(plan.session_id)
    before = read_tables(path)
    with open_compressor(path, chat) as compressor, pytest.raises((NotFound, Changed)):
        compressor.apply(plan.plan, summarize_short(None))
    assert read_tables(path) == before


@pytest.mark.needs_files
@pytest.mark.requirement("compression:other-home")
@pytest.mark.parametrize("shape", ["in_place", "continuation"])
def test_undo_is_refused_in_another_home(
    chat: Chat, swapped: Callable[[str], Path], shape: Any
) -> None:
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape=shape, keep_last=LAST
    )
    path = swapped(result.old_session_id)
    before = read_tables(path)
    with open_compressor(path, chat) as compressor, pytest.raises((NotFound, Conflict)):
        compressor.undo(result.batch)
    assert read_tables(path) == before


@pytest.mark.requirement("compression:other-home")
@pytest.mark.parametrize("kind", ["own"], indirect=True)
def test_own_home_is_recognised_by_name(chat: Chat, swapped: Callable[[str], Path]) -> None:
    result = chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    with open_compressor(swapped(result.session_id), chat) as compressor:
        with pytest.raises(NotFound, match="no batch"):
            compressor.undo(result.batch)
        again = compressor.compress(result.session_id, summarize_short, keep_last=LAST)
        assert compressor.undo(again.batch)

"""The first write makes a home of our own; what is refused or changes nothing makes none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import NotFound, SessionDB, TitleTaken

NOTHING: dict[str, Callable[[SessionDB], Any]] = {
    "end_session": lambda db: db.end_session("s", "done"),
    "reopen_session": lambda db: db.reopen_session("s"),
    "update_session": lambda db: db.update_session("s", model="m"),
    "set_session_title": lambda db: db.set_session_title("s", None),
    "set_session_archived": lambda db: db.set_session_archived("s", archived=True),
    "delete_session": lambda db: db.delete_session("s"),
    "delete_sessions": lambda db: db.delete_sessions(["s", "t"]),
    "prune_empty_ghost_sessions": lambda db: db.prune_empty_ghost_sessions(),
    "finalize_orphaned": lambda db: db.finalize_orphaned_compression_sessions(),
}
REFUSED: dict[str, Callable[[SessionDB], Any]] = {
    "append_message": lambda db: db.append_message("s", "user", "hello"),
    "append_messages": lambda db: db.append_messages("s", [{"role": "user", "content": "hello"}]),
    "replace_messages": lambda db: db.replace_messages("s", []),
    "rewind_to_message": lambda db: db.rewind_to_message("s", 1),
    "clear_messages": lambda db: db.clear_messages("s"),
    "create_session": lambda db: db.create_session("s", "cli", parent_session_id="none"),
}


@pytest.mark.parametrize("change", NOTHING.values(), ids=NOTHING)
def test_a_change_that_changes_nothing_makes_no_home(
    tmp_path: Path, change: Callable[[SessionDB], Any]
) -> None:
    with SessionDB(tmp_path / "home" / "state.db") as db:
        assert not change(db)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_a_change_that_is_refused_makes_no_home(
    tmp_path: Path, change: Callable[[SessionDB], Any]
) -> None:
    with SessionDB(tmp_path / "home" / "state.db") as db, pytest.raises(NotFound):
        change(db)
    assert not (tmp_path / "home").exists()


def test_the_first_change_makes_a_home_that_holds_it_once(tmp_path: Path) -> None:
    path = tmp_path / "home" / "state.db"
    with SessionDB(path) as db:
        first = db.append_message("s", "user", "hello", create={"source": "cli"})
        assert first.after == db.revision("s")
    with SessionDB(path) as again:
        assert [row["id"] for row in again.get_messages("s")] == [first]
        assert again.kind == "own"


def test_what_another_process_has_stored_meanwhile_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as late, SessionDB(path) as early:
        assert late.get_session("s") is None
        early.create_session("s", "cli")
        early.set_session_title("s", "Trip")
        late.create_session("t", "cli")
        with pytest.raises(TitleTaken):
            late.set_session_title("t", "Trip")

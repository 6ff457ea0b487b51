"""Copies of homes: equal sessions, reports, and the continuation of a copy."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_core import InvalidInput, SessionDB, Unsupported
from session_core.ledger.ledger import Ledger
from session_core.maintenance import copy_home, preview_copy
from session_core.maintenance.transfer import copier, digests
from tests.homes import connect, fill_database, make_hermes_database
from tests.postgres_home import make_postgres, share_postgres
from tests.thorough import mark_thorough

STRANGE = "nul \0, half \ud83d, \U0001d518\U0001f600 \x1a0 \x1a"
IDS = ("with space", "s/%_'\"\\", "Ä\u202e日本", "\x1a0", "-n")


BOTH = ["sqlite", "postgres"]
MAINLY_SQLITE = ["sqlite", mark_thorough("postgres")]


class Homes:
    """Opens homes by name, and closes them at the end of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = ExitStack()

    def open(self, kind: str, name: str) -> Any:
        """Open a home of a kind."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        db = make_postgres(folder) if kind == "postgres" else SessionDB(folder / "state.db")
        return self.stack.enter_context(db)

    def make_hermes(self, name: str = "hermes") -> Any:
        """Make a Hermes home with conversations."""
        path = self.folder / name / "state.db"
        path.parent.mkdir()
        make_hermes_database(path)
        fill_database(path, 6, 12)
        return self.stack.enter_context(SessionDB(path))


@pytest.fixture(name="homes")
def _homes(tmp_path: Path) -> Iterator[Homes]:
    homes = Homes(tmp_path)
    with homes.stack:
        yield homes


def fill(db: Any) -> None:
    """Add sessions with strange ids and text, links, usage, state and compacted messages."""
    for session_id in IDS:
        db.append_message(session_id, "user", STRANGE, create={"source": "cli"})
    parts = [{"type": "text", "text": STRANGE}, {"type": "text", "text": "two"}]
    db.append_message("parts", "user", parts, create={"source": "cli", "model": "m"})
    db.append_message("parts", "assistant", "x", tool_calls=[{"id": "1", "name": STRANGE}])
    db.update_token_counts("parts", input_tokens=3, model="m")
    db.create_session("child", "cli", parent_session_id="parts")
    db.set_session_title("child", "Title \U0001f600")
    ids = [int(db.append_message("child", "user", f"message {n}")) for n in range(6)]
    db.rows.compact_messages("child", ids[:3], [{"role": "user", "content": "summary"}])
    db.rewind_to_message("child", ids[5])
    db.end_session("child", "user_exit")
    if db.admin.get_capabilities().state:
        db.state.merge_session_state("parts", {"a": [1, STRANGE], "b": None})


def digest_all(db: Any, *others: Any) -> dict[str, tuple[str, str]]:
    """Return the digests of all sessions by the columns that these homes share."""
    tables = ("sessions", "messages", "session_model_usage", "ms_session_state")
    columns = {
        table: frozenset.intersection(
            *(frozenset(x.rows.list_columns(table)) for x in (db, *others))
        )
        for table in tables
    }
    columns = {table: names for table, names in columns.items() if names}
    return {
        session.id: (
            digests.digest_rows(db, session.id, columns),
            digests.digest_messages(db, session.id, columns, lambda: None),
        )
        for session in db.admin.list_inventory()
    }


@pytest.mark.parametrize("kind", BOTH)
def test_copy_equals_its_source(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    preview = preview_copy(source, target)
    assert (preview.sessions, preview.present, preview.left_out) == (len(IDS) + 2, 0, ())
    assert (preview.dropped_columns, preview.routes) == ({}, 0)
    result = copy_home(source, target)
    assert (result.outcome, result.copied, result.differing) == ("applied", len(IDS) + 2, ())
    assert (result.renumbered, result.messages) == ((), preview.messages)
    assert digest_all(source) == digest_all(target)
    for session in source.admin.list_inventory():
        assert source.get_messages(session.id) == target.get_messages(session.id)
    assert target.get_compression_tip("parts") == source.get_compression_tip("parts")
    assert [hit.session_id for hit in target.search("two").hits] == ["parts"]
    again = copy_home(source, target)
    assert (again.copied, again.updated, again.messages) == (0, 0, 0)
    assert again.unchanged == len(IDS) + 2


@pytest.mark.parametrize("kind", BOTH)
def test_text_that_is_not_utf8_is_kept(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    source.append_message("s", "user", "x", create={"source": "cli"})
    with connect(source.path) as connection:
        connection.execute("UPDATE messages SET content = CAST(x'00eda0bd41ff' AS TEXT)")
    assert copy_home(source, target).copied == 1
    back = homes.open("sqlite", "c")
    assert copy_home(target, back).copied == 1
    with connect(back.path) as connection:
        (row,) = connection.execute("SELECT hex(content) FROM messages")
    assert row == ("00EDA0BD41FF",)


def test_hermes_home_reaches_own_home_by_postgres(homes: Homes) -> None:
    hermes, shared, own = (
        homes.make_hermes(),
        homes.open("postgres", "b"),
        homes.open("sqlite", "c"),
    )
    fill(hermes)
    copy_home(hermes, shared)
    copy_home(shared, own)
    all_homes = (hermes, shared, own)
    first, second, third = (digest_all(db, *all_homes) for db in all_homes)
    assert len(first) == len(hermes.admin.list_inventory()) > 6
    assert first == second == third


@pytest.mark.parametrize("kind", BOTH)
def test_second_copy_brings_only_changes(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    copy_home(source, target)
    ids = [int(source.append_message("parts", "user", f"more {n}")) for n in range(4)]
    source.rows.compact_messages("parts", ids[:2], [{"role": "user", "content": "less"}])
    source.state.merge_session_state("parts", {"a": 2}, remove=["b"])
    source.update_token_counts("parts", input_tokens=4, model="m")
    source.set_session_title("child", "Renamed")
    source.append_message("new", "user", "x", create={"source": "cli"})
    result = copy_home(source, target)
    assert (result.copied, result.updated, result.unchanged) == (1, 2, len(IDS))
    assert digest_all(source) == digest_all(target)
    source.rewind_to_message("parts", ids[3])
    assert copy_home(source, target).updated == 1
    assert digest_all(source) == digest_all(target)


@pytest.mark.parametrize("kind", MAINLY_SQLITE)
def test_taken_ids_are_shifted_together(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    target.append_message("here", "user", "first", create={"source": "cli"})
    fill(source)
    result = copy_home(source, target)
    assert (result.renumbered, result.differing) == ((IDS[0],), ())
    assert digest_all(source).items() <= digest_all(target).items()
    for number in range(3):
        target.append_message("here", "user", "more")
        source.append_message(IDS[0], "user", f"later {number}")
        assert copy_home(source, target).updated == 1
    assert digest_all(source).items() <= digest_all(target).items()
    texts = [row["content"] for row in target.get_messages(IDS[0])]
    assert texts == [texts[0], "later 0", "later 1", "later 2"]


@pytest.mark.parametrize("kind", MAINLY_SQLITE)
def test_foreign_sessions_of_target_stay(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    target.append_message("parts", "user", "of another", create={"source": "cli"})
    target.create_session("x", "cli")
    target.set_session_title("x", "Title \U0001f600")
    preview = preview_copy(source, target)
    assert [item.id for item in preview.left_out] == ["child"]
    assert preview.present == 1
    result = copy_home(source, target)
    assert [item.id for item in result.differing] == ["parts"]
    assert [item.id for item in result.left_out] == ["child"]
    assert target.get_session_title("child") is None
    assert [row["content"] for row in target.get_messages("parts")] == ["of another"]
    assert copy_home(source, target).unchanged == result.copied


@pytest.mark.parametrize("kind", MAINLY_SQLITE)
def test_session_changed_in_target_is_left(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    copy_home(source, target)
    target.append_message("parts", "user", "only here")
    source.append_message("parts", "user", "only there")
    target.set_session_title("child", "Named here")
    before = digest_all(target)
    result = copy_home(source, target)
    assert sorted(item.id for item in result.differing) == ["child", "parts"]
    assert digest_all(target) == before


@pytest.mark.parametrize("kind", BOTH)
def test_removed_session_stays_removed(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    copy_home(source, target)
    target.delete_session(IDS[1])
    source.append_message(IDS[1], "user", "more")
    preview = preview_copy(source, target)
    assert (preview.sessions, preview.removed) == (0, 1)
    result = copy_home(source, target)
    assert (result.removed, result.copied, result.differing) == (1, 0, ())
    assert target.get_session(IDS[1]) is None
    assert preview_copy(source, target, copies_removed=True).sessions == 1
    result = copy_home(source, target, copies_removed=True)
    assert (result.removed, result.copied) == (0, 1)
    assert digest_all(source) == digest_all(target)


@pytest.mark.parametrize("kind", BOTH)
def test_values_and_pins_are_added(homes: Homes, kind: str) -> None:
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    source.meta.set_value("key", STRANGE.replace("\ud83d", ""))
    source.meta.set_value("taken", "of the source")
    target.meta.set_value("taken", "of the target")
    source.state.merge_user_state("app", "user", {"likes": [1, "Ä"]})
    source.state.merge_app_state("app", {"limit": 2})
    with Ledger.open(source) as ledger:
        ledger.pins.set_pins({"parts": True, "gone": True})
    preview = preview_copy(source, target)
    assert (preview.values, preview.pins, preview.batches) == (4, 2, 0)
    result = copy_home(source, target)
    assert (result.values, result.pins) == (3, 1)
    assert [item.id for item in result.left_out] == ["taken"]
    assert target.meta.list_values() == source.meta.list_values() | {"taken": "of the target"}
    assert target.state.read_user_state("app", "user") == {"likes": [1, "Ä"]}
    assert target.state.read_app_state("app") == {"limit": 2}
    with Ledger.open(target) as ledger:
        assert ledger.pins.list_pinned() == {"parts"}
    again = copy_home(source, target)
    assert (again.values, again.pins, again.copied) == (0, 0, 0)


def test_equal_session_of_target_is_recognised(homes: Homes, tmp_path: Path) -> None:
    source = homes.open("sqlite", "a")
    fill(source)
    copy_home(source, homes.open("sqlite", "b"))
    first, second = homes.open("sqlite", "b"), homes.open("sqlite", "c")
    copy_home(source, second)
    result = copy_home(first, second)
    assert (result.unchanged, result.differing) == (len(IDS) + 2, ())


@pytest.mark.parametrize("kind", MAINLY_SQLITE)
def test_stopped_copy_continues(homes: Homes, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "ROOM_BYTES", 700)
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    fill(source)
    for number in range(20):
        source.append_message("parts", "user", f"{number} " + "x" * 100)
    for calls in (3, 9, 30):
        left = iter(range(calls))
        result = copy_home(source, target, stop=lambda left=left: next(left, None) is None)
        assert result.outcome == "partial"
    assert copy_home(source, target).outcome == "applied"
    assert digest_all(source) == digest_all(target)


def test_change_during_copy_comes_later(homes: Homes) -> None:
    source = homes.open("sqlite", "a")
    source.append_message("s", "user", "x", create={"source": "cli"})
    for at in range(6):
        target, calls = homes.open("sqlite", f"b{at}"), iter(range(at))

        def change(at: int = at, calls: Iterator[int] = calls) -> bool:
            if next(calls, None) is None:
                source.set_session_title("s", f"Title {at}")
            return False

        copy_home(source, target, stop=change)
        assert copy_home(source, target).differing == ()
        assert digest_all(source) == digest_all(target)


@pytest.mark.parametrize("kill_at", [4, mark_thorough(1), mark_thorough(6)])
@pytest.mark.parametrize("kind", ["sqlite", share_postgres("test_killed_copy_continues")])
def test_killed_copy_continues(homes: Homes, kind: str, kill_at: int) -> None:
    source = homes.open("sqlite", "a")
    fill(source)
    source.close()
    child = os.fork()
    if child == 0:
        _copy_until_killed(homes, kind, kill_at)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    source, target = homes.open("sqlite", "a"), homes.open(kind, "b")
    partly = digest_all(target)
    assert partly != digest_all(source)
    result = copy_home(source, target)
    assert (result.outcome, result.differing) == ("applied", ())
    assert digest_all(source) == digest_all(target)


def _copy_until_killed(homes: Homes, kind: str, kill_at: int) -> None:
    """Copy, and be killed inside the transaction of a piece."""
    pieces = iter(range(kill_at))
    put = copier._Copy._put_messages

    def put_or_die(copy: Any, *arguments: Any) -> None:
        put(copy, *arguments)
        if next(pieces, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    copier._Copy._put_messages = put_or_die  # type: ignore[method-assign]
    copy_home(homes.open("sqlite", "a"), homes.open(kind, "b"))
    os._exit(0)


def test_values_that_target_lacks_are_named(homes: Homes) -> None:
    source, target = homes.open("sqlite", "a"), homes.open("sqlite", "b")
    source.append_message("s", "user", "x", create={"source": "cli"})
    with connect(source.path) as connection:
        connection.execute("ALTER TABLE sessions ADD COLUMN mood TEXT")
        connection.execute("ALTER TABLE messages ADD COLUMN smell TEXT")
        connection.execute("UPDATE sessions SET mood = 'good'")
    preview = preview_copy(source, target)
    assert preview.dropped_columns == {"sessions": ("mood",), "messages": ("smell",)}
    result = copy_home(source, target)
    assert (result.copied, result.differing) == (1, ())


def test_impossible_copies_are_refused(homes: Homes) -> None:
    source, hermes = homes.open("sqlite", "a"), homes.make_hermes()
    source.create_session("s", "cli")
    for call in (preview_copy, copy_home):
        with pytest.raises(Unsupported, match="Hermes"):
            call(source, hermes)
        with pytest.raises(InvalidInput, match="same home"):
            call(source, homes.open("sqlite", "a"))


@pytest.mark.slow
def test_huge_messages_are_copied(homes: Homes) -> None:
    source = homes.open("sqlite", "a")
    for number in range(3):
        text = f"{number} {STRANGE}" + "日本語 text " * 5_000_000
        source.append_message("huge", "user", text[:50_000_000], create={"source": "cli"})
    began = time.monotonic()
    shared, back = homes.open("postgres", "b"), homes.open("sqlite", "c")
    assert copy_home(source, shared).copied == copy_home(shared, back).copied == 1
    assert digest_all(source) == digest_all(shared) == digest_all(back)
    assert time.monotonic() > began

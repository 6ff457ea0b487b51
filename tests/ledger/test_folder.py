"""The state folder: whose it is, where it is, and that looking makes nothing."""

from __future__ import annotations

import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_core.errors import Denied, StorageError
from session_core.home import find_state_root
from session_core.ledger.state_folder import FolderBinding, StateFolder, list_bindings
from session_core.state.sqlite.opening import HERMES_OWNER
from tests.homes import make_hermes_database, make_own_database

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the state folder of Linux")
on_posix = pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")


@pytest.fixture
def db_path(home_path: Path) -> Path:
    make_hermes_database(home_path / "state.db")
    return home_path / "state.db"


@on_linux
def test_it_is_in_the_state_folder_of_the_platform(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_state_root(environ) == tmp_path / ".local" / "state" / "mcp-sessions"
    environ["XDG_STATE_HOME"] = "relative"
    assert find_state_root(environ) == tmp_path / ".local" / "state" / "mcp-sessions"
    environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    assert find_state_root(environ) == tmp_path / "state" / "mcp-sessions"


def test_a_variable_of_ours_names_it(tmp_path: Path) -> None:
    environ = {"HOME": "/elsewhere", "MCP_SESSIONS_STATE": str(tmp_path / "mine")}
    assert find_state_root(environ) == tmp_path / "mine"


def test_it_is_not_in_the_home_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform in ("darwin", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        environ = {"HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path / "local")}
        assert find_state_root(environ).name == "mcp-sessions-state"


@pytest.mark.requirement("ledger:folder")
def test_looking_makes_nothing(db_path: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert StateFolder(db_path).find() is None
    assert list_bindings() == []
    made = set(tmp_path.rglob("*")) - set(before)
    assert {path.name for path in made} <= {"state.db-shm", "state.db-wal"}


@pytest.mark.requirement("ledger:folder")
@on_posix
def test_it_is_its_owners_alone_and_outside_the_home(db_path: Path) -> None:
    folder = StateFolder(db_path).make()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert not folder.is_relative_to(db_path.parent)


def test_nothing_is_kept_in_a_home_of_hermes_that_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "data"
    home.mkdir()
    make_hermes_database(home / "state.db")
    (home / "config.yaml").touch()
    before = sorted(home.rglob("*"))
    for name in ("HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    with pytest.raises(Denied, match=r"in the home .*; set MCP_SESSIONS_STATE to a folder"):
        StateFolder(home / "state.db").make()
    made = set(home.rglob("*")) - set(before)
    assert {path.name for path in made} <= {"state.db-shm", "state.db-wal"}
    monkeypatch.setenv("MCP_SESSIONS_STATE", str(tmp_path / "elsewhere"))
    assert StateFolder(home / "state.db").make().parent == tmp_path / "elsewhere"


@on_posix
def test_a_way_into_the_home_over_a_link_is_seen(db_path: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(db_path.parent)
    for path, root in (
        (db_path, tmp_path / "way"),
        (tmp_path / "way" / "state.db", db_path.parent),
    ):
        with pytest.raises(Denied):
            StateFolder(path, root=root / "state")


def test_a_database_of_ours_may_lie_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make_own_database(tmp_path / "state.db")
    assert StateFolder(tmp_path / "state.db").make().is_dir()


def test_a_home_below_the_users_folder_has_its_state_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for home in (tmp_path / ".hermes", tmp_path / ".local" / "share" / "mcp-sessions"):
        make_hermes_database(home / "state.db")
        assert StateFolder(home / "state.db").make().is_dir()


@on_posix
def test_a_folder_that_others_may_read_is_closed_to_them(db_path: Path) -> None:
    folder = StateFolder(db_path).make()
    folder.chmod(0o755)
    StateFolder(db_path).make()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@on_posix
def test_the_modes_of_a_root_that_was_given_are_left_alone(db_path: Path, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o755)
    StateFolder(db_path, root=root).make()
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_it_is_found_again(db_path: Path) -> None:
    made = StateFolder(db_path).make()
    assert StateFolder(db_path).find() == made
    assert StateFolder(db_path).make() == made


def test_two_homes_have_two(db_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "state.db"
    make_hermes_database(other)
    assert StateFolder(db_path).make() != StateFolder(other).make()


@pytest.mark.requirement("ledger:folder")
def test_a_home_that_moved_is_found_again(db_path: Path, tmp_path: Path) -> None:
    made = StateFolder(db_path).make()
    moved = db_path.parent.rename(tmp_path / "moved") / "state.db"
    assert StateFolder(moved).find() == made
    assert list_bindings()[0].db_path == db_path
    assert StateFolder(moved).make() == made
    assert [(bound.db_path, bound.is_present) for bound in list_bindings()] == [(moved, True)]


def test_a_home_by_another_name_is_the_same(db_path: Path, tmp_path: Path) -> None:
    made = StateFolder(db_path).make()
    (tmp_path / "link").symlink_to(db_path.parent)
    assert StateFolder(tmp_path / "link" / "state.db").find() == made


@pytest.mark.requirement("ledger:folder")
def test_another_database_in_its_place_is_another_home(db_path: Path, tmp_path: Path) -> None:
    made = StateFolder(db_path).make()
    db_path.rename(tmp_path / "put away")
    make_hermes_database(db_path)
    assert StateFolder(db_path).find() is None
    other = StateFolder(db_path).make()
    assert other != made
    assert {bound.folder: bound.is_present for bound in list_bindings()} == {
        made: False,
        other: True,
    }
    assert StateFolder(tmp_path / "put away").find() == made


def test_a_device_with_another_number_after_a_restart_is_the_same(db_path: Path) -> None:
    made = StateFolder(db_path).make()
    binding = made / "home.json"
    device = db_path.stat().st_dev
    binding.write_text(binding.read_text().replace(f'"device": {device}', '"device": 424242'))
    assert StateFolder(db_path).find() == made
    assert StateFolder(db_path).make() == made
    assert list_bindings()[0].device == device


def test_a_home_without_a_database_has_one_that_stays_when_the_database_comes(
    home_path: Path,
) -> None:
    path = home_path / "state.db"
    made = StateFolder(path).make()
    assert StateFolder(path).find() == made
    make_own_database(path)
    assert StateFolder(path).find() == made
    assert StateFolder(path).make() == made
    assert list_bindings(made.parent)[0].inode == path.stat().st_ino


def test_a_making_that_was_cut_short_is_finished_by_the_next(db_path: Path) -> None:
    made = StateFolder(db_path).make()
    (made / "home.json").unlink()
    assert StateFolder(db_path).find() is None
    assert list_bindings() == []
    assert StateFolder(db_path).make() == made
    assert StateFolder(db_path).find() == made


def test_a_binding_that_is_damaged_binds_nothing(db_path: Path) -> None:
    made = StateFolder(db_path).make()
    for text in ("", "[]", "{}", "\0"):
        (made / "home.json").write_text(text)
        assert list_bindings() == []


def test_one_that_was_removed_is_made_again(db_path: Path) -> None:
    folder = StateFolder(db_path)
    made = folder.make()
    (made / "home.json").unlink()
    made.rmdir()
    assert folder.find() is None
    assert folder.make() == made
    assert made.is_dir()


def test_many_at_once_make_one(db_path: Path) -> None:
    barrier = threading.Barrier(8)

    def make() -> Path:
        barrier.wait(20)
        return StateFolder(db_path).make()

    with ThreadPoolExecutor(8) as pool:
        made = {future.result() for future in [pool.submit(make) for _ in range(8)]}
    assert len(made) == len(list_bindings()) == 1


def test_a_home_with_a_long_or_strange_name_has_one(tmp_path: Path) -> None:
    for name in ("x" * 250, ".", "…" * 80, os.fsdecode(b"\xff\xfe")):
        path = tmp_path / "homes" / name / "state.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        made = StateFolder(path).make()
        assert StateFolder(path).find() == made


def test_a_file_in_its_place_is_said(db_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StorageError, match="file"):
        StateFolder(db_path, root=tmp_path / "file" / "state").make()
    assert StateFolder(db_path, root=tmp_path / "file" / "state").find() is None


def test_a_home_that_takes_the_place_of_another_is_not_taken_for_it_by_one_who_was_there_before(
    db_path: Path, tmp_path: Path
) -> None:
    folder = StateFolder(db_path)
    first = folder.make()
    db_path.rename(tmp_path / "aside.db")
    make_own_database(db_path)
    assert folder.find() is None
    assert folder.make() != first


def test_another_home_with_the_inode_of_one_that_is_gone_has_a_folder_of_its_own(
    db_path: Path,
) -> None:
    one, other = (StateFolder(db_path) for _ in range(2))
    one.set_home_name("one")
    other.set_home_name("other")
    made = one.make()
    assert other.find() is None
    assert other.make() != made
    assert (one.find(), other.find()) == (made, other.make())


def test_a_folder_that_was_made_before_anybody_asked_the_home_is_that_of_the_home(
    home_path: Path,
) -> None:
    path = home_path / "state.db"
    made = StateFolder(path).make()
    make_own_database(path)
    for _ in range(2):
        folder = StateFolder(path)
        assert folder.find() == folder.make() == made
    other = StateFolder(path)
    other.set_home_name("other")
    assert other.find() is None


def test_several_who_make_the_folder_of_a_home_of_hermes_at_once_make_one(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = StateFolder(db_path), StateFolder(db_path)
    for folder in (one, other):
        folder.set_home_name(HERMES_OWNER)
    look = other._find_binding

    def look_just_before(here: FolderBinding) -> FolderBinding | None:
        found = look(here)
        one.make()
        return found

    monkeypatch.setattr(other, "_find_binding", look_just_before)
    assert other.make() == one.make()
    assert len(list_bindings()) == 1


def test_what_is_in_the_way_of_the_folder_is_said_with_what_to_do(
    db_path: Path, tmp_path: Path
) -> None:
    root = tmp_path / "a-file"
    root.write_text("x")
    with pytest.raises(StorageError, match=r"a-file could not be used: .*; check what it is"):
        StateFolder(db_path, root=root).make()

"""The state folder: its owner, its location, and that reading creates nothing."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_core.errors import Denied, StorageError
from session_core.home import find_state_root
from session_core.ledger.state_folder import (
    FolderBinding,
    StateFolder,
    list_bindings,
    translate_os_errors,
)
from session_core.state.sqlite.database_file import HERMES_OWNER
from tests.homes import make_hermes_database, make_own_database

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the state folder of Linux")
on_posix = pytest.mark.skipif(sys.platform == "win32", reason="it has no modes")


@pytest.fixture
def db_path(home_path: Path) -> Path:
    make_hermes_database(home_path / "state.db")
    return home_path / "state.db"


@on_linux
def test_folder_is_in_platform_state_directory(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_state_root(environ) == tmp_path / ".local" / "state" / "mcp-sessions"
    environ["XDG_STATE_HOME"] = "relative"
    assert find_state_root(environ) == tmp_path / ".local" / "state" / "mcp-sessions"
    environ["XDG_STATE_HOME"] = str(tmp_path / "state")
    assert find_state_root(environ) == tmp_path / "state" / "mcp-sessions"


def test_environment_variable_names_folder(tmp_path: Path) -> None:
    environ = {"HOME": "/elsewhere", "MCP_SESSIONS_STATE": str(tmp_path / "mine")}
    assert find_state_root(environ) == tmp_path / "mine"


def test_folder_is_outside_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform in ("darwin", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        environ = {"HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path / "local")}
        assert find_state_root(environ).name == "mcp-sessions-state"


@pytest.mark.requirement("ledger:folder")
def test_find_creates_no_folder(db_path: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert StateFolder(db_path).find() is None
    assert list_bindings() == []
    state_path = set(tmp_path.rglob("*")) - set(before)
    assert {path.name for path in state_path} <= {"state.db-shm", "state.db-wal"}


@pytest.mark.requirement("ledger:folder")
@on_posix
def test_folder_is_private_and_outside_home(db_path: Path) -> None:
    folder = StateFolder(db_path).make()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert not folder.is_relative_to(db_path.parent)


def test_folder_in_users_hermes_home_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "data"
    home.mkdir()
    make_hermes_database(home / "state.db")
    (home / "config.yaml").touch()
    before = sorted(home.rglob("*"))
    for name in ("HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    with pytest.raises(Denied, match=r"in the home .*; set MCP_SESSIONS_STATE to another folder"):
        StateFolder(home / "state.db").make()
    state_path = set(home.rglob("*")) - set(before)
    assert {path.name for path in state_path} <= {"state.db-shm", "state.db-wal"}
    monkeypatch.setenv("MCP_SESSIONS_STATE", str(tmp_path / "elsewhere"))
    assert StateFolder(home / "state.db").make().parent == tmp_path / "elsewhere"


@on_posix
def test_link_into_home_is_refused(db_path: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(db_path.parent)
    for path, root in (
        (db_path, tmp_path / "way"),
        (tmp_path / "way" / "state.db", db_path.parent),
    ):
        with pytest.raises(Denied):
            StateFolder(path, root=root / "state")


def test_own_database_in_user_folder_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make_own_database(tmp_path / "state.db")
    assert StateFolder(tmp_path / "state.db").make().is_dir()


def test_home_below_user_folder_keeps_state_adjacent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for home in (tmp_path / ".hermes", tmp_path / ".local" / "share" / "mcp-sessions"):
        make_hermes_database(home / "state.db")
        assert StateFolder(home / "state.db").make().is_dir()


@on_posix
def test_readable_folder_becomes_private(db_path: Path) -> None:
    folder = StateFolder(db_path).make()
    folder.chmod(0o755)
    StateFolder(db_path).make()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@on_posix
def test_given_root_keeps_mode(db_path: Path, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o755)
    StateFolder(db_path, root=root).make()
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_folder_is_found_again(db_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    assert StateFolder(db_path).find() == state_path
    assert StateFolder(db_path).make() == state_path


def test_two_homes_have_separate_folders(db_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "state.db"
    make_hermes_database(other)
    assert StateFolder(db_path).make() != StateFolder(other).make()


@pytest.mark.requirement("ledger:folder")
def test_moved_home_finds_folder(db_path: Path, tmp_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    moved = db_path.parent.rename(tmp_path / "moved") / "state.db"
    assert StateFolder(moved).find() == state_path
    assert list_bindings()[0].db_path == db_path
    assert StateFolder(moved).make() == state_path
    assert [(bound.db_path, bound.is_present) for bound in list_bindings()] == [(moved, True)]


def test_linked_home_has_same_folder(db_path: Path, tmp_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    (tmp_path / "link").symlink_to(db_path.parent)
    assert StateFolder(tmp_path / "link" / "state.db").find() == state_path


@pytest.mark.requirement("ledger:folder")
def test_replaced_database_gets_new_folder(db_path: Path, tmp_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    db_path.rename(tmp_path / "put away")
    make_hermes_database(db_path)
    assert StateFolder(db_path).find() is None
    other = StateFolder(db_path).make()
    assert other != state_path
    assert {bound.folder: bound.is_present for bound in list_bindings()} == {
        state_path: False,
        other: True,
    }
    assert StateFolder(tmp_path / "put away").find() == state_path


def test_changed_device_number_keeps_folder(db_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    binding = state_path / "home.json"
    device = db_path.stat().st_dev
    binding.write_text(binding.read_text().replace(f'"device": {device}', '"device": 424242'))
    assert StateFolder(db_path).find() == state_path
    assert StateFolder(db_path).make() == state_path
    assert list_bindings()[0].device == device


def test_folder_stays_when_database_is_created(
    home_path: Path,
) -> None:
    path = home_path / "state.db"
    state_path = StateFolder(path).make()
    assert StateFolder(path).find() == state_path
    make_own_database(path)
    assert StateFolder(path).find() == state_path
    assert StateFolder(path).make() == state_path
    assert list_bindings(state_path.parent)[0].inode == path.stat().st_ino


def test_interrupted_creation_is_finished(db_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    (state_path / "home.json").unlink()
    assert StateFolder(db_path).find() is None
    assert list_bindings() == []
    assert StateFolder(db_path).make() == state_path
    assert StateFolder(db_path).find() == state_path


def test_damaged_binding_is_ignored(db_path: Path) -> None:
    state_path = StateFolder(db_path).make()
    for text in ("", "[]", "{}", "\0"):
        (state_path / "home.json").write_text(text)
        assert list_bindings() == []


def test_removed_folder_is_created_again(db_path: Path) -> None:
    folder = StateFolder(db_path)
    state_path = folder.make()
    (state_path / "home.json").unlink()
    state_path.rmdir()
    assert folder.find() is None
    assert folder.make() == state_path
    assert state_path.is_dir()


def test_concurrent_make_creates_single_folder(db_path: Path) -> None:
    barrier = threading.Barrier(8)

    def make() -> Path:
        barrier.wait(20)
        return StateFolder(db_path).make()

    with ThreadPoolExecutor(8) as pool:
        state_path = {future.result() for future in [pool.submit(make) for _ in range(8)]}
    assert len(state_path) == len(list_bindings()) == 1


def test_long_or_odd_home_name_works(tmp_path: Path) -> None:
    for name in ("x" * 250, ".", "…" * 80, os.fsdecode(b"\xff\xfe")):
        path = tmp_path / "homes" / name / "state.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        state_path = StateFolder(path).make()
        assert StateFolder(path).find() == state_path


def test_file_in_place_of_folder_is_reported(db_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StorageError, match="file"):
        StateFolder(db_path, root=tmp_path / "file" / "state").make()
    assert StateFolder(db_path, root=tmp_path / "file" / "state").find() is None


def test_replaced_home_is_noticed_by_old_instance(db_path: Path, tmp_path: Path) -> None:
    folder = StateFolder(db_path)
    first = folder.make()
    db_path.rename(tmp_path / "aside.db")
    make_own_database(db_path)
    assert folder.find() is None
    assert folder.make() != first


def test_reused_inode_gets_own_folder(
    db_path: Path,
) -> None:
    one, other = (StateFolder(db_path) for _ in range(2))
    one.set_home_name("one")
    other.set_home_name("other")
    state_path = one.make()
    assert other.find() is None
    assert other.make() != state_path
    assert (one.find(), other.find()) == (state_path, other.make())


def test_early_folder_belongs_to_home(
    home_path: Path,
) -> None:
    path = home_path / "state.db"
    state_path = StateFolder(path).make()
    make_own_database(path)
    for _ in range(2):
        folder = StateFolder(path)
        assert folder.find() == folder.make() == state_path
    other = StateFolder(path)
    other.set_home_name("other")
    assert other.find() is None


def test_concurrent_make_shares_hermes_folder(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = StateFolder(db_path), StateFolder(db_path)
    for folder in (one, other):
        folder.set_home_name(HERMES_OWNER)
    look = other._find_binding

    def look_just_before(here: FolderBinding) -> FolderBinding | None:
        status = look(here)
        one.make()
        return status

    monkeypatch.setattr(other, "_find_binding", look_just_before)
    assert other.make() == one.make()
    assert len(list_bindings()) == 1


def test_obstructed_folder_error_names_remedy(db_path: Path, tmp_path: Path) -> None:
    root = tmp_path / "a-file"
    root.write_text("x")
    with pytest.raises(StorageError, match=r"a-file cannot be used: .*; check what it is"):
        StateFolder(db_path, root=root).make()


def test_denied_file_names_folder_if_missing(tmp_path: Path) -> None:
    present = tmp_path / "present.db"
    present.touch()
    for path, advice in (
        (present, "check its permissions"),
        (tmp_path / "new.db", "of its folder"),
    ):
        with pytest.raises(Denied, match=advice), translate_os_errors(path):
            raise PermissionError(errno.EACCES, "Permission denied")

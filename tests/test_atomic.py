"""Atomic files: complete or missing after any failure."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from session_core._atomic import (
    _list_trusted_owners,
    delete_leftovers,
    hold_file_lock,
    read_file,
    rename_broken_file,
    reserve_broken_name,
    sync_folder,
    write_atomic,
)
from session_core.errors import Denied

NOW = 1_700_000_000.0
PREFIX = ".sessions_"

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

posix = pytest.mark.skipif(os.name == "nt", reason="modes and signals of POSIX")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    return folder / "sessions.json"


def write_new(path: Path, home: Path) -> None:
    write_atomic(path, [b"new"], prefix=PREFIX, home=home)


def set_file_aside(path: Path, home: Path) -> None:
    rename_broken_file(path, NOW, home)


def name_file_aside(path: Path, home: Path) -> None:
    reserve_broken_name(path, NOW, home)


def make_irregular_file(path: Path, kind: str) -> None:
    """Make something that is not a regular file."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)


def list_names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_write_joins_file_parts(path: Path) -> None:
    write_atomic(path, (part for part in [b"one ", b"two"]), prefix=PREFIX)
    assert path.read_bytes() == b"one two"
    assert list_names(path) == ["sessions.json"]


def test_write_replaces_file(path: Path) -> None:
    path.write_bytes(b"a longer text than the next")
    write_atomic(path, [b"new"], prefix=PREFIX)
    assert path.read_bytes() == b"new"


def test_write_keeps_old_file_for_open_reader(path: Path) -> None:
    path.write_bytes(b"old" * 10_000)
    with path.open("rb", buffering=0) as reader:
        first = reader.read(10)
        write_atomic(path, [b"new"], prefix=PREFIX)
        assert first + reader.read() == b"old" * 10_000


@posix
def test_written_file_is_readable_by_owner_only(path: Path) -> None:
    write_atomic(path, [b"x"], prefix=PREFIX)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@posix
def test_write_restricts_file_open_to_everyone(path: Path) -> None:
    path.touch()
    path.chmod(0o666)
    write_atomic(path, [b"x"], prefix=PREFIX)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@posix
def test_write_sets_mode_despite_umask(path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(path, [b"x"], prefix=PREFIX, mode=0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@posix
def test_temporary_file_is_readable_by_owner_only(path: Path) -> None:
    modes = []

    def parts() -> Iterator[bytes]:
        yield b"x"
        modes.extend(stat.S_IMODE(begun.stat().st_mode) for begun in path.parent.iterdir())

    write_atomic(path, parts(), prefix=PREFIX)
    assert modes == [0o600]


@posix
def test_write_follows_link_within_home(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "real.json"
    target.write_bytes(b"old")
    path.symlink_to(target)
    write_atomic(path, [b"new"], prefix=PREFIX, home=tmp_path)
    assert path.readlink() == target
    assert target.read_bytes() == b"new"
    assert [entry.name for entry in elsewhere.iterdir()] == ["real.json"]


@posix
def test_write_follows_dangling_link(path: Path) -> None:
    path.symlink_to("real.json")
    write_atomic(path, [b"new"], prefix=PREFIX)
    assert (path.parent / "real.json").read_bytes() == b"new"
    assert path.is_symlink()


@posix
@pytest.mark.parametrize("is_there", [True, False], ids=["a file", "nothing"])
@pytest.mark.parametrize("write", [write_new, set_file_aside, name_file_aside])
def test_write_refuses_link_out_of_home(
    tmp_path: Path, write: Callable[[Path, Path], object], is_there: bool
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    (home / "sessions").mkdir(parents=True)
    outside.mkdir()
    target = outside / "real.json"
    if is_there:
        target.write_bytes(b"theirs")
        target.chmod(0o644)
    (home / "sessions" / "sessions.json").symlink_to(target)
    with pytest.raises(Denied, match="outside of"):
        write(home / "sessions" / "sessions.json", home)
    assert [entry.name for entry in outside.iterdir()] == ["real.json"] * is_there
    assert list_names(home / "sessions" / "x") == ["sessions.json"]
    if is_there:
        assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"theirs", 0o644)


@posix
@pytest.mark.parametrize("kind", ["fifo", "folder", "loop"])
@pytest.mark.parametrize("write", [write_new, set_file_aside])
def test_write_refuses_irregular_file(
    path: Path, write: Callable[[Path, Path], object], kind: str
) -> None:
    make_irregular_file(path, kind)
    before = path.lstat()
    with pytest.raises(Denied, match="not a regular file"):
        write(path, path.parent)
    assert os.path.samestat(before, path.lstat())
    assert list_names(path) == ["sessions.json"]


@posix
def test_trusted_owners_depend_on_home(tmp_path: Path) -> None:
    inside, outside = tmp_path / "home" / "sessions", tmp_path / "outside"
    inside.mkdir(parents=True)
    owner = tmp_path.stat().st_uid
    assert _list_trusted_owners(tmp_path / "home", inside, owner + 1) == {owner, owner + 1}
    assert _list_trusted_owners(tmp_path / "home", inside, 0) == {owner, 0}
    assert _list_trusted_owners(tmp_path / "home", outside, owner + 1) == {owner, owner + 1}
    assert _list_trusted_owners(tmp_path / "home", outside, 0) == {owner}


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_write_refuses_file_of_different_user(path: Path) -> None:
    path.write_bytes(b"theirs")
    os.chown(path, 4242, 4242)
    with pytest.raises(Denied, match="another user"):
        write_atomic(path, [b"new"], prefix=PREFIX)
    assert path.read_bytes() == b"theirs"


@pytest.mark.skipif(not IS_ROOT, reason="only root has the homes of others")
def test_root_writes_no_folder_outside(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    os.chown(home, 4242, 4242)
    (home / "sessions").symlink_to(outside)
    with pytest.raises(Denied, match="another user"):
        write_atomic(home / "sessions" / "sessions.json", [b"new"], prefix=PREFIX, home=home)
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(not IS_ROOT, reason="only root has the homes of others")
def test_root_keeps_owner_of_file(path: Path) -> None:
    path.write_bytes(b"old")
    for owned in (path.parent, path):
        os.chown(owned, 4242, 4243)
    write_atomic(path, [b"new"], prefix=PREFIX)
    assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4243)


# Reads


def test_read_returns_whole_file(path: Path) -> None:
    path.write_bytes(b"x" * 10)
    assert read_file(path, 10) == b"x" * 10


def test_read_refuses_large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 4,000,000 bytes"):
        read_file(path)


@posix
@pytest.mark.parametrize("kind", ["fifo", "fifo with a writer", "folder"])
def test_read_refuses_irregular_file(path: Path, kind: str) -> None:
    with ExitStack() as opened:
        make_irregular_file(path, kind.partition(" ")[0])
        if kind == "fifo with a writer":
            writer = os.open(path, os.O_RDWR)
            opened.callback(os.close, writer)
            os.write(writer, b"{}")
        with pytest.raises(OSError, match="not a regular file"):
            read_file(path)


@posix
def test_read_refuses_file_swapped_during_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"x")
    open_file = os.open

    def swap(name: Path, *given: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return open_file(name, *given)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(OSError, match="not a regular file"):
        read_file(path)


@posix
def test_lock_refuses_link(path: Path, tmp_path: Path) -> None:
    lock = path.with_name(".sessions.lock")
    lock.symlink_to(tmp_path / "made")
    with pytest.raises(OSError, match="symbolic links"), hold_file_lock(lock):
        pass
    assert not (tmp_path / "made").exists()


# Writes that fail


def test_failed_write_keeps_old_file(path: Path) -> None:
    path.write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise KeyError

    with pytest.raises(KeyError):
        write_atomic(path, parts(), prefix=PREFIX)
    assert path.read_bytes() == b"old"
    assert list_names(path) == ["sessions.json"]


def test_failed_rename_leaves_no_temporary_file(path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"new"
        (path / "kept").mkdir(parents=True)

    with pytest.raises(OSError, match="sessions"):
        write_atomic(path, parts(), prefix=PREFIX)
    assert list_names(path) == ["sessions.json"]
    assert (path / "kept").exists()


def test_write_to_missing_folder_raises_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "x", [b""], prefix=PREFIX)


KILLED = """
import os, signal, sys
from pathlib import Path
from session_core._atomic import write_atomic

def parts():
    yield b"new" * 100_000
    os.kill(os.getpid(), signal.SIGKILL)

write_atomic(Path(sys.argv[1]), parts(), prefix=".sessions_")
"""


@posix
def test_killed_write_keeps_old_file(path: Path) -> None:
    path.write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    left = [name for name in list_names(path) if name != "sessions.json"]
    assert len(left) == 1
    made_at = (path.parent / left[0]).stat().st_mtime
    assert delete_leftovers(path.parent, PREFIX, older_than_s=60, now=made_at + 61) == 1
    assert list_names(path) == ["sessions.json"]


# Leftover temporary files


def test_sweep_deletes_only_old_prefixed_files(path: Path) -> None:
    for name in (".sessions_a.tmp", ".sessions_b.tmp", ".other_a.tmp", ".sessions_a", "a.tmp"):
        (path.parent / name).touch()
        os.utime(path.parent / name, (NOW - 61, NOW - 61))
    os.utime(path.parent / ".sessions_b.tmp", (NOW - 60, NOW - 60))
    assert delete_leftovers(path.parent, PREFIX, older_than_s=60, now=NOW) == 1
    assert list_names(path) == [".other_a.tmp", ".sessions_a", ".sessions_b.tmp", "a.tmp"]


def test_sweep_prefix_is_no_pattern(path: Path) -> None:
    (path.parent / "xa.tmp").touch()
    assert delete_leftovers(path.parent, "[x]", older_than_s=-10, now=NOW * 2) == 0


def test_sweep_ignores_missing_folder(tmp_path: Path) -> None:
    assert delete_leftovers(tmp_path / "none", PREFIX, older_than_s=0, now=NOW) == 0


# Broken files


def test_broken_file_is_set_aside_unchanged(path: Path) -> None:
    path.write_bytes(b"{broken")
    aside = rename_broken_file(path, NOW)
    assert aside.read_bytes() == b"{broken"
    assert aside.name.startswith("sessions.json.broken-2023111")
    assert list_names(path) == [aside.name]


def test_two_files_of_same_second_set_aside(path: Path) -> None:
    for text in (b"1", b"2", b"3"):
        path.write_bytes(text)
        rename_broken_file(path, NOW)
    assert sorted(entry.read_bytes() for entry in path.parent.iterdir()) == [b"1", b"2", b"3"]


@posix
def test_set_aside_keeps_link_to_broken_file(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_bytes(b"{broken")
    path.symlink_to(target)
    aside = rename_broken_file(path, NOW, tmp_path)
    assert (aside.parent, aside.read_bytes()) == (tmp_path, b"{broken")
    write_atomic(path, [b"new"], prefix=PREFIX, home=tmp_path)
    assert target.read_bytes() == b"new"


def test_set_aside_of_missing_file_fails(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rename_broken_file(path, NOW)


def test_sync_of_missing_folder_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "none")

"""Files are removed only unchanged, and restored only under a free name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core.errors import Changed, Corrupt, Denied, NotFound
from session_core.ledger.codec import pack_trash, unpack_trash
from session_core.ledger.types import TrashItem
from session_core.maintenance.apply import home_files
from tests.maintenance.changed_homes import Changing, list_skip_reasons

WRITTEN = 1_700_000_000_123_456_789

posix = pytest.mark.skipif(os.name == "nt", reason="links and modes of POSIX")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "sessions").mkdir()
    return write_file(tmp_path / "sessions" / "session_a.json", b'{"said": "\xff"}')


def write_file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o640)
    os.utime(path, ns=(WRITTEN + 5, WRITTEN))
    return path


def keep_and_reload(path: Path, home: Path) -> tuple[dict[str, Any], Iterator[TrashItem]]:
    """Return the head of a file and its pieces after a round trip through the trash."""
    rest = unpack_trash(list(pack_trash(home_files.iter_file_items(path, home))))
    head = next(rest)
    assert head.what == home_files.FILE_KIND
    return head.value, rest


def read_file_state(path: Path) -> tuple[bytes, int, int]:
    found = path.stat()
    return path.read_bytes(), found.st_mtime_ns, stat.S_IMODE(found.st_mode)


@pytest.mark.requirement("maintenance:kept-files")
def test_file_is_restored_with_times_and_mode(path: Path, tmp_path: Path):
    before = read_file_state(path)
    head, rest = keep_and_reload(path, tmp_path)
    assert home_files.delete_file(head, tmp_path)
    assert not path.exists()
    assert home_files.restore_file(head, rest, tmp_path) == "restored"
    assert read_file_state(path) == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_file_is_restored_to_moved_home(path: Path, tmp_path: Path):
    head, rest = keep_and_reload(path, tmp_path)
    assert home_files.delete_file(head, tmp_path)
    assert home_files.restore_file(head, rest, tmp_path / "elsewhere") == "restored"
    assert (tmp_path / "elsewhere" / "sessions" / path.name).exists()


def test_outside_file_keeps_absolute_path(path: Path, tmp_path: Path):
    head, rest = keep_and_reload(path, tmp_path / "home")
    assert home_files.delete_file(head, tmp_path / "home", path.parent)
    assert home_files.restore_file(head, rest, tmp_path / "home", path.parent) == "restored"
    assert path.exists()


@posix
@pytest.mark.parametrize(
    "place", ["../escaped/keys", "sessions/../../keys", "/outside", "way/keys"]
)
def test_files_outside_home_are_refused(path: Path, tmp_path: Path, place: str):
    home, outside = tmp_path / "home", tmp_path / "escaped"
    home.mkdir()
    outside.mkdir()
    (home / "way").symlink_to(outside)
    head, rest = keep_and_reload(path, tmp_path)
    head["name"] = str(path) if place == "/outside" else place
    with pytest.raises(Denied, match="is outside this home"):
        home_files.delete_file(head, home, home / "sessions")
    with pytest.raises(Denied, match="is outside this home"):
        home_files.restore_file(head, rest, home, home / "sessions")
    assert path.exists()
    assert list(outside.iterdir()) == []


@posix
def test_linked_sessions_folder_belongs_to_home(path: Path, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "sessions").symlink_to(path.parent)
    head, rest = keep_and_reload(home / "sessions" / path.name, home)
    assert home_files.delete_file(head, home, home / "sessions")
    assert home_files.restore_file(head, rest, home, home / "sessions") == "restored"
    assert path.exists()


@posix
@pytest.mark.parametrize("may", [True, False], ids=["where that is possible", "else ours"])
def test_file_owner_is_restored(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may: bool
):  # fmt: skip
    given: list[tuple[int, int]] = []

    def chown(_: Path, user: int, group: int) -> None:
        given.append((user, group))
        if not may:
            raise PermissionError

    monkeypatch.setattr(os, "chown", chown)
    before = read_file_state(path)
    head, rest = keep_and_reload(path, tmp_path)
    owner = path.stat().st_uid, path.stat().st_gid
    assert home_files.delete_file(head, tmp_path)
    assert home_files.restore_file(head, rest, tmp_path) == "restored"
    assert (given, read_file_state(path)) == ([owner], before)


@pytest.mark.requirement("maintenance:kept-files")
def test_large_file_is_kept_in_pieces(path: Path, tmp_path: Path):
    path.write_bytes(bytes(range(256)) * 20_000)
    pieces = [
        item.value
        for item in home_files.iter_file_items(path, tmp_path)
        if item.what == home_files.PIECE_KIND
    ]
    assert max(map(len, pieces)) == 1 << 20
    head, rest = keep_and_reload(path, tmp_path)
    assert home_files.restore_file(head, rest, tmp_path / "copy") == "restored"
    assert (tmp_path / "copy" / head["name"]).read_bytes() == path.read_bytes()


def test_empty_file_is_restored(path: Path, tmp_path: Path):
    path.write_bytes(b"")
    head, rest = keep_and_reload(path, tmp_path)
    assert home_files.delete_file(head, tmp_path)
    assert home_files.restore_file(head, rest, tmp_path) == "restored"
    assert path.read_bytes() == b""


def test_several_files_share_single_trash(path: Path, tmp_path: Path):
    other = write_file(path.with_name("session_b.json"), b"b")
    rest = iter(
        [*home_files.iter_file_items(path, tmp_path), *home_files.iter_file_items(other, tmp_path)]
    )
    backs = [home_files.restore_file(head.value, rest, tmp_path / "copy") for head in rest]
    assert backs == ["restored", "restored"]
    assert (tmp_path / "copy" / "sessions" / "session_b.json").read_bytes() == b"b"


@pytest.mark.requirement("maintenance:kept-files")
@pytest.mark.parametrize("change", ["bytes", "time", "folder"])
def test_changed_file_is_not_deleted(path: Path, tmp_path: Path, change: str):
    head, _ = keep_and_reload(path, tmp_path)
    if change == "bytes":  # the same length and time
        write_file(path, b'{"said": "\xfe"}')
    elif change == "time":
        os.utime(path, ns=(WRITTEN, WRITTEN + 1))
    else:
        path.unlink()
        path.mkdir()
    assert not home_files.delete_file(head, tmp_path)
    assert path.exists()


def test_missing_file_counts_as_deleted(path: Path, tmp_path: Path):
    head, _ = keep_and_reload(path, tmp_path)
    path.unlink()
    assert home_files.delete_file(head, tmp_path)
    path.parent.rmdir()
    assert home_files.delete_file(head, tmp_path)


@pytest.mark.requirement("maintenance:kept-files")
def test_restore_keeps_file_of_same_name(path: Path, tmp_path: Path):
    head, rest = keep_and_reload(path, tmp_path)
    path.write_bytes(b"newer")
    assert home_files.restore_file(head, rest, tmp_path) == "taken"
    assert path.read_bytes() == b"newer"
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_identical_file_counts_as_present(path: Path, tmp_path: Path):
    head, rest = keep_and_reload(path, tmp_path)
    assert home_files.restore_file(head, rest, tmp_path) == "present"


@pytest.mark.requirement("maintenance:kept-files")
@posix
def test_link_is_not_followed(path: Path, tmp_path: Path):
    head, rest = keep_and_reload(path, tmp_path)
    target = write_file(tmp_path / "precious.json", path.read_bytes())
    path.unlink()
    path.symlink_to(target)
    assert not home_files.delete_file(head, tmp_path)
    assert home_files.restore_file(head, rest, tmp_path) == "taken"
    assert target.exists()
    with pytest.raises(Denied, match="not an ordinary file"):
        list(home_files.iter_file_items(path, tmp_path))


@pytest.mark.requirement("maintenance:kept-files")
@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm", "response_store.db",
                                  "state.db.malformed-backup-20260101_000000"])  # fmt: skip
def test_database_is_never_opened(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(b"")
    path.chmod(0)  # otherwise opening it would be refused, except for an administrator
    with pytest.raises(Denied, match="is a database"):
        list(home_files.iter_file_items(path, tmp_path))
    assert not home_files.delete_file(
        {"name": name, "bytes": 0, "modified_ns": 0, "sha256": ""}, tmp_path
    )


@pytest.mark.requirement("maintenance:kept-files")
@posix
def test_hard_link_to_database_is_refused(path: Path, tmp_path: Path):
    database = tmp_path / "state.db"
    database.write_bytes(b"pages")
    path.unlink()
    path.hardlink_to(database)
    with pytest.raises(Denied, match="is a database"):
        list(home_files.iter_file_items(path, tmp_path))


def test_file_written_concurrently_is_not_kept(path: Path, tmp_path: Path):
    keeping = home_files.iter_file_items(path, tmp_path)
    next(keeping)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(Changed, match="being written"):
        list(keeping)


def test_missing_file_raises_not_found(path: Path, tmp_path: Path):
    with pytest.raises(NotFound):
        list(home_files.iter_file_items(path.with_name("none.json"), tmp_path))


def test_missing_pieces_restore_nothing(path: Path, tmp_path: Path):
    head, _ = keep_and_reload(path, tmp_path)
    assert home_files.delete_file(head, tmp_path)
    with pytest.raises(Corrupt, match="incomplete"):
        home_files.restore_file(head, iter([]), tmp_path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:gateway")
def test_session_files_are_removed_with_session(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    changed.home.session("other", 3, reason="idle")
    for name in ("session_old.json", "old.jsonl", "session_other.json"):
        changed.home.file(name, 140, name)
    before = changed.read_everything()
    result = changed.plan_and_apply()
    assert set(changed.read_everything()["files"]) == {"session_other.json"}
    changed.restore(result)
    assert changed.read_everything() == before


@pytest.mark.needs_files
def test_file_written_since_plan_stays(changed: Changing) -> None:
    name = "session_20260101_120000_abcdef01.json"
    changed.home.file(name, 50)
    planned = changed.plan("orphans")
    changed.home.file(name, 2, "written")
    assert list_skip_reasons(changed.apply(planned)) == {name: "it was written since"}
    assert changed.home.store.sessions_dir.joinpath(name).read_text() == "written"

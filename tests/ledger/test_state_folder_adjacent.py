"""The state folder of a home of our own, next to its database."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from session_core import (
    Compressor,
    Denied,
    InvalidInput,
    Ledger,
    Maintenance,
    SessionDB,
    SessionRuntime,
    SessionStore,
    StateFolder,
)
from session_core.home import find_state_root
from tests.homes import add_session, connect, make_hermes_database, make_own_database


@pytest.fixture
def path(home_path: Path) -> Path:
    """A home of our own with an empty log."""
    path = home_path / "state.db"
    make_own_database(path)
    with connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- where it is -------------------------------------------------------------------------------


@pytest.mark.requirement("ledger:folder-beside")
@pytest.mark.parametrize("name", ["state.db", "app.sqlite3", "ünï.db"])
def test_folder_lies_next_to_database(home_path: Path, name: str) -> None:
    make_own_database(home_path / name)
    state_path = StateFolder(home_path / name).make()
    assert state_path == home_path / ".mcp-sessions" / name
    assert {stat.S_IMODE(path.stat().st_mode) for path in (state_path, state_path.parent)} == {
        0o700
    }
    assert StateFolder(home_path / name).find() == state_path
    assert not find_state_root().exists()


@pytest.mark.requirement("ledger:folder-beside")
def test_first_write_keeps_folder_and_database_together(home_path: Path) -> None:
    with SessionDB(home_path / "app.db") as db, Ledger.open(db) as ledger:
        assert (ledger.list_batches().items, ledger.pins.list_pinned()) == ([], frozenset())
        assert list_files(home_path) == []
        db.create_session("s", "app")
        with Maintenance(db, ledger) as maintenance:
            batch = maintenance.edit("s", title="A title").batch
            assert batch is not None
            maintenance.restore(batch)
    assert (home_path / ".mcp-sessions" / "app.db" / "ledger.db").is_file()
    assert not find_state_root().exists()


def test_reading_creates_no_folder(path: Path, tmp_path: Path) -> None:
    with connect(path) as connection:
        add_session(connection, "s")
    before = list_files(tmp_path)
    with SessionDB(path, read_only=True) as db, Ledger.open(db) as ledger:
        ledger.list_batches()
        ledger.pins.list_pinned()
        with Maintenance(db, ledger) as maintenance:
            maintenance.health()
    assert [file for file in list_files(tmp_path) if not file.endswith(("-shm", "-wal"))] == before


def test_loose_folder_is_closed_to_others(path: Path) -> None:
    state_path = StateFolder(path).make()
    for file in (state_path, state_path.parent):
        file.chmod(0o755)
    StateFolder(path).make()
    assert {stat.S_IMODE(file.stat().st_mode) for file in (state_path, state_path.parent)} == {
        0o700
    }


def test_two_databases_share_no_folder(home_path: Path) -> None:
    for name in ("one.db", "other.db"):
        make_own_database(home_path / name)
    state_path = {StateFolder(home_path / name).make() for name in ("one.db", "other.db")}
    assert state_path == {home_path / ".mcp-sessions" / name for name in ("one.db", "other.db")}


def test_link_to_database_has_same_folder(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "linked.db"
    link.parent.mkdir()
    link.symlink_to(path)
    state_path = StateFolder(link).make()
    assert state_path == StateFolder(path).find() == path.parent / ".mcp-sessions" / "state.db"
    assert list_files(link.parent) == ["linked.db"]


def test_folder_before_database_is_adopted(home_path: Path) -> None:
    path = home_path / "state.db"
    state_path = StateFolder(path).make()
    assert state_path == home_path / ".mcp-sessions" / "state.db"
    make_own_database(path)
    assert StateFolder(path).find() == StateFolder(path).make() == state_path


def test_replacing_hermes_database_gets_new_folder(home_path: Path) -> None:
    path = home_path / "state.db"
    make_own_database(path)
    beside = StateFolder(path).make()
    path.unlink()
    make_hermes_database(path)
    assert StateFolder(path).find() is None
    assert StateFolder(path).make().parent == find_state_root()
    assert beside.is_dir()


def test_application_config_moves_no_folder(path: Path) -> None:
    (path.parent / "config.yaml").write_text("DEBUG: true\n")
    assert StateFolder(path).make() == path.parent / ".mcp-sessions" / "state.db"


# -- whose it is -------------------------------------------------------------------------------


@pytest.mark.requirement("ledger:folder-beside")
def test_copied_home_keeps_undo(path: Path, tmp_path: Path) -> None:
    with SessionDB(path) as db, Ledger.open(db) as ledger, Maintenance(db, ledger) as maintenance:
        db.create_session("s", "app")
        batch = maintenance.edit("s", title="A title").batch
        assert batch is not None
    copy = shutil.copytree(path.parent, tmp_path / "copy") / "state.db"
    for file in (copy, path):
        with SessionDB(file) as db, Ledger.open(db) as ledger:
            assert ledger.folder.find() == file.parent / ".mcp-sessions" / "state.db"
            with Maintenance(db, ledger) as maintenance:
                assert maintenance.restore(batch).outcome == "applied"
            assert (db.get_session("s") or {})["title"] is None


def test_renamed_database_keeps_folder(path: Path) -> None:
    state_path = StateFolder(path).make()
    renamed = path.rename(path.with_name("renamed.db"))
    assert StateFolder(renamed).find() == StateFolder(renamed).make() == state_path


def test_copied_database_shares_no_folder(path: Path) -> None:
    state_path = StateFolder(path).make()
    copy = Path(shutil.copyfile(path, path.with_name("copy.db")))
    assert StateFolder(copy).find() is None
    assert StateFolder(copy).make() == state_path.with_name("copy.db")


@pytest.mark.requirement("ledger:folder-beside")
def test_new_home_at_path_gets_new_folder(path: Path) -> None:
    state_path = StateFolder(path).make()
    shutil.move(path, path.with_name("put-away.db"))
    make_own_database(path)
    assert StateFolder(path).find() is None
    other = StateFolder(path).make()
    assert other.parent == state_path.parent
    assert other != state_path
    assert StateFolder(path.with_name("put-away.db")).find() == state_path
    assert StateFolder(path).find() == other


def test_new_home_with_inode_gets_new_folder(path: Path, tmp_path: Path) -> None:
    folder = StateFolder(path)
    state_path = folder.make()
    make_own_database(tmp_path / "other.db")
    with connect(tmp_path / "other.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    shutil.copyfile(tmp_path / "other.db", path)
    assert StateFolder(path).find() is None
    assert StateFolder(path).make() != state_path


def test_damaged_database_keeps_folder(path: Path) -> None:
    state_path = StateFolder(path).make()
    path.write_bytes(b"no database at all" * 100)
    assert StateFolder(path).find() == state_path


def test_folder_in_old_place_stays_in_use(path: Path) -> None:
    old = StateFolder(path, root=find_state_root()).make()
    assert StateFolder(path).find() == StateFolder(path).make() == old


# -- which ledger ------------------------------------------------------------------------------


@pytest.mark.requirement("ledger:folder-beside")
@pytest.mark.parametrize("make", [make_own_database, make_hermes_database])
def test_ledger_of_sibling_database_is_refused(
    home_path: Path, make: Callable[[Path], None]
) -> None:
    for name in ("one.db", "other.db"):
        make(home_path / name)
    with (
        SessionDB(home_path / "one.db") as db,
        Ledger(StateFolder(home_path / "other.db")) as ledger,
    ):
        for part in (Maintenance, Compressor):
            with pytest.raises(InvalidInput, match=r"other\.db cannot be used for .*one\.db"):
                part(db, ledger)


def test_ledger_of_missing_sibling_is_refused(path: Path) -> None:
    with (
        SessionDB(path) as db,
        Ledger(StateFolder(path.with_name("other.db"))) as ledger,
        pytest.raises(InvalidInput, match="another home"),
    ):
        Maintenance(db, ledger)


def test_parts_of_sibling_databases_are_refused(home_path: Path) -> None:
    with (
        SessionDB(home_path / "one.db") as db,
        SessionDB(home_path / "other.db") as other,
        SessionStore(home_path / "sessions", db=other) as store,
        Ledger.open(db) as ledger,
    ):
        for part in (Maintenance, Compressor):
            with pytest.raises(InvalidInput, match="another database"):
                part(db, ledger, store=store)
        with pytest.raises(InvalidInput, match="another database"):
            SessionRuntime(store, lambda run: run, db=db)


# -- a place in a Hermes home ------------------------------------------------------------------


@pytest.fixture
def hermes(home_path: Path) -> Path:
    make_hermes_database(home_path / "state.db")
    return home_path / "state.db"


def test_root_in_hermes_home_is_refused(hermes: Path) -> None:
    with pytest.raises(Denied, match=r"is in the home .* another root"):
        StateFolder(hermes, root=hermes.parent / "state")


@pytest.mark.requirement("ledger:folder-beside")
def test_home_of_user_is_refused_at_construction(
    hermes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(hermes.parent))
    before = list_files(hermes.parent)
    with SessionDB(hermes) as db:
        with pytest.raises(Denied, match="set MCP_SESSIONS_STATE"):
            Ledger.open(db)
        with Ledger(StateFolder(hermes)) as ledger:
            for part in (Maintenance, Compressor):
                with pytest.raises(Denied, match="set MCP_SESSIONS_STATE"):
                    part(db, ledger)
    with (
        SessionDB(hermes) as db,
        Ledger.open(db, reads_anywhere=True) as ledger,
        Maintenance(db, ledger) as maintenance,
    ):
        db.create_session("s", "cli")
        assert maintenance.health().sessions.total == 1
        with pytest.raises(Denied, match="set MCP_SESSIONS_STATE"):
            maintenance.edit("s", title="A title")
    assert set(list_files(hermes.parent)) - set(before) <= {"state.db-shm", "state.db-wal"}


@pytest.mark.parametrize("make", [make_own_database, make_hermes_database])
def test_trash_in_home_is_refused_at_construction(
    home_path: Path, make: Callable[[Path], None]
) -> None:
    make(home_path / "state.db")
    with SessionDB(home_path / "state.db") as db:
        with pytest.raises(Denied, match="trash folder elsewhere"):
            Ledger.open(db, trash_dir=home_path)
        with Ledger(StateFolder(db.path), trash_dir=home_path) as ledger:
            for part in (Maintenance, Compressor):
                with pytest.raises(Denied, match="trash folder elsewhere"):
                    part(db, ledger)


def test_own_home_accepts_root_inside(path: Path) -> None:
    with SessionDB(path) as db, Ledger(StateFolder(path, root=path.parent / "kept")) as ledger:
        db.create_session("s", "app")
        with Maintenance(db, ledger) as maintenance:
            assert maintenance.edit("s", title="A title").batch
    assert list((path.parent / "kept").glob("*/ledger.db"))


def test_homes_can_share_trash_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        with SessionDB(tmp_path / name / "state.db") as db:
            db.create_session("s", "app")
            with (
                Ledger.open(db, trash_dir=tmp_path / "disk") as ledger,
                Maintenance(db, ledger) as maintenance,
            ):
                assert maintenance.edit("s", title="A title").batch
    assert len(list((tmp_path / "disk").glob("*.db"))) == 2

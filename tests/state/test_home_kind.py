"""The kind of a home without a database: marks of Hermes count only in a detected folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from session_core import Denied, SessionDB, SessionSource, SessionStore
from session_core.home import is_hermes_home
from tests.homes import make_hermes_database

SIGNS = ("config.yaml", "gateway.json", "sessions/sessions.json")


@pytest.fixture(params=SIGNS)
def app(home_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder without a database that contains a file of Hermes."""
    sign = home_path / request.param
    sign.parent.mkdir(exist_ok=True)
    sign.write_text("{}")
    return home_path


@pytest.mark.requirement("ledger:kind")
def test_application_folder_becomes_own_home(app: Path) -> None:
    with SessionDB(app / "state.db") as db:
        assert db.kind == "own"
        db.append_message("s", "user", "hello", create={"source": "app"})
    with SessionDB(app / "state.db", read_only=True) as db:
        assert (db.kind, db.message_count()) == ("own", 1)


@pytest.mark.requirement("ledger:kind")
def test_hermes_home_found_without_database_is_absent(app: Path) -> None:
    with SessionDB(app / "state.db", in_hermes_home=True) as db:
        assert db.kind == "absent"
        with pytest.raises(Denied, match="start Hermes once"):
            db.create_session("s", "cli")
    assert not (app / "state.db").exists()


@pytest.mark.parametrize("profile", ["", "profiles/work"])
@pytest.mark.parametrize("named_by", ["HERMES_HOME", "default"])
def test_active_hermes_home_is_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named_by: str, profile: str
) -> None:
    root = Path(os.environ["HOME"], ".hermes") if named_by == "default" else tmp_path / "hermes"
    if named_by == "HERMES_HOME":
        monkeypatch.setenv("HERMES_HOME", str(root))
    (root / profile).mkdir(parents=True)
    (root / profile / "config.yaml").touch()
    with SessionDB(root / profile / "state.db") as db:
        assert db.kind == "absent"


def test_named_home_without_path_is_absent(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SESSIONS_HOME", str(app))
    with SessionDB() as db:
        assert db.kind == "absent"


@pytest.mark.requirement("ledger:kind")
@pytest.mark.parametrize("has_table", [True, False])
def test_own_mirror_is_no_hermes_sign(home_path: Path, *, has_table: bool) -> None:
    db = SessionDB(home_path / "state.db") if has_table else None
    with SessionStore(home_path / "sessions", db=db) as store:
        store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
    if db is not None:
        db.close()
        (home_path / "state.db").unlink()
    (home_path / "config.yaml").touch()
    assert (home_path / "sessions" / "sessions.json").is_file()
    assert not is_hermes_home(home_path)


def test_mirror_pipe_never_blocks(home_path: Path) -> None:
    (home_path / "config.yaml").touch()
    mirror = home_path / "sessions" / "sessions.json"
    mirror.parent.mkdir()
    os.mkfifo(mirror)
    assert is_hermes_home(home_path)


@pytest.mark.requirement("ledger:kind")
def test_deleted_database_is_created_again(home_path: Path) -> None:
    """An application whose database was deleted starts again, with its other files in place."""
    source = SessionSource(platform="telegram", chat_id="42")
    with SessionDB(home_path / "state.db") as db, SessionStore(home_path / "s", db=db) as store:
        former = store.get_or_create_session(source).session_id
        db.append_message(
            former,
            "user",
            "hello",
            create=store.build_session_fields(store.load_entries().popitem()[1]),
        )
    shutil.copytree(home_path / "s", home_path / "sessions")
    (home_path / "config.yaml").write_text("DEBUG: true\n")
    (home_path / "state.db").unlink()
    with SessionDB(home_path / "state.db") as db, SessionStore(home_path / "s", db=db) as store:
        entry = store.get_or_create_session(source)
        db.append_message(
            entry.session_id, "user", "again", create=store.build_session_fields(entry)
        )
        assert db.kind == "own"
        assert db.message_count() == 1


def test_mirror_of_hermes_home_stays_a_sign(home_path: Path) -> None:
    make_hermes_database(home_path / "state.db")
    with (
        SessionDB(home_path / "state.db") as db,
        SessionStore(home_path / "sessions", db=db) as store,
    ):
        store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
    (home_path / "state.db").unlink()
    assert is_hermes_home(home_path)

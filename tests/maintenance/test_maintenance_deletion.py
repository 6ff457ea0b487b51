"""`delete_session`: the owner of a session deletes it, and the batch can be restored."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_core import Changed, Conflict, NotFound, OpenedHome, SessionSource, open_home
from tests.maintenance.homes import DELEGATE

OPENER = """
import sys
from session_core import SessionDB
with SessionDB(sys.argv[1]) as db:
    db.append_message("other", "user", "hi", create={"source": "cli"})
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[OpenedHome]:
    with open_home(tmp_path / "home") as home:
        for number in range(3):
            home.db.append_message("s", "user", f"message {number}", create={"source": "sdk"})
        home.db.append_message("kept", "user", "hi", create={"source": "sdk"})
        yield home


@contextmanager
def keep_open(path: Path) -> Iterator[None]:
    """Let another process have a database open."""
    command = [sys.executable, "-c", OPENER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield
        finally:
            process.communicate("")


def test_deleted_session_is_restored(home):
    before = home.db.get_messages("s")
    result = home.maintenance.delete_session("s", client="sdk")
    assert result.removed == 1
    assert home.db.get_session("s") is None
    assert home.db.get_session("kept") is not None
    assert home.maintenance.log().items[0].client == "sdk"
    home.maintenance.restore(result.batch)
    assert home.db.get_messages("s") == before


def test_delegates_are_deleted_with_session(home):
    fields = {"source": "sdk", "parent_session_id": "s", "model_config": DELEGATE}
    home.db.append_message("sub", "user", "look", create=fields)
    result = home.maintenance.delete_session("s")
    assert {item.id for item in home.db.admin.list_inventory()} == {"kept"}
    home.maintenance.restore(result.batch)
    assert {item.id for item in home.db.admin.list_inventory()} == {"s", "sub", "kept"}


def test_other_process_does_not_protect(home):
    with keep_open(home.path):
        home.maintenance.delete_session("s")
        assert home.db.get_session("s") is None


def test_pinned_session_is_not_deleted(home):
    home.maintenance.edit("s", pinned=True)
    with pytest.raises(Conflict, match="session s cannot be deleted: it is pinned"):
        home.maintenance.delete_session("s")
    assert home.db.get_session("s") is not None


def test_routed_session_is_not_deleted(home):
    entry = home.store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
    home.db.append_message(entry.session_id, "user", "hi", create={"source": "telegram"})
    with pytest.raises(Conflict, match="a chat is routed to it"):
        home.maintenance.delete_session(entry.session_id)


def test_other_revision_is_not_deleted(home):
    before = home.db.get_revision("s")
    home.db.append_message("s", "user", "one more")
    with pytest.raises(Changed, match="session s was changed since it was read"):
        home.maintenance.delete_session("s", expect=before)
    assert home.db.get_session("s") is not None
    home.maintenance.delete_session("s", expect=home.db.get_revision("s"))
    assert home.db.get_session("s") is None


def test_unknown_session_is_reported(home):
    with pytest.raises(NotFound, match="nope"):
        home.maintenance.delete_session("nope")


def test_session_written_to_is_reported(home, monkeypatch):
    maintenance, apply = home.maintenance, home.maintenance.apply

    def write_first(plan, **options):
        home.db.append_message("s", "user", "one more")
        return apply(plan, **options)

    monkeypatch.setattr(maintenance, "apply", write_first)
    with pytest.raises(Changed, match="session s is written to"):
        maintenance.delete_session("s")
    assert home.db.get_session("s") is not None

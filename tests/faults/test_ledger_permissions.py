"""If the ledger cannot be written, nothing is removed, and the error is ours."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from tests.faults import state, template
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.faults

by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(params=["own", "hermes"])
def home(request, shared):
    """Make a home that every user may write."""
    path = shared / "home"
    template.build_home(path, request.param)
    path.chmod(0o777)
    (path / "state.db").chmod(0o666)
    return path


@pytest.mark.requirement("ledger:refused")
@by_root
@pytest.mark.parametrize("what", ["the root", "the folder", "the file"])
def test_unwritable_ledger_prevents_removal(home, shared, what):
    root = shared / "state"
    root.mkdir(mode=0o700)
    if what != "the root":
        with Ledger(StateFolder(home / "state.db", root=root)) as ledger:
            ledger.add_batch("of root")
        root.chmod(0o777)
    if what == "the file":
        for path in (root, *root.iterdir()):
            shutil.chown(path, 65534)
    before = state.digest_tables(home)
    came_to = _run_guest(home, root, "nobody")
    assert came_to["step"][0] == "Denied", came_to
    assert str(root) in came_to["step"][1]
    assert came_to["there"] is True
    assert state.digest_tables(home) == before


@by_root
def test_unprivileged_user_removes_with_own_ledger(home, shared):
    root = shared / "state"
    root.mkdir(mode=0o755)
    shutil.chown(root, 65534)
    came_to = _run_guest(home, root, "nobody")
    assert (came_to["read"], came_to["step"], came_to["there"]) == (0, 1, False)


@pytest.mark.requirement("ledger:refused")
def test_full_trash_prevents_removal_until_room(home, tmp_path):
    came_to = _run_guest(home, tmp_path / "state", "limit")
    assert came_to["step"][0] in ("StorageFull", "StorageError"), came_to
    assert came_to["there"] is True
    assert came_to["resumed"] == 0
    assert came_to["left"] == [0, 0]
    assert (came_to["again"], came_to["kept"]) == (1, 1)
    assert state.find_damage(home) == []


def _run_guest(home, root, who):
    with ChildProcess("unprivileged_ledger", home, root, who) as guest:
        came_to = json.loads(guest.read_line())
        guest.end()
    return came_to

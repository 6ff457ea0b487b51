"""Files of another user are left alone, and the refusal has the reason.

The tests run as root in CI, so the refused user is another user, in a process of its own.
"""

from __future__ import annotations

import json
import os
import re

import pytest

from session_core import SessionDB
from tests.faults.process import ChildProcess

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
]

OURS = b'{"mcpServers": {"sessions": {"command": "mcp-sessions", "args": ["old"]}}}'
CHANGING = (["install", "cursor", "--yes"], ["uninstall", "cursor", "--yes"])


@pytest.fixture
def came_to(shared, tmp_path):
    def came_to(*verbs):
        with ChildProcess("unprivileged_installer", shared, tmp_path, json.dumps(verbs)) as guest:
            return json.loads(guest.read_line())

    return came_to


@pytest.fixture
def file(shared):
    """A configuration of the other user."""
    (shared / ".cursor").mkdir()
    path = shared / ".cursor" / "mcp.json"
    path.write_bytes(OURS)
    return path


@pytest.mark.requirement("terminal:refused")
@pytest.mark.parametrize(("folder", "mode"), [(0o755, 0o644), (0o755, 0o600), (0o700, 0o644)])
def test_configuration_of_another_user_is_unchanged(came_to, file, folder, mode):
    file.chmod(mode)
    file.parent.chmod(folder)
    for code, said in came_to(*CHANGING):
        assert code == 1
        assert re.search(
            rf"cannot (read|write|remove) {re.escape(str(file))}: Permission denied", said
        )
    assert list(file.parent.iterdir()) == [file]
    assert file.read_bytes() == OURS


@pytest.mark.requirement("terminal:refused")
def test_install_creates_no_folder_for_another_user(came_to, shared):
    code, said = came_to(CHANGING[0])[0]
    assert code == 1
    assert "Permission denied" in said
    assert list(shared.iterdir()) == []


@pytest.mark.requirement("terminal:refused")
def test_doctor_reports_unreadable_configuration(came_to, file, shared):
    file.parent.chmod(0o700)
    home = shared / "home"
    with SessionDB(home / "state.db") as db:
        db.append_message("s1", "user", "hello", create={"source": "cli"})
    home.chmod(0o700)
    (listed, said), (code, looked) = came_to(
        ["install"], ["doctor", "--home", str(home), "--timeout", "1", "--json"]
    )
    assert (listed, code) == (0, 1)
    assert "cannot be read" in said
    failed = {check["about"]: check for check in json.loads(looked)["checks"]}
    assert failed["sessions"]["next"] == f"make it readable: ls -la {home}"
    assert failed["cursor"]["state"] == "failure"
    assert "--print" in failed["cursor"]["next"]

"""Files without permission are refused with errors of ours, and nothing is changed or made.

The tests run as root in CI, so the refused user is another user, in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from session_core.transcripts.formats.claude_code import ClaudeCodeFormat
from session_core.transcripts.root_watch import RootSweeper
from session_core.transcripts.roots import Root
from tests.faults import state, template
from tests.faults.mutations import open_home
from tests.faults.process import ChildProcess
from tests.faults.unprivileged_ledger import NOBODY_UID

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
]

APPEND_SQL = (
    "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('chat', 'user', '', 1)"
)
READ = 5
"""The live messages of the conversation of the template."""


@pytest.fixture(params=["own", "hermes"])
def home(request, shared):
    path = shared / "home"
    template.build_home(path, request.param)
    path.chmod(0o755)
    (path / "state.db").chmod(0o644)
    return path


@pytest.mark.requirement("faults:permissions")
def test_unreadable_file_is_denied(home):
    (home / "state.db").chmod(0o600)
    came_to = _run_guest_unchanged(home, "nobody")
    assert _is_denied(came_to["read"])
    assert _is_denied(came_to["write"])
    assert came_to["close"] is None


def test_inaccessible_folder_is_denied(home):
    home.chmod(0o700)
    came_to = _run_guest_unchanged(home, "nobody")
    assert _is_denied(came_to["read"])
    assert _is_denied(came_to["write"])


def test_unwritable_file_is_readable_next_to_owner(home):
    with open_home(home) as db:
        db.set_meta("opened", "yes")
        db.get_messages("chat")
        for end in ("-wal", "-shm"):
            Path(f"{home / 'state.db'}{end}").chmod(0o644)
        came_to = _run_guest_unchanged(home, "nobody")
    assert came_to["read"] == came_to["read again"] == READ
    assert came_to["immutable"] is False
    assert _is_denied(came_to["write"])
    assert came_to["close"] is None


def test_unwritable_folder_is_denied_without_owner(home):
    came_to = _run_guest_unchanged(home, "nobody")
    assert _is_denied(came_to["read"])
    assert _is_denied(came_to["write"])


def test_unwritable_folder_gets_no_home(shared):
    path = shared / "folder"
    path.mkdir(mode=0o755)
    came_to = _run_guest_unchanged(path, "nobody")
    assert came_to["read"] == 0
    assert _is_denied(came_to["write"])


@pytest.mark.requirement("faults:permissions")
@pytest.mark.parametrize("who", ["nobody", "root"])
def test_read_only_mount_is_read_as_immutable(home, who):
    came_to = _run_guest_unchanged(home, who, mounted=True)
    assert came_to["read"] == came_to["read again"] == READ
    assert came_to["immutable"] is True
    assert _is_denied(came_to["write"])
    assert came_to["close"] is None


@pytest.mark.parametrize("who", ["nobody", "root"])
def test_log_on_read_only_mount_is_denied(home, who):
    with state.open_connection(home / "state.db", "ro") as other:
        other.execute("SELECT count(*) FROM sessions").fetchone()
        _append_message(home)
    assert (home / "state.db-wal").stat().st_size > 0
    (home / "state.db-shm").unlink(missing_ok=True)
    came_to = _run_guest_unchanged(home, who, mounted=True)
    assert _is_denied(came_to["read"])
    assert _is_denied(came_to["write"])


def test_changed_immutable_file_is_read_again(home):
    with ChildProcess(
        "read_only_reader", home / "state.db", before=_build_mount_command(home)
    ) as onlooker:
        count, _, immutable = json.loads(onlooker.request("look"))
        assert immutable is True
        for told in range(1, 4):
            _append_message(home)  # on the other side of the mount, where it can be written
            assert json.loads(onlooker.request("look")) == [count + told, 1, True]


def test_new_log_of_immutable_file_is_noticed(home):
    with ChildProcess(
        "read_only_reader", home / "state.db", before=_build_mount_command(home)
    ) as onlooker:
        count, _, _ = json.loads(onlooker.request("look"))
        with state.open_connection(home / "state.db", "rw") as writer:
            writer.execute(APPEND_SQL)
            assert json.loads(onlooker.request("look")) == [count + 1, 1, False]


def _append_message(home: Path) -> None:
    with state.open_connection(home / "state.db", "rw") as writer:
        writer.execute(APPEND_SQL)


def test_watch_passes_folder_that_is_unreadable(shared):
    readable, closed = shared / "readable", shared / "closed"
    readable.mkdir(mode=0o755)
    closed.mkdir(mode=0o700)
    sweeper = RootSweeper(Root(ClaudeCodeFormat(), str(shared)), lambda _: True)
    os.seteuid(NOBODY_UID)
    try:
        assert sweeper.start_watch()
        sweeper.scan_files()
        os.seteuid(0)
        (readable / "session.jsonl").write_text("{}\n", encoding="ascii")
        os.seteuid(NOBODY_UID)
        assert sweeper.scan_files()
    finally:
        os.seteuid(0)
    assert sweeper.is_watching
    assert (list(sweeper.sweep.files), sweeper.sweep.unreadable) == (["readable/session.jsonl"], 1)
    sweeper.stop_watch()


def _run_guest_unchanged(home: Path, who: str, *, mounted: bool = False) -> dict[str, object]:
    """Use a home as a user, check that no file changes, and return the results."""
    before = _digest_files(home)
    with ChildProcess(
        "unprivileged_reader",
        home / "state.db",
        who,
        before=_build_mount_command(home) if mounted else (),
    ) as one:
        came_to = json.loads(one.read_line())
        one.end()
    assert _digest_files(home) == before
    return came_to


def _build_mount_command(home: Path) -> list[str]:
    """Return a command that runs a program with the home read-only, or fail with the reason."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, str(home)]
    if subprocess.run([*command, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.fail("a read-only mount cannot be made; run the fault tests as root")
    return command


def _digest_files(home: Path) -> dict[str, str]:
    """Return a digest of every file, and of no database that this process has open."""
    digests = {}
    for path in sorted(home.iterdir()):
        if path.name.endswith("-shm"):
            continue
        digests[path.name] = _digest_file(path)
    return digests


def _digest_file(path: Path) -> str:
    """Return the digest of a file, read by another process, since this one may have locks on it."""
    read = subprocess.run(["cat", str(path)], check=True, capture_output=True)  # noqa: S607
    return hashlib.sha256(read.stdout).hexdigest()


def _is_denied(outcome: object) -> bool:
    return isinstance(outcome, list) and outcome[0] == "Denied" and os.sep in outcome[1]

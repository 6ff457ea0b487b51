"""Hostile homes: each verb ends in bounded time and memory and writes nothing outside."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fork_server import build_environment
from tests.security.hostile_homes import HOMES
from tests.thorough import take_share

VERBS = (
    ("list",),
    ("show", "fill_0_00001"),
    ("search", "the"),
    ("stats",),
    ("prune", "sessions", "--older-than", "0", "--plan-only"),
    ("routes",),
)
DOCTOR = (("doctor",),)
"""Starts a server of its own, which takes as long as all other verbs."""


@pytest.fixture(name="opener", scope="module")
def _opener():
    """A process that opens homes."""
    line = [sys.executable, "-m", "tests.security.opener"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


def read_folder(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return the files below a folder with modes and bytes."""
    result = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        result[str(path.relative_to(folder))] = (status.st_mode, data)
    return result


@pytest.mark.requirement("hostile:homes")
def test_hostile_home_table_is_complete():
    assert len(HOMES) >= 60


@pytest.mark.requirement("hostile:homes")
@pytest.mark.parametrize("name", take_share(HOMES, 6))
def test_verbs_survive_hostile_homes(opener, tmp_path, name):
    check_verbs(VERBS, opener, tmp_path, name)


@pytest.mark.requirement("hostile:homes")
@pytest.mark.parametrize("name", take_share(HOMES, 24))
def test_doctor_survives_hostile_homes(opener, tmp_path, name):
    check_verbs(DOCTOR, opener, tmp_path, name)


def check_verbs(verbs, opener, tmp_path, name):
    """Run verbs on a hostile home, and check their ends and the files outside."""
    home, outside, user = tmp_path / "home", tmp_path / "outside", Path(os.environ["HOME"])
    home.mkdir()
    outside.mkdir()
    (outside / "target").write_text("theirs")
    (outside / "target").chmod(0o644)
    HOMES[name](home, outside)
    before = read_folder(outside)
    job = {
        "home": str(home),
        "env": build_environment(user) | {"MCP_SESSIONS_STATE": str(user / "state")},
        "verbs": verbs,
        "out": str(tmp_path / "out"),
        "err": str(tmp_path / "err"),
    }
    opener.stdin.write(json.dumps(job) + "\n")
    opener.stdin.flush()
    ended = opener.stdout.readline().strip()
    out, err = ((tmp_path / item).read_text(errors="replace") for item in ("out", "err"))
    codes = [line for line in out.splitlines() if line.startswith("CODE ")]
    assert (ended, len(codes)) == ("0", len(verbs)), (codes, err[-2_000:])
    assert [code for code in codes if code.split()[-1] not in "0123456"] == []
    assert "Traceback" not in err + out, err[-2_000:]
    assert "\x1b" not in err + out
    assert read_folder(outside) == before

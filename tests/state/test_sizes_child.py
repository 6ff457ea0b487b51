"""The child process that counts sizes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path


def test_sizes_child_ends_with_parent(tmp_path: Path) -> None:
    slow = tmp_path / "slow.db"
    os.mkfifo(slow)  # a reader that opens it waits for a writer
    parent = (
        "from pathlib import Path; from session_core.state.sqlite.admin import sizes;"
        f"sizes.count_sizes(None, None, Path({str(slow)!r}), lambda: print('counting', flush=True))"
    )
    counting = subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True
    )
    with counting:
        assert counting.stdout is not None
        assert counting.stdout.readline() == b"counting\n"
        counting.kill()
    until = time.monotonic() + 20
    while _is_running(counting.pid) and time.monotonic() < until:
        time.sleep(0.05)
    is_running = _is_running(counting.pid)
    with suppress(ProcessLookupError):
        os.killpg(counting.pid, signal.SIGKILL)
    assert not is_running


def _is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

"""The compression lock: held as long as needed, and taken over after its holder has died."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from session_core import processes
from session_core.compression import NotCompressed, locks
from session_core.compression.locks import CompressionLocks
from session_core.errors import Busy, InvalidInput
from tests.compression.homes import LAST, Chat, refused, summarize_short
from tests.homes import connect
from tests.interrupts import make_interrupting_profiler, run_beside_thread


def make_holder(pid: int, start: object = "", agent: str = "mcp-sessions", host: str = "") -> str:
    where = host or processes.identify_host()
    return f"pid={pid}:tid=1:agent={agent}:start={start}:host={where}:nonce=1"


@pytest.fixture
def find_dead_pid() -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def read_expiry(chat: Chat) -> float:
    with connect(chat.db.path) as connection:
        row = connection.execute("SELECT expires_at FROM compression_locks").fetchone()
    return float(row[0])


def wait_for_expiry(expected: float, chat: Chat) -> None:
    deadline = time.monotonic() + 30
    while read_expiry(chat) != expected:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.requirement("compression:lock")
def test_lock_is_refreshed_during_summary(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "REFRESH_S", 0.005)

    def slow(_: object) -> str:
        assert read_expiry(chat) <= chat.clock.now + 300
        for _ in range(3):
            chat.clock.now += 200
            wait_for_expiry(chat.clock.now + 300, chat)
        return "what was said"

    chat.compressor().compress(chat.session_id, slow, keep_last=LAST, timeout_s=7200)
    assert chat.db.get_compression_lock_holder(chat.session_id) is None


@pytest.mark.requirement("compression:lock")
def test_lock_of_dead_process_is_taken_over(chat: Chat, find_dead_pid: int) -> None:
    assert chat.db.try_acquire_compression_lock(chat.session_id, make_holder(find_dead_pid))
    assert chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)


def test_lock_ignores_reused_pid(chat: Chat) -> None:
    start = (processes.get_start_time(os.getpid()) or 1e9) - 1000
    assert chat.db.try_acquire_compression_lock(chat.session_id, make_holder(os.getpid(), start))
    assert chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)


@pytest.mark.requirement("compression:lock")
@pytest.mark.parametrize("of", [{"agent": "hermes"}, {"host": "elsewhere"}])
def test_lock_of_unverifiable_holder_is_respected(chat: Chat, find_dead_pid: int, of: Any) -> None:
    assert chat.db.try_acquire_compression_lock(chat.session_id, make_holder(find_dead_pid, **of))
    with refused("locked"):
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)


def test_lock_error_describes_holder(chat: Chat) -> None:
    chat.db.try_acquire_compression_lock(chat.session_id, "pid=1:tid=2:agent=hermes:nonce=3")
    with pytest.raises(NotCompressed, match=r"by hermes \(pid 1\); wait"):
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    error: list[str] = []

    def second() -> None:
        with pytest.raises(NotCompressed) as caught:
            CompressionLocks(chat.db).run_locked(["other"], list)
        error.append(str(caught.value))

    CompressionLocks(chat.db).run_locked(["other"], lambda: run_beside_thread(second))
    assert "another thread of this process" in error[0]


def test_failed_lock_release_keeps_result(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(*_: object) -> None:
        raise Busy("the write lock was not to be had")

    with monkeypatch.context() as patch:
        patch.setattr(chat.db, "release_compression_lock", busy)
        assert chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    assert "expires" in caplog.text


def test_lock_from_far_future_is_ignored(chat: Chat) -> None:
    assert chat.db.try_acquire_compression_lock(chat.session_id, "before the clock was set back")
    chat.clock.now -= 200
    with refused("locked"):
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    chat.clock.now -= 86_400
    assert chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)


def test_lock_is_refused_inside_transaction(chat: Chat) -> None:
    with chat.db.transaction(), pytest.raises(InvalidInput, match="end the open one"):
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)


def test_refused_lock_releases_earlier_locks(chat: Chat) -> None:
    assert chat.db.try_acquire_compression_lock("second", "somebody")
    with refused("locked"):
        CompressionLocks(chat.db).run_locked(["first", "second"], list)
    assert chat.db.get_compression_lock_holder("first") is None
    assert chat.db.get_compression_lock_holder("second") == "somebody"


# An interrupt within `Thread.start` may break Python's own condition; then the thread never runs.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in thread started by:pytest.PytestUnraisableExceptionWarning"
)
def test_interrupt_leaves_no_lock(chat: Chat) -> None:
    held, seen = CompressionLocks(chat.db), []
    places = (locks.__file__, threading.__file__)

    def look() -> None:
        seen.append(chat.db.get_compression_lock_holder("s"))

    place = 0
    while run_interrupted(
        lambda: held.run_locked(["s"], look), make_interrupting_profiler(place, places)
    ):
        place += 1
        deadline = time.monotonic() + 30
        while chat.db.get_compression_lock_holder("s") is not None:
            assert time.monotonic() < deadline
        held.run_locked(["s"], look, patient=True)
    assert place > 30
    assert None not in seen


def run_interrupted(step: Callable[[], object], profile: Callable[..., None]) -> bool:
    """Run a step under a profiler, and return whether it was interrupted."""
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        step()
    except (KeyboardInterrupt, RuntimeError):  # the latter where it hits a condition of Python's
        return True
    finally:
        sys.setprofile(before)
    return False

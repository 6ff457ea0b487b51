"""Compression next to other processes: one that appends, a second compressor, one that dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import Compressor, SessionDB, SessionStore
from session_core.compression.types import NotCompressed
from tests.compression.homes import LAST, Chat, summarize_short

ROOT = Path(__file__).parents[2]
COMPRESSIONS = [40, pytest.param(200, marks=pytest.mark.slow)]


class SpeakerProcess:
    """Another process on the same home."""

    def __init__(self, chat: Chat, what: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.compression.concurrent_writer",
             str(chat.db.path), chat.session_id, what],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.hear()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def hear(self) -> str:
        """Return the next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> str:
        """Close its input and return the rest of its output."""
        return self._process.communicate(timeout=60)[0]

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=60)


@contextmanager
def run_speaker(chat: Chat, what: str) -> Any:
    other = SpeakerProcess(chat, what)
    try:
        yield other
    finally:
        other.kill()


# -- one that speaks ---------------------------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("compression:others")
@pytest.mark.parametrize("compressions", COMPRESSIONS)
def test_concurrent_messages_survive_many_compressions(chat: Chat, compressions: int) -> None:
    before = chat.db.get_messages(chat.session_id, include_inactive=True)
    compressor, batches = chat.compressor(), []
    with run_speaker(chat, "speaks") as speaker:
        while len(batches) < compressions:
            batches += compress_or_undo(chat, compressor, len(batches))
        appended = json.loads(speaker.end())
    assert_complete(chat, appended)
    for batch in reversed(batches):
        if chat.ledger.get_batch(batch).undone_at is None:
            compressor.undo(batch)
    rows = chat.db.get_messages(chat.session_id, include_inactive=True)
    assert rows[: len(before)] == before
    assert [[row["id"], row["content"]] for row in rows[len(before) :]] == appended
    assert_counters_match(chat)
    assert chat.db.admin.check_integrity(deep=True) == []


def compress_or_undo(chat: Chat, compressor: Compressor, number: int) -> list[str]:
    """Compress in place, and undo every third compression at once."""
    try:
        result = compressor.compress(
            chat.session_id, summarize_short, shape="in_place", keep_last=2
        )
    except NotCompressed as error:
        if error.code not in ("nothing_to_win", "not_smaller"):
            raise
        return []
    if number % 3 == 2:
        compressor.undo(result.batch)
    return [result.batch]


def assert_complete(chat: Chat, appended: list[Any]) -> None:
    """Check that all messages exist in order, with calls and results together."""
    contents = [content for _, content in appended]
    rows = chat.db.get_messages(chat.session_id, include_inactive=True)
    assert {row["content"] for row in rows if str(row["content"]).startswith("said")} == set(
        contents
    )
    live = chat.db.get_messages(chat.session_id)
    places = [contents.index(row["content"]) for row in live if row["content"] in contents]
    assert places == sorted(set(places))
    assert places[-1] == len(contents) - 1
    waiting: list[str] = []
    for row in live:
        if row["role"] == "tool":
            waiting.remove(row["tool_call_id"])
            continue
        assert waiting == []
        waiting = [call["id"] for call in row["tool_calls"] or ()]
    assert waiting == []
    assert_counters_match(chat)


def assert_counters_match(chat: Chat) -> None:
    """Check that the counters match the live messages."""
    live = chat.db.get_messages(chat.session_id)
    calls = sum(len(row["tool_calls"] or ()) for row in live)
    row = chat.db.get_session(chat.session_id)
    assert row is not None
    assert (row["message_count"], row["tool_call_count"]) == (len(live), calls)


# -- two compressors ---------------------------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("compression:others")
@pytest.mark.parametrize("shape", ["in_place", "continuation"])
def test_compressor_is_refused_during_another(chat: Chat, shape: Any) -> None:
    session_id, both, callers = chat.session_id, threading.Barrier(2), []
    chat.clock.now += 7200  # so that a second connection does not count as activity

    def summarize(_: object) -> str:
        callers.append(threading.get_native_id())
        return "a short summary of the tickets"

    def compress() -> str:
        with (
            SessionDB(chat.db.path, clock=chat.clock) as db,
            SessionStore(chat.db.path.parent / "sessions", db=db) as store,
        ):
            other = Compressor(db, chat.ledger, store=store, clock=chat.clock)
            both.wait()
            try:
                other.compress(session_id, summarize, shape=shape, keep_last=LAST)
            except NotCompressed as error:
                return error.code
            return "done"

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(future.result() for future in [pool.submit(compress) for _ in range(2)])
    assert ends[0] == "done"
    assert ends[1] in ("locked", "nothing_to_win")
    assert len(callers) == 1
    children = [child["id"] for child in chat.db.list_children(session_id)]
    assert children == ([chat.session_id] if shape == "continuation" else [])


# -- those that hold the file ------------------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("compression:others")
def test_no_continuation_while_session_is_held(chat: Chat) -> None:
    chat.clock.now = time.time()
    compressor = chat.compressor()
    plan = compressor.plan(chat.session_id, shape="continuation", keep_last=LAST)
    with run_speaker(chat, "holds") as holder:
        before = chat.whole()
        for attempt in (
            lambda: compressor.plan(chat.session_id, shape="continuation", keep_last=LAST),
            lambda: compressor.compress(chat.session_id, shape="continuation", keep_last=LAST),
            lambda: compressor.apply(plan.plan),
        ):
            with pytest.raises(NotCompressed, match=f"pid {holder.pid}") as refused:
                attempt()
            assert refused.value.code == "live"
        assert chat.whole() == before
        assert compressor.compress(chat.session_id, keep_last=LAST).shape == "in_place"


@pytest.fixture
def gateway(chat: Chat) -> Any:
    """A process that looks like a live gateway of this home."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "hermes", "gateway", "run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        record = {"pid": process.pid, "kind": "hermes-gateway", "argv": command[3:]}
        path = chat.db.path.parent / "gateway.pid"

        def lives() -> int:
            path.write_text(json.dumps(record))
            return process.pid

        yield lives
        process.kill()


@pytest.mark.needs_files
@pytest.mark.requirement("compression:others")
def test_no_continuation_while_gateway_runs(chat: Chat, gateway: Any) -> None:
    compressor, session_id = chat.compressor(), chat.session_id
    plan = compressor.plan(session_id, shape="continuation", keep_last=LAST)
    pid, before, route = gateway(), chat.whole(), chat.entry.to_dict()
    for attempt in (
        lambda: compressor.compress(session_id, shape="continuation", keep_last=LAST),
        lambda: compressor.apply(plan.plan),
    ):
        with pytest.raises(NotCompressed, match=rf"gateway \(pid {pid}\)") as refused:
            attempt()
        assert refused.value.code == "live"
    assert chat.whole() == before
    assert compressor.compress(session_id, keep_last=LAST).shape == "in_place"
    assert chat.entry.to_dict() == route


@pytest.mark.needs_files
@pytest.mark.requirement("compression:others")
def test_continuation_undo_refused_while_gateway_runs(chat: Chat, gateway: Any) -> None:
    compressor, session_id = chat.compressor(), chat.session_id
    result = compressor.compress(session_id, shape="continuation", keep_last=LAST)
    pid, before = gateway(), chat.whole()
    with pytest.raises(NotCompressed, match=f"pid {pid}") as refused:
        compressor.undo(result.batch)
    assert refused.value.code == "live"
    assert chat.whole() == before


# -- one that dies -----------------------------------------------------------------------------


@pytest.mark.needs_files
@pytest.mark.requirement("compression:others")
def test_killed_compressor_leaves_home_unchanged(chat: Chat) -> None:
    """The next compressor takes over the lock of the dead one before it expires."""
    before = chat.whole()
    chat.clock.now = time.time()
    with run_speaker(chat, "compresses") as dying:
        with pytest.raises(NotCompressed, match=rf"pid {dying.pid}\b") as refused:
            chat.compressor().compress(chat.session_id, keep_last=2)
        assert refused.value.code == "locked"
        dying.kill()
    assert chat.whole() == before
    result = chat.compressor().compress(chat.session_id, keep_last=2)
    assert result.tokens_after < result.tokens_before


@pytest.mark.requirement("compression:others")
def test_foreign_lock_of_dead_compressor_expires(chat: Chat) -> None:
    holder = "pid=1:tid=1:agent=another:nonce=1"
    assert chat.db.try_acquire_compression_lock(chat.session_id, holder)
    with pytest.raises(NotCompressed, match=r"pid 1\b") as refused:
        chat.compressor().compress(chat.session_id, keep_last=2)
    assert refused.value.code == "locked"
    chat.clock.now += 301
    assert chat.compressor().compress(chat.session_id, keep_last=2).tokens_after

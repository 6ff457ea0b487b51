"""A sample home with conversations of every kind, in a temporary folder."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mcp_serve.cli.terminal import format_bytes
from session_core import (
    SessionDB,
    SessionEntry,
    SessionSource,
    SessionStore,
    build_session_key,
)

_HOUR_S = 3600.0
_EVERYDAY_COUNT = 240
_FIELD_COUNT = 60

LONG_SESSION_ID = "20261104_091500_5e1f0a"
"""The long session in which an agent works with tools."""

_TIP_SESSION_ID = "20261103_120000_7c31"
"""The continuation of two compressed sessions."""

_CHATS = (
    ("Sam", "5550123", _TIP_SESSION_ID),
    ("Sam, the old phone", "5550099", "20260801_181500_0b0e"),
)
"""Chats with their sessions; the second route is broken, since its session does not exist."""

_DECISION = (
    "Decided: the schema of the orders table changes in two steps. First add order_items.sku as "
    "nullable and backfill it in batches of 5,000, then set NOT NULL in the release after. "
    "We do not rename anything before the mobile app has moved to v2."
)
_PROJECTS = ("shop", "billing", "site", "notes")
_SOURCES = ("cli", "telegram", "discord", "slack", "tui")
_TOPICS = (
    ("Flaky checkout test", "the checkout test fails every third run", "wait for the event"),
    ("Invoice rounding", "two invoices are a cent off", "round once, at the end"),
    ("Nightly backup", "the backup takes four hours", "skip the thumbnails"),
    ("Login page copy", "people miss the reset link", "put it below the password"),
    ("Slow product list", "the product list takes two seconds", "add an index on category"),
    ("Bread for Sunday", "the dough does not rise", "give it two more hours at 25 degrees"),
    ("Import of contacts", "names lose their accents", "read the file as UTF-8"),
    ("Webhook retries", "a customer got the same webhook nine times", "send an idempotency key"),
)


class SampleClock:
    """A clock that can be set, so that sessions end in the past."""

    def __init__(self) -> None:
        self.at = time.time()

    def __call__(self) -> float:
        """Return the time that it was set to."""
        return self.at


def build_home(db: SessionDB, clock: SampleClock) -> None:
    """Fill an empty home that uses this clock."""
    now = clock()
    _add_everyday_sessions(db, clock, now)
    _add_long_session(db, now - 5 * _HOUR_S)
    _add_compressed_lineage(db, clock, now - 40 * _HOUR_S)
    _add_compacted_session(db, now - 28 * _HOUR_S)
    _add_other_scripts(db, now - 3 * _HOUR_S)
    _add_picture_session(db, now - 1 * _HOUR_S)
    _add_ghosts(db, clock, now - 80 * _HOUR_S)
    clock.at = now


def add_routes(home: Path, db: SessionDB, clock: SampleClock) -> None:
    """Add routes from chats to sessions."""
    at = datetime.fromtimestamp(clock() - 50 * _HOUR_S)  # noqa: DTZ006 -- route entries have local times without a zone
    with SessionStore.open(home, db) as store:
        for name, chat, session in _CHATS:
            source = SessionSource(platform="telegram", chat_id=chat)
            key = build_session_key(source)
            entry = SessionEntry(key, session, at, at, source, name, platform="telegram")
            store.save(entry)


def _end_session(db: SessionDB, clock: SampleClock, key: str, at: float, reason: str) -> None:
    clock.at = at
    db.end_session(key, reason)


def _store_session(
    db: SessionDB, key: str, source: str, at: float, turns: list[tuple[str, Any]], **row: Any
) -> None:
    messages = [
        {"role": role, "content": content, "timestamp": at + 20 * number}
        for number, (role, content) in enumerate(turns)
    ]
    title = row.pop("title", None)
    row = {"source": source, "model": "large-2", "started_at": at} | row
    db.append_messages(key, messages, create=row)
    db.set_session_title(key, title)


def _add_everyday_sessions(db: SessionDB, clock: SampleClock, now: float) -> None:
    """Add everyday conversations, half of them ended."""
    with db.transaction():
        for number in reversed(range(_EVERYDAY_COUNT)):  # oldest first
            topic, problem, way_out = _TOPICS[number % len(_TOPICS)]
            key, at = (
                f"20260{number % 9 + 1}01_08{number:04d}_ab",
                now - (90 + 9 * number) * _HOUR_S,
            )
            turns = [
                ("user", f"In ticket {4000 + number}, {problem}. Can you look into it?"),
                ("assistant", f"I looked at ticket {4000 + number}. The best way: {way_out}."),
                ("user", "Good. Do that, and tell me what changed."),
                ("assistant", f"Done: {way_out}. Nothing else was touched."),
            ] * 3
            folder = f"/home/sam/{_PROJECTS[number % len(_PROJECTS)]}"
            source = _SOURCES[number % len(_SOURCES)]
            title = f"{topic} ({4000 + number})"
            _store_session(db, key, source, at, turns, title=title, cwd=folder)
            if number % 2:
                _end_session(db, clock, key, at + 900, "cli_close")


def _add_long_session(db: SessionDB, at: float) -> None:
    """Add a session in which an agent reads files with a tool."""
    row = {"source": "cli", "model": "large-2", "cwd": "/home/sam/shop", "started_at": at}
    opening = {"role": "user", "content": "Plan the schema change for orders, step by step."}
    messages: list[dict[str, Any]] = [opening]
    for step in range(1, 61):
        path = f"shop/models/table_{step:02d}.py"
        messages += _build_tool_turn(step, path)
    messages += [
        {"role": "user", "content": "So what do we do about the orders table?"},
        {"role": "assistant", "content": _DECISION},
    ]
    for number, message in enumerate(messages):
        message["timestamp"] = at + 15 * number
    db.append_messages(LONG_SESSION_ID, messages, create=row)
    db.set_session_title(LONG_SESSION_ID, "Schema change for orders")


def _build_tool_turn(step: int, path: str) -> list[dict[str, Any]]:
    call = {"name": "read_file", "arguments": f'{{"path": "{path}"}}'}
    called = {"id": f"call_{step}", "type": "function", "function": call}
    text = f"{path}: 3 columns, 1 index"
    if step == 41:  # noqa: PLR2004 -- any step in the middle
        text += "\nERR_POOL_4711: connection pool exhausted in orders_sync.flush_batch"
    text += f"\n{_build_source(step)}"
    return [
        {"role": "assistant", "content": f"Reading {path}.", "tool_calls": [called]},
        {
            "role": "tool",
            "content": text,
            "tool_name": "read_file",
            "tool_call_id": f"call_{step}",
        },
        {"role": "assistant", "content": f"{path} needs no change, step {step} is done."},
    ]


def _build_source(step: int) -> str:
    """Return a source file, long enough that the session can be compressed."""
    lines = [f"class Table{step:02d}(Model):", f'    """What the shop knows of item {step}."""', ""]
    for number in range(1, _FIELD_COUNT + 1):
        size = 20 + (step * number) % 80
        lines.append(f"    field_{number:02d} = Column(String({size}), nullable=False)")
    return "\n".join(lines)


def _add_compressed_lineage(db: SessionDB, clock: SampleClock, at: float) -> None:
    """Add a conversation of three sessions, each the continuation of the previous one."""
    parts = [
        ("Can you find a quiet place in Lisbon for May?", "Alfama is loud; Graca is quiet."),
        ("And how do we get there from the airport?", "The red line, then tram 28 from Martim."),
        ("What will all of it cost?", "About 1,240 euros for two, flights and hotel included."),
    ]
    parent: str | None = None
    for number, (question, answer) in enumerate(parts):
        key, starts = f"20261103_1{number}0000_7c31", at + number * 2 * _HOUR_S
        turns = [("user", question), ("assistant", answer)]
        title = "Trip to Lisbon" if parent is None else f"Trip to Lisbon #{number + 1}"
        _store_session(db, key, "telegram", starts, turns, title=title, parent_session_id=parent)
        if number < len(parts) - 1:
            _end_session(db, clock, key, starts + _HOUR_S, "compression")
        parent = key


def _add_compacted_session(db: SessionDB, at: float) -> None:
    """Add a session whose beginning was replaced by a summary, but is still found by a search."""
    turns = [
        ("user", "The pager went off at 3 am, what happened?"),
        ("assistant", "The certificate of api.example.org had expired; I renewed it by hand."),
        ("user", "Make sure that this never happens again."),
        ("assistant", "A job now renews it 30 days ahead and warns in #ops when it cannot."),
    ]
    _store_session(db, "20261103_0300_9d2b", "slack", at, turns, title="Outage at night")
    summary = "[summary] An expired certificate; renewal is automatic now."
    db.archive_and_compact("20261103_0300_9d2b", [{"role": "user", "content": summary}])


def _add_other_scripts(db: SessionDB, at: float) -> None:
    turns = [
        ("user", "来週の会議の前に、予算の見直しをお願いします。"),
        ("assistant", "予算は三つの項目に分けました。広告費を二割減らすことを提案します。"),
        ("user", "很好, 请把数据库迁移的费用也加进去。"),
        ("assistant", "Добавлено: миграция базы данных, 3 дня работы."),
    ]
    _store_session(db, "20261104_1100_41aa", "whatsapp", at, turns, title="予算の見直し")


def _add_picture_session(db: SessionDB, at: float) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    content = [
        {"type": "text", "text": "What is wrong in this screenshot of the invoice?"},
        picture,
    ]
    turns = [
        ("user", content),
        ("assistant", "The VAT number runs over the edge; the column is 12 mm too narrow."),
    ]
    _store_session(
        db, "20261104_1400_f00d", "discord", at, turns, title="Screenshot of the invoice"
    )


def _add_ghosts(db: SessionDB, clock: SampleClock, at: float) -> None:
    """Add empty sessions."""
    for number in range(3):
        key = f"20261101_0700{number}_9057"
        db.create_session(key, "tui", started_at=at + number)
        _end_session(db, clock, key, at + number + 5, "tui_close")


@dataclass(frozen=True, slots=True)
class SampleHome:
    """A sample home and its folder."""

    folder: Path

    @property
    def path(self) -> Path:
        """The path of the home."""
        return self.folder / "home"

    @property
    def serve_arguments(self) -> list[str]:
        """The arguments that serve this home alone, without confirmation: no user is present."""
        return ["serve", "--home", str(self.path), "--store", "own", "--confirm=never"]

    @property
    def command(self) -> list[str]:
        """The command that starts a server of the home in this environment."""
        return [sys.executable, "-m", "mcp_serve.cli.main", *self.serve_arguments]

    def fill(self) -> str:
        """Fill the home, and return its number of messages and its size."""
        clock = SampleClock()
        self.path.mkdir()
        with SessionDB(self.path / "state.db", clock=clock) as db:
            build_home(db, clock)
            add_routes(self.path, db, clock)
            return f"{db.message_count():,} messages, {format_bytes(db.admin.measure_sizes().db)}"


@contextmanager
def create_sample_home(*, keep: bool) -> Iterator[SampleHome]:
    """Create a sample home, and remove it at the end, also after SIGTERM, unless `keep` is True."""
    before = {number: signal.signal(number, _raise_interrupt) for number in _list_end_signals()}
    folder = Path(tempfile.mkdtemp(prefix="mcp-sessions-demo-"))
    try:
        yield SampleHome(folder)
    finally:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _list_end_signals() -> list[signal.Signals]:
    return [signal.SIGTERM] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGHUP]


def _raise_interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)

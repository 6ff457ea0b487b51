"""A random home, made by the real `SessionDB` under the Python of Hermes."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from hermes_homes import CALLS, DAY, end, run, session

SOURCES = ("cli", "telegram", "discord", "slack", "cron", "tui")
FOLDERS = ("/srv/app", "/srv/app/web", "/srv/application", "/home/sam/shop", None)
REASONS = ("cli_close", "session_reset", "idle", "agent_close", None)
WORDS = (
    "deploy", "revision", "staging", "schema", "migration", "index", "backup", "rollback",
    "latency", "token", "budget", "invoice", "customer", "walrus", "narwhal", "Größe", "naïve",
    "café", "foo_bar", "a1b2-c3", "v2.10.1", "make", "test", "release", "cluster",
)  # fmt: skip
PHRASES = (
    "数据库架构的决定", "事件日志已经建好", "东京区域的备份", "データベースを移行してください",
    "移行が終わりました", "데이터베이스 마이그레이션", "Миграция прошла успешно",
    "резервная копия базы", "قاعدة البيانات جاهزة", "emoji 🚀 ship",
)  # fmt: skip
TITLES = ("Deploy 50% done", "a_b test", "Schema plan", "Миграция базы", "数据库 计划", "Invoice")


class RandomHome:
    """Fills a home. The same seed makes the same home."""

    def __init__(self, db: Any, seed: int) -> None:
        self.db = db
        self.chance = random.Random(seed)
        self.now = time.time()
        self.count = 0
        self.roots: list[str] = []

    def fill(self, conversations: int) -> None:
        """Add conversations of every kind with their dependent rows."""
        for _ in range(conversations):
            self._conversation()
        for make in (self._branch, self._delegate, self._unlinked):
            for _ in range(3):
                make(self.chance.choice(self.roots))
        if self.chance.random() < 0.3:
            self._unknown_child(self.chance.choice(self.roots))

    def _session(self, source: str, age: float, **columns: Any) -> str:
        self.count += 1
        columns = {name: value for name, value in columns.items() if value is not None}
        return session(self.db, f"s{self.count:03}", source, age=age, **columns)

    def _conversation(self) -> None:
        chance = self.chance
        age = chance.uniform(2, 200) * DAY
        source = chance.choice(SOURCES)
        here = self._session(
            source,
            age,
            cwd=chance.choice(FOLDERS),
            user_id=chance.choice(("u1", "u2", None)),
            chat_id=chance.choice(("77", None)),
            chat_type=chance.choice(("dm", "group", None)),
            model=chance.choice(("large-1", "small_1")),
        )
        self.roots.append(here)
        self._talk(here, age)
        self._decide_fate(here)
        if chance.random() < 0.5:
            self.db.set_session_title(here, f"{chance.choice(TITLES)} {self.count}")
        tip = here
        for _ in range(chance.choice((0, 0, 1, 2, 3))):
            age *= chance.uniform(0.5, 0.9)
            tip = self._continue(tip, source, age)
        if chance.random() < 0.6:
            end(self.db, tip, chance.choice(REASONS), age * 0.9)
        if chance.random() < 0.15:
            self.db.set_session_archived(tip, archived=True)

    def _continue(self, parent: str, source: str, age: float) -> str:
        """Rotate as the compressor of Hermes does: the child has no folder and no owner."""
        end(self.db, parent, "compression", age)
        child = self._session(
            self.chance.choice((source, source, "unknown")), age, parent_session_id=parent
        )
        if self.chance.random() < 0.9:
            self._talk(child, age)
        return child

    def _branch(self, parent: str) -> None:
        self._child({"_branched_from": parent}, parent)

    def _delegate(self, parent: str) -> None:
        self._child({"_delegate_from": parent}, parent)

    def _unlinked(self, parent: str) -> None:
        """Orphan a delegate as Hermes' migration and pruning do."""
        mark = self.chance.choice((parent, "__orphaned__"))
        child = self._child({"_delegate_from": mark}, parent)
        run(self.db, [["UPDATE sessions SET parent_session_id = NULL WHERE id = ?", child]])

    def _unknown_child(self, parent: str) -> None:
        self._child(None, parent)

    def _child(self, config: dict[str, str] | None, parent: str) -> str:
        age = self.chance.uniform(1, 30) * DAY
        child = self._session("cli", age, model_config=config, parent_session_id=parent)
        self._talk(child, age)
        if self.chance.random() < 0.5:
            end(self.db, child, "done", age / 2)
        return child

    def _text(self) -> str:
        words = self.chance.choices(WORDS, k=self.chance.randint(2, 9))
        if self.chance.random() < 0.4:
            words.insert(self.chance.randrange(len(words)), self.chance.choice(PHRASES))
        return " ".join(words)

    def _talk(self, session_id: str, age: float) -> None:
        at = self.now - age
        for number in range(self.chance.randint(1, 7)):
            at += self.chance.uniform(1, 3600)
            text: Any = self._text()
            kind = self.chance.random()
            if kind < 0.1:
                self.db.append_message(
                    session_id, "assistant", text, tool_calls=CALLS, timestamp=at
                )
                self.db.append_message(
                    session_id, "tool", json.dumps({"output": self._text()}),
                    tool_call_id="call_1", tool_name="terminal", timestamp=at + 0.5,
                )  # fmt: skip
                continue
            if kind < 0.2:
                text = [{"type": "text", "text": text}]
            self.db.append_message(
                session_id, ("user", "assistant")[number % 2], text, timestamp=at
            )

    def _decide_fate(self, session_id: str) -> None:
        """Rewind or compact in place, if this version can."""
        rows = self.db.get_messages(session_id)
        ids = [row["id"] for row in rows if row["role"] == "user"]
        fate = self.chance.random()
        if fate < 0.15 and len(ids) > 1:
            self.db.rewind_to_message(session_id, ids[-1])
        elif fate < 0.3 and len(rows) > 3 and hasattr(self.db, "archive_and_compact"):
            summary = {"role": "user", "content": f"summary of the {self._text()}"}
            keys = ("role", "content", "timestamp", "tool_calls", "tool_call_id", "tool_name")
            carried = [{key: rows[-1][key] for key in keys}]
            self.db.archive_and_compact(session_id, [summary, *carried])

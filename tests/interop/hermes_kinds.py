"""Items for each kind of plan, made by the real `SessionDB` and `SessionStore`, with expectations.

The expected selection of each kind is written next to the session, as a number of days. Runs under
the Python of a hermes-agent; features that a version does not have are omitted.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hermes_homes import DAY, end, run, say, session

DELEGATE = {"_delegate_from": "somebody"}
BRANCH = {"_branched_from": "somebody"}
IDLE = {"mode": "idle", "idle_minutes": 60, "at_hour": 4}
GONE = "20260101_120000_abcdef01"
CALL = {"name": "terminal", "arguments": "{}"}

Together = dict[str, list[str]]


class Kinds:
    """Fills a home and records the sessions that each kind should select."""

    def __init__(self, db: Any, home: Path, *, damaged: bool) -> None:
        self.db, self.home, self.damaged = db, home, damaged
        self.columns = {row[1] for row in db._conn.execute("PRAGMA table_info(sessions)")}
        self.found: dict[str, Together] = {}
        self.kept: dict[str, Counter[str]] = {}
        self.filters: dict[str, tuple[dict[str, Any], str]] = {}
        self.routes: dict[str, str] = {}
        """The session keys of chats, by our names for them."""
        self.led: dict[str, str] = {}
        """The sessions in which they are, or were."""

    def fill(self) -> dict[str, Any]:
        """Add all items and return the expectations."""
        self._those_before()
        self._old()
        self._filtered()
        self._lineages()
        self._unended()
        self._continuations()
        self._ghosts()
        self._routes()
        self._files()
        self.chosen("index", "index")
        if self.damaged:
            self._links()
            self._left_over()
            self._routes_by_hand()
        return {
            "at": time.time() + 60,
            "chosen": self.found,
            "protected": self.kept,
            "filters": self.filters,
            "chats": self.routes,
            "led": self.led,
        }

    def chosen(self, kind: str, name: str, *together: str) -> None:
        """Expect that a kind selects this item, together with others in this order."""
        self.found.setdefault(kind, {})[name] = list(together or (name,))

    def protected(self, kind: str, why: str) -> None:
        """Expect that a kind protects one more item for this reason."""
        self.kept.setdefault(kind, Counter())[why] += 1

    def add(
        self,
        name: str,
        days: float,
        reason: str | None = None,
        *,
        begun: float = 0.0,
        ended: float = 0.0,
        messages: int = 2,
        source: str = "cli",
        **columns: Any,
    ) -> str:
        """Add a session with its last message a number of days ago."""
        session(self.db, name, source, age=max(begun, days) * DAY, **columns)
        say(self.db, name, *[f"waltz {number} of {name}" for number in range(messages)],
            age=days * DAY)  # fmt: skip
        if reason is not None:
            end(self.db, name, reason, (ended or days) * DAY)
        return name

    def sql(self, statement: str, *values: Any) -> None:
        """Change the database as a careless process does."""
        self.db._conn.execute("PRAGMA foreign_keys=OFF")
        run(self.db, [[statement, *values]])
        self.db._conn.execute("PRAGMA foreign_keys=ON")

    # -- sessions ------------------------------------------------------------------------------

    def _those_before(self) -> None:
        """Record the earlier contents of the home, which are not older than a month."""
        for name in ("ghost", "ghost_parent", "ghost_open", "orphan_empty"):
            self.chosen("ghosts", name)
        for name in ("orphan", "orphan_unknown", "orphan_titled", "chain_3"):
            self.chosen("orphaned", name)
        if self.damaged:
            self.chosen("links", "cycle_a")
            self.chosen("links", "own_parent")

    def _old(self) -> None:
        """Add sessions of all ages. Pruning goes by the last message."""
        self.add("old", 140, "idle", model="m-large")
        self.db.append_message("old", "assistant", "", tool_calls=[{"id": "c", "function": CALL}])
        self.db.append_message("old", "tool", "waltz done", tool_call_id="c", tool_name="terminal")
        self.db.append_message(
            "old", "user", [{"type": "text", "text": "waltz parts 圆舞曲在哪里"}]
        )
        taken = self.db.append_message("old", "user", "waltz taken back")
        if hasattr(self.db, "rewind_to_message"):
            self.db.rewind_to_message("old", taken)
        self.db.update_token_counts("old", 100, 20, model="m-large", api_call_count=2)
        if hasattr(self.db, "archive_and_compact"):
            self.db.archive_and_compact("old", [{"role": "user", "content": "waltz summed up"}])
        self.sql("UPDATE messages SET timestamp = ? WHERE session_id = 'old'",
                 time.time() - 140 * DAY)  # fmt: skip
        self.chosen("sessions", "old")
        self.add("old_titled", 91, "cli_close")
        self.db.set_session_title("old_titled", "The schema")
        self.chosen("sessions", "old_titled")
        self.add("old_ended_now", 120, "tui_close", ended=1)
        self.chosen("sessions", "old_ended_now")
        self.add("old_for_nothing", 250)
        self.db.end_session("old_for_nothing", None)
        self.chosen("sessions", "old_for_nothing")
        self.add("long_lived", 5, "cli_close", begun=400)
        self.add("not_so_old", 89, "cli_close")
        self.add("old_archived", 200, "cli_close")
        self.db.set_session_archived("old_archived", archived=True)
        if self.damaged:
            self.add("old_drifted", 300, "cli_close")
            self.sql("UPDATE sessions SET message_count = 0 WHERE id = 'old_drifted'")
            self.chosen("sessions", "old_drifted")
            self.add("no_time", 130, "cli_close", messages=0)
            self.sql("UPDATE sessions SET started_at = 'soon' WHERE id = 'no_time'")
            self.protected("sessions", "no known age")
            self.protected("ghosts", "no known age")
        if hasattr(self.db, "try_acquire_compression_lock"):
            self.add("old_locked", 130, "cli_close")
            assert self.db.try_acquire_compression_lock("old_locked", "somebody", 3600)
            self.protected("sessions", "compressing")

    def _filtered(self) -> None:
        """Add old sessions that differ in one filter each. A filter selects exactly one."""
        asked: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "source": ({"source": ["slack"]}, {"source": "slack"}),
            "title_like": ({"title_like": "CRYPTOGAMS"}, {}),
            "end_reason": ({"end_reason": "lru_evict"}, {"reason": "lru_evict"}),
            "project": ({"project": "/srv/p"}, {"cwd": "/srv/p/below"}),
            "cwd_prefix": ({"cwd_prefix": "/opt/q"}, {"cwd": "/opt/q/1"}),
            "model_like": ({"model_like": "RARE"}, {"model": "some-rare-one"}),
            "user_id": ({"user_id": "u-4711"}, {"user_id": "u-4711"}),
            "chat_id": ({"chat_id": "c-4711"}, {"chat_id": "c-4711"}),
            "chat_type": ({"chat_type": "forum"}, {"chat_type": "forum"}),
            "branch_like": ({"branch_like": "TOPIC"}, {"git_branch": "my/topic"}),
            "provider": ({"provider": "OpenRouter"}, {"billing_provider": "openrouter"}),
            "min_messages": ({"min_messages": 6, "source": ["many"]}, {"messages": 6}),
            "max_messages": ({"max_messages": 1, "source": ["few"]}, {"messages": 1}),
            "min_tokens": ({"min_tokens": 5000}, {"input_tokens": 4000, "output_tokens": 1000}),
            "max_tokens": ({"max_tokens": 9, "source": ["light"]}, {"input_tokens": 9}),
            "min_cost": ({"min_cost": 2.5}, {"estimated_cost_usd": 9.0, "actual_cost_usd": 2.5}),
            "max_cost": ({"max_cost": 0.5, "source": ["cheap"]}, {"estimated_cost_usd": 0.5}),
            "min_tool_calls": ({"min_tool_calls": 7}, {"tool_call_count": 7}),
            "max_tool_calls": ({"max_tool_calls": 1, "source": ["plain"]}, {"tool_call_count": 1}),
            "started_before": ({"started_before": 500}, {"begun": 501}),
            "started_after": (
                {"started_after": 130, "source": ["new"]},
                {"begun": 129, "days": 120},
            ),
            "active_before": ({"active_before": 400}, {"begun": 450, "days": 401}),
            "active_after": ({"active_after": 99, "source": ["late"]}, {"days": 98}),
            "archived": ({"status": "archived", "source": ["shelf"]}, {}),
        }
        for name, (where, given) in asked.items():
            needed = {item for item in given if item not in _OF_THIS} | _list_columns(where)
            if not needed <= self.columns:
                continue
            source = given.get("source", where.get("source", ["cli"])[0])
            mine = self._of_filter(f"by_{name}", {**given, "source": source})
            self.filters[name] = (where, mine)
            if name == "archived":
                self.db.set_session_archived(mine, archived=True)
            else:
                self.chosen("sessions", mine)
            if name == "title_like":
                self.db.set_session_title(mine, "A list of cryptogams")
            if "source" in where and name not in ("source", "archived"):
                self.chosen("sessions", self._contrast(f"not_{name}", source))

    def _of_filter(self, name: str, given: dict[str, Any]) -> str:
        given = dict(given)
        days, reason = given.pop("days", 150), given.pop("reason", "cli_close")
        return self.add(name, days, reason, **given)

    def _contrast(self, name: str, source: str) -> str:
        """Add a session of the same source that does not match the filter."""
        counted = {"input_tokens": 10, "estimated_cost_usd": 0.6, "tool_call_count": 2}
        messages = 2 if source == "few" else 5
        return self.add(name, 150, "cli_close", begun=160, source=source, messages=messages,
                        **counted)  # fmt: skip

    def _lineages(self) -> None:
        """Add conversations of several sessions, which are removed as a whole."""
        self.add("long_1", 200, "compression")
        self.add("long_2", 190, "compression", parent_session_id="long_1")
        self.add("long_3", 180, "cli_close", parent_session_id="long_2")
        self.chosen("sessions", "long_1", "long_3", "long_2", "long_1")
        self.add("lasting_1", 300, "compression")
        self.add("lasting_2", 2, "cli_close", parent_session_id="lasting_1")
        self.add("chief", 150, "cli_close")
        self.add("worker", 150, parent_session_id="chief", model_config=DELEGATE)
        self.add("aide", 150, parent_session_id="worker", model_config=DELEGATE)
        self.chosen("sessions", "chief", "aide", "worker", "chief")
        self.chosen("abandoned", "aide", "aide", "worker")
        self.add("busy_chief", 150, "cli_close")
        self.add("busy_worker", 1, parent_session_id="busy_chief", model_config=DELEGATE)
        self.add("stem", 150, "branched")
        self.add("twig", 3, "cli_close", parent_session_id="stem", model_config=BRANCH)
        self.chosen("sessions", "stem")

    def _unended(self) -> None:
        """Add sessions that never ended."""
        self.add("left", 60, source="tui")
        self.chosen("abandoned", "left")
        self.add("left_long", 140, source="tui")
        self.chosen("abandoned", "left_long")
        self.add("left_lately", 29)
        self.add("left_on_the_shelf", 60)
        self.db.set_session_archived("left_on_the_shelf", archived=True)
        self.add("went_1", 70, "compression")
        self.add("went_2", 50, parent_session_id="went_1", api_call_count=2)
        self.chosen("abandoned", "went_2")

    def _continuations(self) -> None:
        """Add continuations that never ran, and similar sessions."""
        for name, days, columns in (
            ("cut", 20, {}),
            ("ran", 20, {"api_call_count": 1}),
            ("young", 6, {}),
            ("fork", 20, {"model_config": BRANCH}),
            ("job", 20, {"model_config": DELEGATE}),
        ):
            self.add(f"{name}_1", 20, "compression")
            self.add(f"{name}_2", days, parent_session_id=f"{name}_1", **columns)
        self.chosen("orphaned", "cut_2")

    def _ghosts(self) -> None:
        """Add empty sessions, and similar ones."""
        self.add("empty_cli", 3, "cli_close", messages=0)
        self.chosen("ghosts", "empty_cli")
        self.add("empty_chief", 3, "cli_close", messages=0, source="tui")
        self.add("empty_worker", 3, "cli_close", messages=0, parent_session_id="empty_chief",
                 model_config=DELEGATE)  # fmt: skip
        self.chosen("ghosts", "empty_chief", "empty_worker", "empty_chief")
        self.add("empty_with_work", 3, "cli_close", messages=0)
        self.add("its_work", 3, "cli_close", parent_session_id="empty_with_work",
                 model_config=DELEGATE)  # fmt: skip
        self.add("before", 3, "compression")
        self.add("between", 3, "compression", messages=0, parent_session_id="before")
        self.add("behind", 3, "cli_close", parent_session_id="between")
        self.protected("ghosts", "in between")
        self.add("empty_fresh", 0.5, "tui_close", messages=0, source="tui")
        self.add("empty_ended_now", 30, "tui_close", messages=0, ended=0.2)
        self.add("empty_but_paid", 3, "cli_close", messages=0, api_call_count=3)
        self.add("all_taken_back", 3, "tui_close", messages=1)
        self.sql("UPDATE messages SET active = 0 WHERE session_id = 'all_taken_back'")
        self.add("old_and_empty", 140, "tui_close", messages=0, source="tui")
        self.chosen("sessions", "old_and_empty")
        self.chosen("ghosts", "old_and_empty")

    # -- routes --------------------------------------------------------------------------------

    def _routes(self) -> None:
        """Add chats that the real store routes, each in another state."""
        from gateway.config import GatewayConfig  # noqa: PLC0415 -- only after its home is set
        from gateway.session import SessionStore  # noqa: PLC0415

        policies = {"default_reset_policy": {"mode": "none"}, "reset_by_platform": {"slack": IDLE}}
        (self.home / "gateway.json").write_text(json.dumps(policies))
        store = SessionStore(self.home / "sessions", GatewayConfig())
        for name, days in (
            ("stale", 40),
            ("closed", 40),
            ("dangling", 40),
            ("dangling_lately", 0.1),
        ):
            self._chat(store, name, days)
        self._chat(store, "talking", 0.01, platform="slack")
        idle = self._chat(store, "idle", 0.5, platform="slack")
        self._chat(store, "silent", 60)
        old = self._chat(store, "old_chat", 130)
        waiting = self._chat(store, "waiting", 130)
        store.suspend_session(self.routes["waiting"])
        store._entries[self.routes["waiting"]].updated_at = _format_time_ago(130)
        store._save()
        store._db.close()
        end(self.db, self.led["stale"], "session_reset", 40 * DAY)
        end(self.db, self.led["closed"], "agent_close", 40 * DAY)
        end(self.db, old, "agent_close", 130 * DAY)
        end(self.db, waiting, "idle", 130 * DAY)
        self.db.delete_session(self.led["dangling"])
        self.db.delete_session(self.led["dangling_lately"])
        for name in ("stale", "dangling"):
            self.chosen("routes", self.routes[name])
        self.protected("routes", "fresh")
        self.protected("routes", "suspended")
        self.protected("sessions", "routed")
        self.protected("sessions", "suspended")
        self.protected("abandoned", "routed")
        self.chosen("expired", idle)

    def _chat(self, store: Any, name: str, days: float, platform: str = "telegram") -> str:
        """Handle a message of a new chat a number of days ago, and return its session."""
        from gateway.session import SessionSource  # noqa: PLC0415

        given = {"platform": platform, "chat_id": f"chat-{name}", "chat_type": "dm",
                 "user_id": name}  # fmt: skip
        entry = store.get_or_create_session(SessionSource.from_dict(given))
        say(store._db, entry.session_id, f"waltz of {name}", "waltz on", age=days * DAY)
        run(store._db, [["UPDATE sessions SET started_at = ? WHERE id = ?",
                         time.time() - days * DAY, entry.session_id]])  # fmt: skip
        store._entries[entry.session_key].updated_at = _format_time_ago(days)
        store._save()
        self.routes[name] = entry.session_key
        self.led[name] = entry.session_id
        return str(entry.session_id)

    def _routes_by_hand(self) -> None:
        """Add unreadable and readable entries, and rows of deleted folders."""
        path = self.home / "sessions" / "sessions.json"
        stored = json.loads(path.read_text(encoding="utf-8"))
        for number, name in enumerate(("talking", "dangling")):
            stored[self.routes[name]]["of_the_future"] = {"kept": [number, None]}
        path.write_text(json.dumps({**stored, **_ODD}, indent=2), encoding="utf-8")
        tables = {row[0] for row in run(self.db, [["SELECT name FROM sqlite_master"]])[0]}
        if "gateway_routing" not in tables:
            return
        for name in ("talking", "dangling"):
            key = self.routes[name]
            self.sql("UPDATE gateway_routing SET entry_json = ? WHERE session_key = ?",
                     json.dumps(stored[key]), key)  # fmt: skip
        insert = "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at)"
        gone = str(self.home.parent / "moved" / "sessions")
        entry = stored[self.routes["talking"]]
        for key, days in (("long_ago", 100), ("lately", 10)):
            text = json.dumps(
                {**entry, "session_key": key, "updated_at": _format_time_ago(days).isoformat()}
            )
            self.sql(f"{insert} VALUES (?, ?, ?, 1.0)", gone, key, text)
        own = str((self.home / "sessions").resolve())
        self.sql(f"{insert} VALUES (?, 'broken', '{{\"session_id\": \"left', 1.0)", own)
        self.chosen("routes", "long_ago")

    # -- leftovers ------------------------------------------------------------------------------

    def _links(self) -> None:
        """Add missing parents and cycles."""
        self.add("round_a", 170, "cli_close", begun=171)
        self.add("round_b", 170, "cli_close", parent_session_id="round_a")
        self.sql("UPDATE sessions SET parent_session_id = 'round_b' WHERE id = 'round_a'")
        for name in ("round_a", "round_b"):
            self.chosen("sessions", name)
        self.chosen("links", "round_a")
        self.add("fatherless", 4, "cli_close")
        self.sql("UPDATE sessions SET parent_session_id = 'nobody' WHERE id = 'fatherless'")
        self.chosen("links", "fatherless")

    def _left_over(self) -> None:
        """Add rows of sessions that were deleted with foreign keys off."""
        usage = run(self.db, [["SELECT 1 FROM sqlite_master WHERE name = 'session_model_usage'"]])[
            0
        ]
        for name, days in (("gone", 5), ("gone_lately", 0.3)):
            self.add(name, days, "cli_close", messages=3)
            self.db.update_token_counts(name, 5, 5, model="m", api_call_count=1)
            self.sql("DELETE FROM sessions WHERE id = ?", name)
        self.chosen("rows", "messages/gone")
        self.protected("orphans", "fresh")
        if usage:
            self.chosen("rows", "session_model_usage/gone")
            self.protected("orphans", "fresh")
        if hasattr(self.db, "try_acquire_compression_lock"):
            self.add("lock_died", 30, "cli_close")
            self.db.try_acquire_compression_lock("lock_died", "somebody who died", 300)
            self.sql("UPDATE compression_locks SET expires_at = ? WHERE session_id = 'lock_died'",
                     time.time() - 3 * DAY)  # fmt: skip
            self.chosen("locks", "compression_locks/lock_died")

    def _files(self) -> None:
        """Add files of existing and missing sessions, and unrelated files."""
        mine = ("session_old.json", "old.jsonl", "request_dump_old_20260101_120000.json")
        others = ("notes.json", "session_.json", "sessions.json.broken-20260101_120000")
        for name in (*mine, *others):
            self._file(name, 50)
        for name in (
            f"session_{GONE}.json",
            f"{GONE}.jsonl",
            f"request_dump_{GONE}_20260101_120000.json",
            ".sessions_abc.tmp",
        ):
            self._file(name, 50)
            self.chosen("files", name)
        self._file(f"session_{GONE}0.json", 0.5)
        self.protected("orphans", "fresh")

    def _file(self, name: str, days: float) -> None:
        path = self.home / "sessions" / name
        path.write_text(f"waltz {name}")
        os.utime(path, (time.time() - days * DAY,) * 2)


_ODD = {
    "_note": "by hand",
    "agent:main:x:dm:1": True,
    "agent:main:x:dm:2": {"x": 1},
    "agent:main:x:dm:3": {"session_key": "agent:main:x:dm:3", "session_id": "../../etc/passwd"},
}
"""What is no entry, in a file of them."""

_OF_THIS = ("begun", "days", "reason", "messages", "source")
"""What is no column of a session."""


def _list_columns(where: dict[str, Any]) -> set[str]:
    needs = {"chat_id": "chat_id", "chat_type": "chat_type", "branch_like": "git_branch"}
    return {column for name, column in needs.items() if name in where}


def _format_time_ago(days: float) -> datetime:
    """Return a past time in the form of entries: local, without zone."""
    return datetime.now() - timedelta(days=days)  # noqa: DTZ005

"""Runs the course in the real Hermes Agent, in its own environment."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

import course


class HermesDatabase:
    """The state database of Hermes, by its own names."""

    @staticmethod
    def load(job):  # noqa: ARG004
        """Import Hermes, and return the time of the import."""
        began = time.perf_counter()
        import hermes_state  # noqa: F401, PLC0415 -- the import is timed

        return time.perf_counter() - began

    def __init__(self, job):
        from hermes_state import SessionDB  # noqa: PLC0415

        self.db = SessionDB(Path(job["db"]))

    def about(self):
        """Return the SQLite library and its settings."""
        import sqlite3  # noqa: PLC0415, TID251 -- what Hermes itself runs on

        synchronous = self.db._conn.execute("PRAGMA synchronous").fetchone()[0]
        return f"SQLite {sqlite3.sqlite_version}, synchronous {synchronous}"

    def newest(self, count):
        """Return the ids of the newest conversations."""
        rows = self.db.list_sessions_rich(limit=count, order_by_last_active=True, compact_rows=True)
        return [row["id"] for row in rows]

    def page(self, session, number, size, count):
        """Return a call that reads one page. A negative number is the newest page."""
        offset = count - size if number < 0 else number * size
        return lambda: [
            row["id"] for row in self.db.get_messages(session, limit=size, offset=max(0, offset))
        ]

    def search(self, query, limit):
        """Return the sessions of the best hits."""
        # A question mark is a syntax error to it, which finds nothing; it gets the words alone.
        words = query.rstrip("?")
        return [row["session_id"] for row in self.db.search_messages(words, limit=limit)]

    def any_of(self, question):
        """Return a query for any of the words, which shows how hard the questions are."""
        return " OR ".join(re.findall(r"\w+", question))

    def say(self, session, text):
        """Append one message."""
        self.db.append_message(session, "user", content=text)

    def append(self, texts, writers):
        """Return the seconds of one writer, and of several at once."""
        for number in range(writers):
            self.db.create_session(f"bench-{number}", "cli")
        return self._write(0, texts), course.time_in_threads(self._write, texts, writers)

    def _write(self, number, texts):
        began = time.perf_counter()
        for text in texts:
            self.db.append_message(f"bench-{number}", "user", content=text)
        return time.perf_counter() - began

    def close(self):
        """Close the store. Every update has written both copies."""
        self.db.close()

    @staticmethod
    def routes(job):
        """Return a session store over the home in the environment."""
        return HermesRoutes(job)


class HermesRoutes:
    """The session store of Hermes."""

    def __init__(self, job):
        from gateway.config import GatewayConfig  # noqa: PLC0415
        from gateway.session import SessionStore  # noqa: PLC0415

        self.store = SessionStore(Path(job["db"]).parent / "sessions", GatewayConfig())

    def fill(self, count):
        """Store so many entries in one step."""
        from gateway.session import SessionEntry  # noqa: PLC0415

        self.store._ensure_loaded()
        for number in range(count):
            entry = SessionEntry.from_dict(course.make_route(number))
            self.store._entries[entry.session_key] = entry
        self.store._save()

    def update(self, number):
        """Change one entry, durably."""
        self.store.update_session(course.make_route_key(number), last_prompt_tokens=number)

    def close(self):
        """Close it. Every update has written both copies."""
        self.store._db.close()


def create_database(system, job):
    """Make an empty database."""
    system.load(job)
    system(job).close()
    return {}


def verify_database(system, job):
    """Open a database that was filled, and look into it."""
    system.load(job)
    opened = system(job)
    answer = {"messages": opened.db.message_count(), "found": len(opened.search("gateway", 3))}
    opened.close()
    return answer


def run_fallback_summary(system, job):
    """Summarise as Hermes does without a model, and return the summaries and the median time."""
    from agent.context_compressor import ContextCompressor  # noqa: PLC0415

    summaries, taken = [], []
    for messages in job["conversations"]:
        compressor = ContextCompressor("none", quiet_mode=True, config_context_length=200_000)
        began = time.perf_counter()
        summaries.append(compressor._build_static_fallback_summary(messages))
        taken.append((time.perf_counter() - began) * 1000)
    return {"summaries": summaries, "ms": statistics.median(taken)}


def keep_appending(system, job):
    """Append until the stop file exists, and return the acknowledged and the stored messages."""
    system.load(job)
    opened, taken = system(job).db, []
    opened.create_session(_LIVE_PATTERN, "cli")
    while not Path(job["stop"]).exists():
        began = time.perf_counter()
        opened.append_message(
            _LIVE_PATTERN, "user", content=f"said beside maintenance, {len(taken)}"
        )
        taken.append((time.perf_counter() - began) * 1000)
        time.sleep(_BETWEEN_S)
    there = [row["content"] for row in opened.get_messages(_LIVE_PATTERN)]
    said = {f"said beside maintenance, {number}" for number in range(len(taken))}
    opened.close()
    lost = len(said.difference(there))
    return {"appended": len(taken), "lost": lost, "slowest_ms": max(taken, default=0.0)}


_LIVE_PATTERN = "bench-live"

_BETWEEN_S = 0.05
"""Hermes merges its whole search index at every 1,000th write, some 60 s here: none of ours."""


if __name__ == "__main__":
    extra = {"create": create_database, "verify": verify_database, "fallback": run_fallback_summary}
    course.run_job(HermesDatabase, extra | {"keep_appending": keep_appending})

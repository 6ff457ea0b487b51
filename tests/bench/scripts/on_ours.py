"""Runs the course on this library, with the SQLite that the job names."""

from __future__ import annotations

import json
import time
from pathlib import Path

import course


class OwnDatabase:
    """Our state database."""

    @staticmethod
    def load(job):
        """Import the library, and return the time of the import."""
        began = time.perf_counter()
        from session_core import SessionDB, choose_sqlite  # noqa: F401, PLC0415 -- timed

        choose_sqlite(job["driver"])
        return time.perf_counter() - began

    def __init__(self, job):
        from session_core import SessionDB  # noqa: PLC0415

        self.db = SessionDB(job["db"], read_only=job["do"] not in ("append", "speak"))

    def about(self):
        """Return the SQLite library."""
        from session_core import describe_sqlite  # noqa: PLC0415

        driver = describe_sqlite()
        return f"{driver.name} SQLite {driver.version}"

    def newest(self, count):
        """Return the ids of the newest conversations."""
        return [summary.id for summary in self.db.list_sessions(limit=count).items]

    def page(self, session, number, size, count):  # noqa: ARG002
        """Return a call that reads one page. A negative number is the newest page."""
        where = {"after": self._find_message_before(session, number, size)} if number >= 0 else {}
        return lambda: [
            row["id"] for row in self.db.read_window(session, limit=size, **where).messages
        ]

    def _find_message_before(self, session, number, size):
        rows = self.db.get_messages(session, limit=1, offset=number * size - 1) if number else []
        return rows[0]["id"] if rows else 0

    def search(self, query, limit):
        """Return the sessions of the best hits."""
        return [hit.session_id for hit in self.db.search(query, limit=limit).hits]

    def say(self, session, text):
        """Append one message."""
        self.db.append_message(session, "user", text)

    def append(self, texts, writers):
        """Return the seconds of one writer, and of several at once."""
        for number in range(writers):
            self.db.create_session(f"bench-{number}", "cli")
        return self._write(0, texts), course.time_in_threads(self._write, texts, writers)

    def _write(self, number, texts):
        began = time.perf_counter()
        for text in texts:
            self.db.append_message(f"bench-{number}", "user", text)
        return time.perf_counter() - began

    def close(self):
        """Close it."""
        self.db.close()

    @staticmethod
    def routes(job):
        """Return a session store with its own database."""
        return OwnRoutes(job)


class OwnRoutes:
    """Our session store."""

    def __init__(self, job):
        from session_core import SessionDB, SessionStore  # noqa: PLC0415

        self.db = SessionDB(job["db"])
        self.store = SessionStore(Path(job["db"]).parent / "sessions", db=self.db)

    def fill(self, count):
        """Store so many entries in one step."""
        from session_core import SessionEntry  # noqa: PLC0415

        scope = str((Path(self.db.path).parent / "sessions").resolve())
        with self.db.transaction():
            for number in range(count):
                entry = SessionEntry.from_dict(course.make_route(number))
                text = json.dumps(entry.to_dict())
                self.db.routes.save_entry(entry.session_key, text, scope=scope, expect=None)

    def update(self, number):
        """Change one entry, durably."""
        self.store.update_session(course.make_route_key(number), last_prompt_tokens=number)

    def close(self):
        """Bring both copies up to date."""
        self.store.close()
        self.db.close()


if __name__ == "__main__":
    course.run_job(OwnDatabase)

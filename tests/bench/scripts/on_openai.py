"""Runs the appends of the course on the SQLiteSession of openai-agents, in its own environment."""

from __future__ import annotations

import asyncio
import sqlite3  # noqa: TID251 -- what the peer itself runs on
import time

import course


class OpenAISessions:
    """Sessions of openai-agents that share one file, by its own names."""

    @staticmethod
    def load(job):  # noqa: ARG004
        """Import the SDK, and return the time of the import."""
        began = time.perf_counter()
        import agents  # noqa: F401, PLC0415 -- the import is timed

        return time.perf_counter() - began

    def __init__(self, job):
        self.path = job["db"]

    def about(self):
        """Return the SQLite library and its settings."""
        session = self._open_session("about")
        synchronous = session._get_connection().execute("PRAGMA synchronous").fetchone()[0]
        session.close()
        return f"SQLite {sqlite3.sqlite_version}, synchronous {synchronous}"

    def append(self, texts, writers):
        """Return the seconds of one writer, and of several at once."""
        return asyncio.run(self._time_single_writer(texts)), asyncio.run(
            self._time_many_writers(texts, writers)
        )

    async def _time_single_writer(self, texts):
        session = self._open_session("bench-0")
        began = time.perf_counter()
        await self._write(session, texts)
        took = time.perf_counter() - began
        session.close()
        return took

    async def _time_many_writers(self, texts, writers):
        sessions = [self._open_session(f"bench-{number}") for number in range(writers)]
        began = time.perf_counter()
        await asyncio.gather(
            *(self._write(session, texts[at::writers]) for at, session in enumerate(sessions))
        )
        took = time.perf_counter() - began
        for session in sessions:
            session.close()
        return took

    async def _write(self, session, texts):
        for text in texts:
            await session.add_items([{"role": "user", "content": text}])

    def _open_session(self, name):
        from agents import SQLiteSession  # noqa: PLC0415

        return SQLiteSession(name, self.path)

    def close(self):
        """Leave nothing open: every session was closed where it was used."""


if __name__ == "__main__":
    course.run_job(OpenAISessions)

"""What adapters share: the home, worker threads, messages of a text, and removal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

from session_core._typing import Self
from session_core.aio import get_worker_threads
from session_core.errors import NotFound
from session_core.opened_home import AsyncOpenedHome, OpenedHome, open_home
from session_core.types import MessageRow

T = TypeVar("T")

HomeArgument = str | os.PathLike[str] | OpenedHome | AsyncOpenedHome
"""A folder, a file that ends in `.db`, or what `open_home` or `aopen_home` returned."""


class HomeAdapter:
    """A home with the calls of an SDK; it closes the home only if it has opened it."""

    client = "library"
    """The name in the audit log, and the source of new sessions."""

    def __init__(self, home: HomeArgument) -> None:
        self._owns_home = not isinstance(home, (OpenedHome, AsyncOpenedHome))
        if isinstance(home, AsyncOpenedHome):
            home = home.home
        self.home = home if isinstance(home, OpenedHome) else open_home(home)

    def close(self) -> None:
        """Close the home if this adapter has opened it."""
        if self._owns_home:
            self.home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def run_in_thread(self, step: Callable[[], T]) -> T:
        """Run a function in a worker thread of the database."""
        return await get_worker_threads(self.home.db, "changes").run(step)

    def delete_session(self, session_id: str) -> None:
        """Move a session to the trash; one that does not exist is left alone."""
        if self.home.db.get_session(session_id) is None:
            return
        try:
            self.home.maintenance.delete_session(session_id, client=self.client)
        except NotFound:
            if self.home.db.get_session(session_id) is not None:
                raise


def decode_payload(row: MessageRow) -> Any:
    """Return the payload of a row; None if it has none, or one that is no JSON."""
    payload = row.get("payload_json")
    if payload is None:
        return None
    try:
        return json.loads(payload)
    except ValueError:
        return None


def join_texts(value: object) -> str:
    """Return all texts of a content: a string, or parts with a text or nested content."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return join_texts(value.get("text") or value.get("refusal") or value.get("content"))
    if isinstance(value, list):
        return "\n".join(filter(None, map(join_texts, value)))
    return ""

"""Code that adapters share: the home, worker threads, payloads, texts, and removal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import quote

from session_core._typing import Self
from session_core.aio import get_worker_threads
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.opened_home import AsyncOpenedHome, OpenedHome, open_home
from session_core.types import Revision, SessionRow

T = TypeVar("T")

_MAX_ID_CHARS = 500
"""The tools show ids up to this length."""

HomeArgument = str | os.PathLike[str] | OpenedHome | AsyncOpenedHome
"""A path or an address that `open_home` accepts, or what `open_home` or `aopen_home` returned."""


class HomeAdapter:
    """A home with the methods that an SDK calls.

    It closes the home only if it has opened it.
    """

    client = "library"
    """The name in the audit log, and the source of new sessions."""

    def __init__(self, home: HomeArgument) -> None:
        _check_home(home)
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

    def find_own_session(self, session_id: str) -> SessionRow | None:
        """Return a session, or None.

        Raises:
            Conflict: the session has another source, so that another program owns it.
        """
        row = self.home.db.get_session(session_id)
        if row is not None and row["source"] != self.client:
            raise Conflict(
                f"session {session_id!r} belongs to {row['source']}, not to {self.client}; "
                "use another id"
            )
        return row

    def delete_session(self, session_id: str, *, expect: Revision | None = None) -> None:
        """Move a session to the trash, if it exists.

        Raises:
            Conflict: it is protected, or belongs to another program.
            Changed: it is not at the expected revision.
        """
        if self.find_own_session(session_id) is None:
            return
        try:
            self.home.maintenance.delete_session(session_id, client=self.client, expect=expect)
        except NotFound:
            if self.home.db.get_session(session_id) is not None:
                raise


def _check_home(home: object) -> None:
    """Refuse a value that is not a home.

    Raises:
        InvalidInput: it is a part of a home, a coroutine, or another value.
    """
    if isinstance(home, (str, os.PathLike, OpenedHome, AsyncOpenedHome)):
        return
    if isinstance(home, Coroutine):
        home.close()  # otherwise Python warns that it was never awaited
        raise InvalidInput("home is a coroutine; await it first: home = await aopen_home(path)")
    raise InvalidInput(
        "home must be a path, an address or what open_home or aopen_home returned (the opened "
        f"home, not its db), got {type(home).__name__}"
    )


def check_session_id(session_id: object) -> str:
    """Return the id of a session.

    Raises:
        InvalidInput: it is not text, is empty or is too long for the tools.
    """
    if not isinstance(session_id, str) or not session_id:
        raise InvalidInput(f"session_id must be non-empty text, got {session_id!r:.40}")
    if len(session_id) > _MAX_ID_CHARS:
        raise InvalidInput(
            f"the id of a session in the home must have at most {_MAX_ID_CHARS} characters, "
            f"got {len(session_id):,}: {session_id!r:.40}…; use a shorter id"
        )
    return session_id


def quote_part(text: object) -> str:
    """Return a part of a session id, with separators of parts and folders quoted.

    Raises:
        InvalidInput: it is not text, or empty.
    """
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"names of sessions must be non-empty text, got {text!r:.40}")
    return quote(text.encode("utf-8", "surrogatepass"), safe=" ").replace("..", "%2E%2E")


def decode_payloads(payloads: Sequence[str]) -> list[Any]:
    """Return the values of payloads, without payloads that are not JSON."""
    try:
        # Parsed together, which takes a third of the time.
        values = json.loads(f"[{','.join(payloads)}]")
        if len(values) == len(payloads):
            return cast("list[Any]", values)
    except (ValueError, RecursionError):
        pass
    return [value for payload in payloads for value in _decode_payload(payload)]


def _decode_payload(payload: str) -> list[Any]:
    """Return the value of a payload in a list, or an empty list if it is not JSON."""
    try:
        return [json.loads(payload)]
    except (ValueError, RecursionError):
        return []


def join_texts(value: object) -> str:
    """Return all texts of a content: a string, or parts with a text or nested content."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return join_texts(value.get("text") or value.get("refusal") or value.get("content"))
    if isinstance(value, list):
        return "\n".join(filter(None, map(join_texts, value)))
    return ""

"""Titles: one conversation each, numbered along a lineage, moved from an ancestor."""

from __future__ import annotations

from typing import cast

from session_core.errors import InvalidInput, TitleTaken
from session_core.models import SessionRow
from session_core.state import arguments, titles
from session_core.state.sqlite import blocks, lineage
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.store import Store

SQL = blocks.load("titles")


class Titles(Store):
    """Titles of sessions."""

    sanitize_title = staticmethod(titles.clean)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set or clear a title; it moves from an ancestor of the same conversation.

        Raises:
            TitleTaken: another conversation has it.
            InvalidInput: it is too long.
        """
        cleaned = titles.clean(title)

        def step(handle: Handle) -> bool:
            if handle.row(SQL["get_title"], (session_id,)) is None:
                return False
            if cleaned is not None:
                _make_free(handle, session_id, cleaned)
            return handle.run(SQL["set_title"], {"id": session_id, "title": cleaned}) > 0

        return self._write(step)

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool:
        """Set a title where there is none; return whether it was set."""
        cleaned = titles.clean(title)
        if cleaned is None:
            return False

        def step(handle: Handle) -> bool:
            if handle.row(SQL["get_title"], (session_id,)) != {"title": None}:
                return False
            _make_free(handle, session_id, cleaned)
            return handle.run(SQL["set_title"], {"id": session_id, "title": cleaned}) > 0

        return self._write(step)

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session."""
        return self._read(
            lambda handle: cast("str | None", handle.value(SQL["get_title"], (session_id,)))
        )

    def get_session_by_title(self, title: str) -> SessionRow | None:
        """Return the session with exactly this title."""
        return self._read(
            lambda handle: cast("SessionRow | None", handle.row(SQL["get_by_title"], (title,)))
        )

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the newest session of the lineage of this title, else the one that has it."""
        arguments.check_text("title", title, needed=True)

        def look(handle: Handle) -> str | None:
            found = _beginning(handle, title)
            numbered = (row for row in found if titles.continues(row[0], title))
            exact = (row for row in found if row[0] == title)
            _, session_id = next(numbered, None) or next(exact, (None, None))
            return session_id

        return self._read(look)

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the next free title: "Trip", then "Trip #2".

        Raises:
            InvalidInput: there is nothing left of the title, or it is too long.
        """
        base = titles.clean(base_title)
        if base is None:
            raise InvalidInput("a lineage needs a title to number")

        def look(handle: Handle) -> str:
            found = _beginning(handle, titles.stem(base))
            return titles.following(base, [row[0] for row in found])

        return self._read(look)


def _beginning(handle: Handle, base: str) -> list[tuple[str, str]]:
    """Return titles that may be of the lineage of `base`, with their sessions, newest first."""
    return handle.values(SQL["list_titles_beginning"], {"begin": titles.beginning(base)})


def _make_free(handle: Handle, session_id: str, title: str) -> None:
    """Take the title from an ancestor of the conversation, or say who has it."""
    holder = handle.value(SQL["get_holder"], {"title": title, "id": session_id})
    if holder is None:
        return
    if holder not in lineage.ancestors(handle, session_id):
        raise TitleTaken(title, holder)
    handle.run(SQL["set_title"], {"id": holder, "title": None})

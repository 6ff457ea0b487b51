"""Routes: which chat leads to which session."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from session_core.models import Page, SessionRow


class Routes(Protocol):
    """Which chat leads to which session."""

    @property
    def has_routing(self) -> bool:
        """Whether this database keeps routes; older Hermes homes have them in a file alone."""

    def get_gateway_routing_entry(self, session_key: str, *, scope: str = "") -> str | None:
        """Return the entry of a key."""

    def load_gateway_routing_entries(self, *, scope: str = "") -> dict[str, str]:
        """Return all entries of a scope by their keys."""

    def gateway_routing_scopes(self) -> dict[str, int]:
        """Return how many entries each scope has, the one that was written last first."""

    def dump_gateway_routing_entries(
        self,
        *,
        scope: str = "",
        without: Collection[str] = (),
        limit: int = 1000,
        cursor: str | None = None,
    ) -> Page[str]:
        """Return entries of a scope as members of a JSON object, broken ones left out."""

    def save_gateway_routing_entry(
        self, session_key: str, entry_json: str, *, scope: str = "", expect: str | None
    ) -> None:
        """Store one entry, in one row; `expect` is what was read before, None for a new one.

        Raises:
            Conflict: somebody else has changed it since.
        """

    def delete_gateway_routing_entries(
        self, entries: Mapping[str, str], *, scope: str = ""
    ) -> list[str]:
        """Delete entries that are still as they were read; return the keys of those."""

    def find_latest_session_for_peer(
        self,
        *,
        source: str,
        session_key: str | None = None,
        user_id: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        ended_as: Collection[str] | None = None,
        older_than: str | None = None,
    ) -> SessionRow | None:
        """Return the newest session of a chat: by its key, else by who and where exactly.

        One without messages is none, nor is one that the chat has left for another. With
        `ended_as` it lives or has ended so, with `older_than` it began before that session.
        """

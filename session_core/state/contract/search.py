"""Full-text search over all messages of a home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from session_core.models import Mode, Per, SearchResult


class Search(Protocol):
    """Full-text search."""

    def search(
        self,
        query: str,
        *,
        mode: Mode = "words",
        per: Per = "conversation",
        session: str | None = None,
        source: Sequence[str] | None = None,
        project: str | None = None,
        roles: Sequence[str] | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> SearchResult:
        """Find messages by words, phrases, prefixes, AND, OR, NOT, or by a substring."""

"""Expected search results of Hermes and of our library, from the messages of a home."""

from __future__ import annotations

import re
from typing import Any

from session_core.state import content
from session_core.state.sqlite.session_db import SessionDB
from session_core.types import SearchResult
from tests.interop.hermes import Hermes


class Rows:
    """All messages of a home by id, which decide what a search should find."""

    def __init__(self, theirs: Hermes) -> None:
        compacted = any(row[1] == "compacted" for row in theirs.sql("PRAGMA table_info(messages)"))
        flag = "compacted" if compacted else "0"
        columns = f"id, session_id, role, content, tool_name, tool_calls, timestamp, active, {flag}"
        self.by_id = {row[0]: row for row in theirs.sql(f"SELECT {columns} FROM messages")}  # noqa: S608

    def shown(self, message_id: int) -> bool:
        """Return True if a message was not rewound."""
        return bool(self.by_id[message_id][7] or self.by_id[message_id][8])

    def said(self, ids: Any) -> set[tuple[Any, ...]]:
        """Return texts with place and time. A copy made by a compaction counts as its original."""
        return {(row[1], row[2], row[6], row[3]) for row in map(self.by_id.get, ids)}

    def with_all(self, *words: str) -> list[int]:
        """Return the messages that contain all these words."""
        return [
            one
            for one, row in self.by_id.items()
            if self.shown(one) and all(word in self.text(row) for word in words)
        ]

    def is_prose(self, row: Any) -> bool:
        """Return True for text with words, not JSON."""
        text = row[3] if isinstance(row[3], str) else ""
        return bool(re.search(r"\b[a-z]{4,20}\b", text)) and text.isprintable() and not row[5]

    def text(self, row: Any) -> str:
        """Return the text of a row and of its tools."""
        return " ".join(
            (content.extract_plain_text(content.decode_content(row[3])), row[4] or "", row[5] or "")
        )


def their_ids(theirs: Hermes, query: str, **options: Any) -> list[int]:
    return [row["id"] for row in theirs.call("search_messages", query, limit=1000, **options)]


def our_pages(ours: SessionDB, query: str, **options: Any) -> list[SearchResult]:
    """Return all pages of our results, with archived conversations as in Hermes."""
    options = {"status": "all", "per": "message", "limit": 5, **options}
    pages = [ours.search(query, **options)]
    while pages[-1].next_cursor:
        cursor = pages[-1].next_cursor
        pages.append(ours.search(query, cursor=cursor, **options))
    return pages


def our_ids(ours: SessionDB, query: str, **options: Any) -> list[int]:
    pages = our_pages(ours, query, **options)
    ids = [hit.message_id for page in pages for hit in page.hits]
    assert len(ids) == len(set(ids))
    return ids

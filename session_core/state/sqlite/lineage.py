"""What sessions are to each other: continuation, branch, delegate; root, tip and chain.

Only a continuation is the same conversation: its parent ended by compression, and neither a marker
nor its source says otherwise. Every walk remembers where it was, so a cycle ends it and a broken
link is an end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from session_core.models import LinkKind, SessionRow
from session_core.state.content import decode_json
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.store import Store

SQL = blocks.load("lineage")

Link = Mapping[str, Any]


class Lineage(Store):
    """What sessions are to each other."""

    def link_kind(self, session_id: str) -> LinkKind | None:
        """Return what the session is to its parent, None where it has none."""
        return self._read(lambda handle: kind_of(handle, session_id))

    def get_compression_tip(self, session_id: str) -> str:
        """Return the newest continuation of the conversation, itself where there is none."""
        return self._read(lambda handle: tip(handle, session_id))

    def get_conversation_root(self, session_id: str) -> str:
        """Return the session in which the conversation began."""
        return self._read(lambda handle: conversation_root(handle, session_id))

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """Return the whole conversation from root to tip."""
        return self._read(lambda handle: chain(handle, session_id))

    def children(self, session_id: str) -> list[SessionRow]:
        """Return the sessions whose parent this is, oldest first."""
        return self._read(
            lambda handle: cast(
                "list[SessionRow]", handle.rows(SQL["list_children"], (session_id,))
            )
        )


def kind(link: Link) -> LinkKind | None:
    """Return what a session is to its parent."""
    if link["parent_session_id"] is None:
        return None
    config = decode_json(link["model_config"])
    marks = config if isinstance(config, dict) else {}
    if marks.get("_delegate_from"):
        return "delegate"
    if marks.get("_branched_from"):
        return "branch"
    if link["source"] == "tool":
        return "other"
    if link["parent_reason"] == "compression":
        return "continuation"
    ended_at = link["parent_ended_at"]
    if link["parent_reason"] == "branched" and ended_at and ended_at <= link["started_at"]:
        return "branch"
    return "other"


def kind_of(handle: Handle, session_id: str) -> LinkKind | None:
    """Return what the session is to its parent, None where it has none."""
    link = _link(handle, session_id)
    return None if link is None else kind(link)


def ancestors(handle: Handle, session_id: str) -> list[str]:
    """Return the earlier sessions of the conversation, the nearest first."""
    found: list[str] = []
    parent = _continues(handle, session_id)
    seen = {session_id}
    while parent is not None and parent not in seen:
        seen.add(parent)
        found.append(parent)
        parent = _continues(handle, parent)
    return found


def conversation_root(handle: Handle, session_id: str) -> str:
    """Return the session in which the conversation began."""
    return ([session_id, *ancestors(handle, session_id)])[-1]


def known_root(handle: Handle, session_id: str) -> str:
    """Return the root as `conversation_root` does, but walk a chain once for all its sessions.

    For those who only read: what this connection itself changes in between goes unnoticed.
    """
    roots: dict[str, str] = handle.seen.setdefault("roots", {})
    walked = {session_id: None}
    here = session_id
    while here not in roots:
        parent = _continues(handle, here)
        if parent in walked:
            return here  # in a cycle each session has a root of its own
        if parent is None:
            roots[here] = here
        else:
            walked[parent] = None
            here = parent
    roots.update(dict.fromkeys(walked, roots[here]))
    return roots[here]


def known_tip(handle: Handle, session_id: str) -> str:
    """Return the tip as `tip` does, walked once for all of a chain, for those who only read."""
    tips: dict[str, str] = handle.seen.setdefault("tips", {})
    walked = {session_id: None}
    here = session_id
    while here not in tips:
        following = continuations(handle, here)
        if not following:
            tips[here] = here
            break
        here = _preferred(handle, following)
        if here in walked:
            return tip(handle, session_id)  # in a cycle each session has a tip of its own
        walked[here] = None
    tips.update(dict.fromkeys(walked, tips[here]))
    return tips[here]


def descent(handle: Handle, session_id: str) -> list[str]:
    """Return the continuations of a session, up to the tip."""
    found: list[str] = []
    seen = {session_id}
    here = session_id
    while True:
        following = [link for link in continuations(handle, here) if link["id"] not in seen]
        if not following:
            return found
        here = _preferred(handle, following)
        seen.add(here)
        found.append(here)


def tip(handle: Handle, session_id: str) -> str:
    """Return the newest continuation of a session, itself where there is none."""
    return ([session_id, *descent(handle, session_id)])[-1]


def chain(handle: Handle, session_id: str) -> list[str]:
    """Return the conversation from its root through this session to the tip."""
    before = ancestors(handle, session_id)
    after = [member for member in descent(handle, session_id) if member not in before]
    return [*reversed(before), session_id, *after]


def family(handle: Handle, session_id: str) -> list[str]:
    """Return all sessions of the conversation, with continuations that were not gone on with."""
    root = conversation_root(handle, session_id)
    found, seen = [root], {root}
    for member in found:
        for link in continuations(handle, member):
            if link["id"] not in seen:
                seen.add(link["id"])
                found.append(link["id"])
    return found


def continuations(handle: Handle, session_id: str) -> list[Link]:
    """Return the links of the sessions that continue this one."""
    links = handle.rows(SQL["list_child_links"], (session_id,))
    return [link for link in links if kind(link) == "continuation"]


def _link(handle: Handle, session_id: str) -> Link | None:
    return handle.row(SQL["get_link"], (session_id,))


def _continues(handle: Handle, session_id: str) -> str | None:
    """Return the session that this one continues."""
    link = _link(handle, session_id)
    return None if link is None or kind(link) != "continuation" else cast("str", link["parent"])


def _preferred(handle: Handle, links: list[Link]) -> str:
    """Of several continuations, the one that was gone on with: compressed again, live, other."""
    if len(links) == 1:
        return cast("str", links[0]["id"])

    def rank(link: Link) -> tuple[int, float, float, str]:
        state = 2 if link["end_reason"] == "compression" else int(link["ended_at"] is None)
        last = handle.value(SQL["get_last_time"], (link["id"],))
        started_at = link["started_at"]
        return state, started_at if last is None else last, started_at, link["id"]

    return cast("str", max(links, key=rank)["id"])

"""The resources of every server, in the order of its list. Conversations come before them."""

from __future__ import annotations

FIXED_RESOURCES = [
    *("sessions://stats", "sessions://routes"),
    *("skill://recall/SKILL.md", "skill://recall/references/queries.md", "skill://tidy/SKILL.md"),
    "ui://mcp-sessions/sessions_stats.html",
    "ui://mcp-sessions/sessions_finalize.html",
    "ui://mcp-sessions/sessions_prune.html",
]

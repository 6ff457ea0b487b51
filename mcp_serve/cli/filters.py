"""Which sessions a verb is about: every filter that the library has."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from mcp_serve import arguments as given_as
from mcp_serve.tools.sessions import ListArguments
from session_core import SessionFilter

_PATTERNS = {
    "title": "title_like",
    "cwd": "cwd_prefix",
    "model": "model_like",
    "provider": "provider",
    "user": "user_id",
    "chat_id": "chat_id",
    "chat_type": "chat_type",
    "branch": "branch_like",
}
_RANGES = ("tokens", "cost", "tool_calls")


class Filtered(ListArguments):
    """The arguments of `sessions_list`, and the filters that a model is not troubled with."""

    title: given_as.Text | None = None
    cwd: given_as.Project | None = None
    model: given_as.Text | None = None
    provider: given_as.Text | None = None
    user: given_as.Text | None = None
    chat_id: given_as.Text | None = None
    chat_type: given_as.Text | None = None
    branch: given_as.Text | None = None
    min_tokens: given_as.Count | None = None
    max_tokens: given_as.Count | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    min_tool_calls: given_as.Count | None = None
    max_tool_calls: given_as.Count | None = None

    def where(self, now: float) -> SessionFilter:
        """Return which conversations are asked for."""
        patterns = {field: getattr(self, name) for name, field in _PATTERNS.items()}
        bounds = [f"{side}_{what}" for what in _RANGES for side in ("min", "max")]
        ranges = {name: getattr(self, name) for name in bounds}
        return replace(super().where(now), **patterns, **ranges)


def add(parser: argparse.ArgumentParser) -> None:
    """Add them to a verb."""
    group = parser.add_argument_group("which sessions")
    group.add_argument("--project", metavar="FOLDER", help="worked on in it, or below it")
    group.add_argument("--source", help="such as cli or telegram")
    group.add_argument("--status", choices=("open", "ended", "archived", "all"))
    group.add_argument(
        *("--since", "--newer-than", "--after"),
        metavar="TIME",
        help="active since: 7d, a date",
    )
    group.add_argument(
        *("--until", "--older-than", "--before"), metavar="TIME", help="not active since then"
    )
    group.add_argument("--end-reason", metavar="REASON")
    for name in ("--title", "--model", "--branch"):
        group.add_argument(name, metavar="PART", help="a part of it")
    group.add_argument("--cwd", metavar="FOLDER", help="a working folder that begins so")
    for name in ("--provider", "--user", "--chat-id", "--chat-type"):
        group.add_argument(name)
    for name, kind in (("messages", int), ("tokens", int), ("cost", float), ("tool-calls", int)):
        group.add_argument(f"--min-{name}", type=kind, metavar="N")
        group.add_argument(f"--max-{name}", type=kind, metavar="N")


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Return those that were given."""
    named = {name: getattr(options, name, None) for name in Filtered.model_fields}
    for name in ("since", "until"):
        if (named[name] or "").isdigit():
            named[name] = f"{named[name]}d"
    return {name: value for name, value in named.items() if value is not None}

"""Options that select sessions: every filter of the library."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

from mcp_serve import arguments
from mcp_serve.arguments import parse_time
from mcp_serve.cli.argument_parser import (
    make_integer_parser,
    parse_amount,
    parse_before_option,
    parse_project,
    parse_text,
    parse_time_option,
)
from mcp_serve.tools.list import ListArguments
from mcp_serve.tools.prune import PruneArguments
from session_core import SessionFilter

_PATTERN_FIELDS = {
    "title": "title_like",
    "cwd": "cwd_prefix",
    "model": "model_like",
    "provider": "provider",
    "user": "user_id",
    "chat_id": "chat_id",
    "chat_type": "chat_type",
    "branch": "branch_like",
}
_RANGE_FIELDS = ("tokens", "cost", "tool_calls")


_OTHER_ARGUMENTS = ("store", "plan", "cursor")
"""Arguments of the tools that are not filters."""

_DAY_S = 86_400.0


class _ExtraFilters(arguments.StoreArguments):
    """Filters of the command that the tools do not offer to a model."""

    source: arguments.Sources | None = None
    exclude_source: arguments.Sources | None = None
    titled: bool | None = None
    title: arguments.Text | None = None
    cwd: arguments.Project | None = None
    model: arguments.Text | None = None
    provider: arguments.Text | None = None
    user: arguments.Text | None = None
    chat_id: arguments.Text | None = None
    chat_type: arguments.Text | None = None
    branch: arguments.Text | None = None
    min_tokens: arguments.Count | None = None
    max_tokens: arguments.Count | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    min_tool_calls: arguments.Count | None = None
    max_tool_calls: arguments.Count | None = None

    def add_extra_filters(self, where: SessionFilter) -> SessionFilter:
        """Return a copy of a filter with these conditions added."""
        patterns = {field: getattr(self, name) for name, field in _PATTERN_FIELDS.items()}
        bounds = [f"{side}_{what}" for what in _RANGE_FIELDS for side in ("min", "max")]
        ranges = {name: getattr(self, name) for name in bounds}
        excluded = arguments.to_tuple(self.exclude_source)
        return replace(where, exclude_source=excluded, titled=self.titled, **patterns, **ranges)


class ListFilterArguments(_ExtraFilters, ListArguments):  # type: ignore[misc]  # several sources
    """The arguments of `sessions_list` plus the extra filters."""

    def build_filter(self, now: float) -> SessionFilter:
        """Return the filter of conversations."""
        return self.add_extra_filters(super().build_filter(now))


class PruneFilterArguments(_ExtraFilters, PruneArguments):  # type: ignore[misc]  # as above
    """The arguments of `sessions_prune` plus the extra filters.

    `until` becomes an age in days.
    """

    status: arguments.Status | None = None
    since: arguments.Since | None = None

    def build_filter(self, now: float) -> SessionFilter:
        """Return the filter of sessions."""
        active_after = parse_time("since", self.since, now)
        where = replace(super().build_filter(now), status=self.status, active_after=active_after)
        return self.add_extra_filters(where)


def add_filter_options(
    parser: argparse.ArgumentParser, before: str = "last active before: 30d, a date"
) -> None:
    """Add the filters to a verb.

    `before` is the help of `--older-than`.
    """
    group = parser.add_argument_group("which sessions")
    group.add_argument(
        "--project",
        type=parse_project,
        metavar="FOLDER",
        help="working folder is this one or below it; also the last part of its path",
    )
    group.add_argument(
        "-s", "--source", type=parse_text, action="append", help="such as cli; repeatable"
    )
    group.add_argument(
        "--exclude-source", type=parse_text, action="append", metavar="SOURCE", help="not this one"
    )
    group.add_argument(
        "--titled", action=argparse.BooleanOptionalAction, help="with a title, or without one"
    )
    group.add_argument(
        "--status", choices=("open", "ended", "archived", "all"), help="state of the session"
    )
    group.add_argument(
        *("--since", "--newer-than", "--after"),
        type=parse_time_option,
        metavar="TIME",
        help="active at or after: 7d, yesterday, a date",
    )
    group.add_argument(
        "--until",
        type=parse_time_option,
        metavar="TIME",
        help="last active at or before; includes the whole of a day",
    )
    group.add_argument(
        *("--older-than", "--before"),
        type=parse_before_option,
        metavar="TIME",
        dest="until",
        help=before,
    )
    group.add_argument("--end-reason", type=parse_text, metavar="REASON", help="such as cli_close")
    for name in ("--title", "--model", "--branch"):
        group.add_argument(name, type=parse_text, metavar="TEXT", help="contains this text")
    group.add_argument(
        "--cwd", type=parse_text, metavar="FOLDER", help="working folder begins with this path"
    )
    for name in ("--provider", "--user", "--chat-id", "--chat-type"):
        group.add_argument(name, type=parse_text, help="equals this value")
    for name, kind in (
        ("messages", make_integer_parser()),
        ("tokens", make_integer_parser()),
        ("cost", parse_amount),
        ("tool-calls", make_integer_parser()),
    ):
        group.add_argument(f"--min-{name}", type=kind, metavar="N", help="at least N")
        group.add_argument(f"--max-{name}", type=kind, metavar="N", help="at most N")


def read_given_options(
    options: argparse.Namespace, of: type[_ExtraFilters] = ListFilterArguments
) -> dict[str, Any]:
    """Return the arguments of a tool that were given as options."""
    values = {
        name: getattr(options, name, None)
        for name in of.model_fields
        if name not in _OTHER_ARGUMENTS
    }
    return {name: value for name, value in values.items() if value is not None}


def parse_age_days(text: str | None) -> float | None:
    """Return the age of a time in days, 0 for a time in the future."""
    now = time.time()
    at = parse_time("older-than", text, now, is_end=True)
    return None if at is None else max((now - at) / _DAY_S, 0.0)

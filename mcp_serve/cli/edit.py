"""`mcp-sessions edit`: change the title; archive, pin or reopen a session."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from mcp_serve import locate, plans, render, resolve
from mcp_serve.cli import plan_command
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.terminal import Terminal
from mcp_serve.cli.tool_calls import Answer, ToolCaller
from mcp_serve.homes import ServedHome
from mcp_serve.tools import edit
from session_core import InvalidInput
from session_core.maintenance import PlanPreview

EXAMPLES = """\
examples:
  mcp-sessions edit 20261118_090909_ab12cd --title "The ledger"
  mcp-sessions edit 20261118_090909_ab12cd --pin --unarchive   one undo
  mcp-sessions edit 20261118_090909_ab12cd --title Ledger --yes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("session", metavar="ID", help="full id or session key")
    parser.add_argument("--title", help="new title; an empty one removes it")
    for name, word, what in (
        ("archived", "archive", "hide the whole conversation from the list"),
        ("pinned", "pin", "protect the whole conversation from pruning"),
    ):
        both = parser.add_mutually_exclusive_group()
        both.add_argument(f"--{word}", dest=name, action="store_true", default=None, help=what)
        both.add_argument(
            f"--un{word}", dest=name, action="store_false", default=None, help=f"undo --{word}"
        )
    parser.add_argument("--reopen", action="store_true", help="clear the end of the session")
    plan_command.add_plan_arguments(parser, "show the change and exit", handles=False)
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Show the change, ask and apply it."""
    values = {name: getattr(options, name) for name in ("title", "archived", "pinned")}
    if not options.reopen and set(values.values()) == {None}:
        raise InvalidInput("nothing to edit; give --title, --archive, --pin or --reopen")
    values["reopen"] = options.reopen
    change = plan_command.ChangeRequest(
        edit.SPEC,
        "edit",
        {"session": options.session, **values},
        done=_show_result,
        nothing="The session already has these values.",
        look=partial(_preview_edit, options.session, values),
        typed=(options.session, *_list_given_options(options)),
    )
    return plan_command.run_change(options, change)


def _list_given_options(options: argparse.Namespace) -> Iterator[str]:
    """Yield the options that were given."""
    if options.title is not None:
        yield f"--title={options.title}"
    for value, yes, no in (
        (options.archived, "--archive", "--unarchive"),
        (options.pinned, "--pin", "--unpin"),
    ):
        if value is not None:
            yield yes if value else no
    if options.reopen:
        yield "--reopen"


def _preview_edit(session: str, values: Answer, tools: ToolCaller) -> Answer:
    """Return the changes in the form of a plan."""
    tools.validate_arguments(edit.SPEC, {"session": session, **values})
    locate.locate_store(tools.served, edit.SPEC, {"session": session})  # refuses a transcript
    home = tools.home
    exact = resolve.find_exact_session(home, session)
    altered: dict[str, dict[str, tuple[Any, Any]]] = {}
    for change in home.maintenance.preview_edit(exact, **values):
        altered.setdefault(change.session_id, {})[change.what] = change.before, change.after
    count = len(altered)
    planned = PlanPreview("planned" if count else "nothing", None, None, count, ())
    shown = render.render_session(home, home.db.summarize_session(exact), home.list_own_pins())
    items = [
        {
            "id": render.render_id(name),
            "title": shown["title"],
            "why": "; ".join(_describe_changes(home, columns)),
        }
        for name, columns in altered.items()
    ]
    return plans.render_preview(home, planned) | {"items": items, "session": shown, "batch": None}


def _describe_changes(home: ServedHome, columns: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield each column with its value before and after."""
    if "title" in columns:
        was, becomes = (render.render_line(home, title) or "none" for title in columns["title"])
        yield f"title: {was} -> {becomes}"
    for name in ("archived", "pinned"):
        if name in columns:
            was, becomes = ("yes" if value else "no" for value in columns[name])
            yield f"{name}: {was} -> {becomes}"
    if columns.keys() & {"ended_at", "end_reason"}:
        reason = render.render_line(home, columns.get("end_reason", (None,))[0])
        yield f"status: ended{f' ({reason})' if reason else ''} -> open"


def _show_result(out: Terminal, kind: str, found: Answer) -> None:
    del kind
    session = found["session"]
    pinned = " · pinned" if session["pinned"] else ""
    out.write_line(session["title"] or session["preview"] or "(nothing in it)", "bold")
    out.write_line(f"{session['id']} · {session['source']} · {session['status']}{pinned}", "dim")

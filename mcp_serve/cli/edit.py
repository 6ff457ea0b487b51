"""`mcp-sessions edit`: change the title of a session, or archive, pin or reopen sessions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mcp_serve import plan_answers, render
from mcp_serve.cli import plan_command
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.terminal import Terminal
from mcp_serve.cli.tool_calls import Answer, ToolCaller
from mcp_serve.stores import locate
from mcp_serve.stores.served_store import EditValues, ServedStore
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
    parser.add_argument(
        "session",
        nargs="+",
        metavar="ID",
        help="id, prefix of an id, session key or title; several have one undo",
    )
    parser.add_argument("--title", help="new title of one session; an empty one removes it")
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
        {"sessions": options.session, **values},
        done=_show_result,
        nothing="The sessions already have these values.",
        preview=partial(_preview_edit, options.session, values),
        typed=(*options.session, *_list_given_options(options)),
    )
    return plan_command.plan_and_apply(options, change)


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


def _preview_edit(sessions: Sequence[str], values: Answer, tools: ToolCaller) -> Answer:
    """Return the changes of an edit in the form of a plan."""
    arguments = {"sessions": sessions, **values}
    tools.validate_arguments(edit.SPEC, arguments)
    store = tools.served.get_store(locate.locate_store(tools.served, edit.SPEC, arguments)["store"])
    ids = edit.find_edited_ids(store, sessions)
    altered: dict[str, dict[str, tuple[Any, Any]]] = {}
    for change in store.preview_edit(ids, EditValues(**values)):  # type: ignore[typeddict-item]
        altered.setdefault(change.session_id, {})[change.what] = change.before, change.after
    count = len(altered)
    planned = PlanPreview("planned" if count else "nothing", None, None, count, ())
    pins = store.list_own_pins()
    rows = [
        render.render_session(store, store.summarize_session(session_id), pins)
        for session_id in ids
    ]
    shown_titles = {row["id"]: row["title"] or row["preview"] for row in rows}
    items = [
        {
            "id": render.render_id(name),
            "title": shown_titles.get(name, rows[0]["title"]),
            "why": "; ".join(_describe_changes(store, columns)),
        }
        for name, columns in altered.items()
    ]
    return plan_answers.render_preview(store, planned) | {
        "items": items,
        "sessions": rows,
        "batch": None,
    }


def _describe_changes(store: ServedStore, columns: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Yield each column with its value before and after."""
    if "title" in columns:
        was, becomes = (render.render_line(store, title) or "none" for title in columns["title"])
        yield f"title: {was} -> {becomes}"
    for name in ("archived", "pinned"):
        if name in columns:
            was, becomes = ("yes" if value else "no" for value in columns[name])
            yield f"{name}: {was} -> {becomes}"
    if columns.keys() & {"ended_at", "end_reason"}:
        reason = render.render_line(store, columns.get("end_reason", (None,))[0])
        yield f"status: ended{f' ({reason})' if reason else ''} -> open"


def _show_result(out: Terminal, kind: str, answer: Answer) -> None:
    del kind
    for session in answer["sessions"]:
        pinned = " · pinned" if session["pinned"] else ""
        out.write_line(session["title"] or session["preview"] or "(empty)", "bold")
        source = f"{session['id']} · {session['source']} · {session['status']}{pinned}"
        out.write_line(source, "dim")

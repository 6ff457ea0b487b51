"""`mcp-sessions keep`: keep copies of the sessions of other agents, and forget some for good."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from mcp_serve import render
from mcp_serve.arguments import format_time
from mcp_serve.cli.command_errors import DECLINED, DONE
from mcp_serve.cli.options import add_json_option, add_quiet_option, choose_driver
from mcp_serve.cli.output import print_json
from mcp_serve.cli.plan_command import add_plan_arguments, ask_confirmation, format_declined
from mcp_serve.cli.progress_bar import ProgressBar
from mcp_serve.cli.terminal import (
    TableColumn,
    Terminal,
    format_bytes,
    format_local_time,
    format_number,
)
from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.stores.transcripts import ServedTranscripts
from session_core import InvalidInput, StorageError
from session_core.ledger import Labels
from session_core.transcripts import ForgetPlan, KeepStatus

Answer = dict[str, Any]

_SLICE_S = 0.5
_PARTS = 1000
_MAX_ITEMS = 20

TURN_ON = "mcp-sessions keep on"

_ACTIONS = {
    "on": "keep copies from now on; a NAME that was forgotten is kept again",
    "off": "copy nothing new; existing copies stay",
    "status": "show the stored copies and their place",
    "forget": "remove a session or a store for good; cannot be undone",
}
_STORE_COLUMNS = (
    TableColumn("store"),
    TableColumn("sessions", right=True),
    TableColumn("bytes", right=True),
    TableColumn("deleted by the agent", right=True),
)
_ITEM_COLUMNS = (TableColumn("title", yields=True), TableColumn("id", copied=True))

EXAMPLES = """\
Without an action it copies new data once and exits, for cron and hooks of agents.

examples:
  mcp-sessions keep on                        keep copies from now on
  mcp-sessions keep status                    show sizes and the place of the copies
  mcp-sessions keep --quiet                   copy new data, without output
  mcp-sessions keep forget 0190a3f2           show the plan and ask
  mcp-sessions keep forget codex --plan-only  all sessions of an agent
  mcp-sessions keep off                       copy nothing new
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.set_defaults(of_homes=False)
    add_quiet_option(parser)
    add_json_option(parser)
    actions = parser.add_subparsers(dest="action", metavar="on|off|status|forget")
    for name, does in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=does,
            description=f"{does[:1].upper()}{does[1:]}.",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == "on":
            action.add_argument("name", nargs="*", metavar="NAME", help="forgotten id or store")
        if name == "forget":
            action.add_argument("name", nargs="?", metavar="ID|STORE", help="session or store")
            add_plan_arguments(action)
        add_json_option(action)


def run(options: argparse.Namespace) -> int:
    """Run an action, or keep new parts."""
    choose_driver()
    served = ServedStores(ServerOptions())
    try:
        store = served.get_transcripts(None)
        return _RUNNERS[options.action](options, served, store)
    finally:
        served.close()


def _keep_once(options: argparse.Namespace, served: ServedStores, store: ServedTranscripts) -> int:
    """Keep new parts, and report them."""
    del served
    if store.keep.get_mode() is not None:
        _keep_all(store)
    status = store.keep.measure_status()
    # A hook shows its error output to its user; a copy that cannot be written must not be silent.
    if status.problem is not None:
        raise StorageError(f"nothing could be kept: {status.problem}")
    if options.json:
        print_json(render_status(status))
    elif not options.quiet:
        out = Terminal(sys.stdout)
        out.write_line(describe_status(status))
        _suggest_keeping(out, status)
    return DONE


def _suggest_keeping(out: Terminal, status: KeepStatus) -> None:
    if status.mode != "on":
        out.write_hint(f"Turn it on with: {TURN_ON}")


def _start_keeping(
    options: argparse.Namespace, served: ServedStores, store: ServedTranscripts
) -> int:
    """Turn keeping on, explain it, keep and index the present sessions, and show the status."""
    store.keep.turn_on(options.name)
    out = Terminal(sys.stdout)
    if not options.json:
        for line in explain_keeping(store):
            out.write_unwrapped(line)
        out.write_line()
    _keep_all(store)
    _index_all(served)
    return _show_status(options, served, store)


def _stop_keeping(
    options: argparse.Namespace, served: ServedStores, store: ServedTranscripts
) -> int:
    store.keep.turn_off()
    return _show_status(options, served, store)


def _show_status(
    options: argparse.Namespace, served: ServedStores, store: ServedTranscripts
) -> int:
    """Show the kept copies of each store."""
    _index_all(served)
    status = store.keep.measure_status()
    if options.json:
        print_json(render_status(status))
        return DONE
    out = Terminal(sys.stdout)
    out.write_line(describe_status(status))
    if status.stores:
        rows = [
            [name, f"{counts.sessions:,}", format_bytes(counts.bytes), f"{counts.gone:,}"]
            for name, counts in status.stores.items()
        ]
        out.write_table(_STORE_COLUMNS, rows)
        out.write_unwrapped(str(status.path))
    for session in status.forgotten:
        since = format_local_time(format_time(session.forgotten_at))
        name = session.session_id or "all sessions"
        out.write_line(f"Forgotten {since}, and not read: {name} of {session.store}")
    if status.problem is not None:
        out.write_line(f"! {status.problem}")
    _suggest_keeping(out, status)
    return DONE


def _forget_sessions(
    options: argparse.Namespace, served: ServedStores, store: ServedTranscripts
) -> int:
    """Plan to forget sessions, confirm, apply, and return the exit code."""
    if (options.name is None) == (options.plan is None):
        raise InvalidInput("name a session or a store, or a plan with --plan")
    _index_all(served)
    keep = store.keep
    plan = keep.plan_forget(options.name) if options.plan is None else keep.load_plan(options.plan)
    out = Terminal(sys.stderr if options.json else sys.stdout)
    is_silent = options.json or options.quiet
    # A plan to confirm is always shown.
    if not (is_silent and (options.yes or options.plan_only)):
        _show_plan(out, store, plan)
    if options.plan_only:
        if options.json:
            print_json(_render_plan(store, plan, "planned"))
        else:
            _show_plan_command(out, plan)
        return DONE
    if not ask_confirmation(f"Forget {_describe_plan_size(plan)} for good?", yes=options.yes):
        Terminal(sys.stderr).write_line(format_declined())
        if options.json:
            print_json(_render_plan(store, plan, "declined"))
        return DECLINED
    plan = keep.load_plan(plan.handle)  # before the labels go, which cannot be undone
    answer = _render_plan(store, plan, "applied")
    _apply_forget(store, plan)
    _index_all(served)
    if options.json:
        print_json(answer)
    elif not options.quiet:
        out.write_line(f"Done: {_describe_plan_size(plan)} forgotten.", "bold")
    return DONE


def _show_plan_command(out: Terminal, plan: ForgetPlan) -> None:
    until = format_local_time(format_time(plan.expires_at))
    out.write_line(f"Nothing was changed. Apply plan {plan.handle} until {until} with")
    out.write_unwrapped(f"  mcp-sessions keep forget --plan {plan.handle}")


def _apply_forget(store: ServedTranscripts, plan: ForgetPlan) -> None:
    """Remove the labels, then copies and index terms."""
    # Labels first: after a kill between the two, the plan still exists and can be applied again.
    with Labels() as labels:
        if plan.is_whole_store:
            labels.forget_store(plan.store)
        else:
            for session in plan.sessions:
                labels.forget(plan.store, session.id)
    store.keep.forget(plan.handle)


_RUNNERS: dict[str | None, Callable[[argparse.Namespace, ServedStores, ServedTranscripts], int]] = {
    None: _keep_once,
    "on": _start_keeping,
    "off": _stop_keeping,
    "status": _show_status,
    "forget": _forget_sessions,
}


def _keep_all(store: ServedTranscripts) -> None:
    with ProgressBar("Keeping sessions") as bar:
        while store.keep.scan_and_copy(_SLICE_S):
            bar.report_progress(int(store.keep.measure_share() * _PARTS), _PARTS)


def _index_all(served: ServedStores) -> None:
    with ProgressBar("Indexing transcripts") as bar:
        served.index_transcripts(bar.report_progress)


def offer_keeping(out: Terminal, served: ServedStores) -> None:
    """Ask whether to keep copies, unless the user has decided before, and store the answer."""
    store = served.get_transcripts(None)
    if store.keep.get_mode() is not None:
        return
    out.write_line()
    out.write_block("", "Agents delete old sessions, Claude Code after 30 days.")
    for line in explain_keeping(store):
        out.write_unwrapped(line)
    if not ask_confirmation("Keep copies?", yes=False):
        store.keep.turn_off()
        out.write_block("", f"Nothing is kept. To change that: {TURN_ON}")
        return
    store.keep.turn_on()
    _keep_all(store)
    out.write_block("", describe_status(store.keep.measure_status()))


_EXPLANATION = """\
Sessions of other agents are copied whole: messages, tool results, and any secret in them.
The copies are compressed, only you can read them, and they are in one file:
  {path}
A session that its agent deletes is still listed, found and read.
To remove one for good: mcp-sessions keep forget ID
"""


def explain_keeping(store: ServedTranscripts) -> list[str]:
    """Return the contents and the place of kept copies, as lines."""
    return _EXPLANATION.format(path=store.keep.measure_status().path).splitlines()


def describe_status(status: KeepStatus) -> str:
    """Return the kept copies as one sentence."""
    forgotten = f"; {len(status.forgotten):,} forgotten" if status.forgotten else ""
    if status.mode != "on" and not status.sessions:
        return f"Keeping is off{forgotten}."
    sessions = format_number(status.sessions, "session")
    gone = f"; {status.gone:,} of them deleted by their agent" if status.gone else ""
    sizes = f"{format_bytes(status.source_bytes)} stored in {format_bytes(status.stored_bytes)}"
    return f"Keeping is {status.mode or 'off'}: {sessions} kept, {sizes}{gone}{forgotten}."


def render_status(status: KeepStatus) -> Answer:
    """Return the kept copies as an answer."""
    return {
        "on": status.mode == "on",
        "sessions": status.sessions,
        "bytes": status.source_bytes,
        "stored_bytes": status.stored_bytes,
        "source_gone": status.gone,
        "path": str(status.path),
        "stores": [
            {"name": name, "sessions": part.sessions, "bytes": part.bytes, "source_gone": part.gone}
            for name, part in status.stores.items()
        ],
        "forgotten": [
            {
                "store": session.store,
                **render.drop_empty(id=session.session_id),
                "at": format_time(session.forgotten_at),
            }
            for session in status.forgotten
        ],
        **render.drop_empty(problem=status.problem),
    }


def _describe_plan_size(plan: ForgetPlan) -> str:
    return f"{format_number(len(plan.sessions), 'session')} of {plan.store}"


def _show_plan(out: Terminal, store: ServedTranscripts, plan: ForgetPlan) -> None:
    out.write_line(f"Forget {_describe_plan_size(plan)}", "bold")
    rows = [
        [render.render_line(store, row.title) or render.render_preview(store, row), row.id]
        for row in plan.sessions[:_MAX_ITEMS]
    ]
    out.write_line()
    out.write_table(_ITEM_COLUMNS, rows)
    if len(plan.sessions) > _MAX_ITEMS:
        out.write_line(f"and {len(plan.sessions) - _MAX_ITEMS:,} more", "dim")
    out.write_line()
    for warning in _list_warnings(plan):
        out.write_line(f"{warning}.")


def _list_warnings(plan: ForgetPlan) -> list[str]:
    """Return the warnings of a plan to forget, as sentences without a period."""
    copies = f"kept copies of {format_bytes(plan.kept_bytes)}, " if plan.kept_bytes else ""
    warnings = [
        f"Removes {copies}the index terms, and the titles, pins and archive marks that you set",
        "This cannot be undone",
    ]
    if plan.gone:
        what = "The kept copy is" if len(plan.sessions) == 1 else f"{plan.gone:,} kept copies are"
        warnings.append(f"{what} all that is left: {plan.store} has deleted its own")
    if plan.gone < len(plan.sessions):
        name = plan.store if plan.is_whole_store else plan.sessions[0].id
        warnings.append(
            f"What {plan.store} itself has stays where it is, and is not read any more until "
            f"mcp-sessions keep on {name}"
        )
    if plan.unlisted:
        ids = ", ".join(plan.unlisted)
        warnings.append(
            "Removes the kept copies of sessions that no list has now, without messages or of a "
            f"folder that {plan.store} no longer uses: {ids}"
        )
    if plan.forks:
        forks = ", ".join(plan.forks)
        warnings.append(f"Forks that repeat messages of it are other sessions and stay: {forks}")
    return warnings


def _render_plan(store: ServedTranscripts, plan: ForgetPlan, outcome: str) -> Answer:
    """Return a plan with the keys of the changing tools."""
    count = len(plan.sessions)
    answer: Answer = {
        "outcome": outcome,
        "plan": plan.handle if outcome == "planned" else None,
        "expires_at": format_time(plan.expires_at),
        "count": count,
        "items": [
            {
                "id": render.render_id(row.id),
                "title": render.render_line(store, row.title),
                "why": "kept copy" if row.is_kept else "named",
                "messages": row.messages or 0,
                "last_active_at": format_time(row.last_active_at),
            }
            for row in plan.sessions[:_MAX_ITEMS]
        ],
        "protected": [],
        "bytes": {"kept": plan.kept_bytes},
        "warnings": _list_warnings(plan),
    }
    return answer | ({"removed": count} if outcome == "applied" else {})

"""Run verbs that change data: plan, show, confirm, apply, report the result and its undo.

Tools without plans are previewed and confirmed in the same way. A tool call works for at most some
seconds; the command repeats it until nothing remains.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mcp_serve import plan_answers, render
from mcp_serve.cli import plan_output
from mcp_serve.cli.argument_parser import make_integer_parser
from mcp_serve.cli.command_errors import (
    DECLINED,
    DONE,
    FAILED,
    INTERRUPTED,
    PARTIAL,
    QuestionInterrupted,
    format_error,
    translate_tool_text,
)
from mcp_serve.cli.options import add_quiet_option, format_command
from mcp_serve.cli.output import escape_answer, print_error, print_json
from mcp_serve.cli.progress_bar import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import Terminal, format_local_time
from mcp_serve.cli.tool_calls import Answer, ToolCaller
from mcp_serve.stores import session_lookup
from mcp_serve.stores.locate import find_session_store
from mcp_serve.tools.spec import ToolSpec
from session_core import Denied, NotFound, SessionError, StorageError
from session_core.ledger import StoredPlan
from session_core.maintenance import PlanPreview


def can_ask_user() -> bool:
    """Return True if a question can be shown and answered at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def format_declined(effect: str = "nothing was changed") -> str:
    """Return the message for a change that was not confirmed."""
    why = "" if can_ask_user() else "there is no terminal to ask at; pass --yes to confirm; "
    return f"Declined: {why}{effect}."


def ask_confirmation(question: str, *, yes: bool) -> bool:
    """Ask a question and return True for yes.

    Without a terminal, return False.

    Raises:
        QuestionInterrupted: Ctrl-C was pressed.
    """
    if yes:
        return True
    if not can_ask_user():
        return False
    return ask_text(f"{question} [y/N]").lower() in ("y", "yes")


def ask_text(question: str) -> str:
    """Ask a question at the terminal and return the answer without blanks around it.

    Raises:
        QuestionInterrupted: Ctrl-C was pressed.
    """
    try:
        print_error(f"{question} ", end="")
        return _read_line().strip()
    except KeyboardInterrupt as error:
        raise QuestionInterrupted from error


def _read_line() -> str:
    """Read a line from the terminal."""
    # A plain read misses a Ctrl-C that arrives just before it blocks; wait for both at once.
    signalled, wakeup = socket.socketpair()
    with signalled, wakeup:
        os.set_blocking(wakeup.fileno(), False)
        before = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        try:
            select.select([sys.stdin, signalled], [], [])
        finally:
            signal.set_wakeup_fd(before)
    return sys.stdin.readline()


AnswerPrinter = Callable[[Terminal, str, Answer], None]
"""A function that shows the answer for a kind of plan."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """The change that a verb makes, and the functions that show it."""

    spec: ToolSpec
    verb: str
    arguments: Answer
    """Arguments of the plan, unless a handle is given."""
    with_handle: Answer = field(default_factory=dict)
    """Arguments passed together with the handle."""
    again: tuple[str, ...] = ()
    """Further words of the command that continues the plan."""
    plan: AnswerPrinter = plan_output.show_plan
    done: AnswerPrinter = plan_output.show_result
    nothing: str = ""
    """A hint shown if there is nothing to do."""
    preview: Callable[[ToolCaller], Answer] | None = None
    """Previews the change of a tool that makes no plan."""
    typed: tuple[str, ...] = ()
    """Words of the command that applies it without a plan."""


def add_what_and_session_options(parser: argparse.ArgumentParser, kinds: Sequence[str]) -> None:
    """Add the kind of change, the first one by default, and `--session`."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=kinds,
        default=kinds[0],
        metavar="WHAT",
        help=f"{kinds[0]} (default), {', '.join(kinds[1:])}",
    )
    parser.add_argument(
        "--session",
        action="append",
        metavar="ID",
        help="this session by id, prefix, key or title, regardless of its age; repeatable",
    )


def format_kinds(tool: str) -> str:
    """Return the part of a help text about the kinds of plans that a verb makes."""
    kinds = plan_answers.list_requestable_kinds(tool)
    width = max(len(kind.what) for kind in kinds)
    return "\n".join(["kinds:", *(f"  {kind.what:{width}}  {kind.summary}" for kind in kinds)])


def add_plan_arguments(
    parser: argparse.ArgumentParser,
    only: str = "show the plan, print its handle and exit",
    *,
    handles: bool = True,
    limit: bool = False,
) -> None:
    """Add the options for planning and confirming.

    `limit` adds `--limit` for shown items.
    """
    group = parser.add_argument_group("the plan")
    group.add_argument("--plan-only", "--dry-run", action="store_true", help=only)
    if handles:
        group.add_argument("--plan", metavar="HANDLE", help="apply this plan")
    else:
        parser.set_defaults(plan=None)
    if limit:
        group.add_argument(
            *("-n", "--limit"),
            type=make_integer_parser(1),
            metavar="N",
            help="number of items to show (default: 20)",
        )
    group.add_argument("-y", "--yes", action="store_true", help="apply without asking")
    add_quiet_option(group)


def plan_and_apply(options: argparse.Namespace, change: ChangeRequest) -> int:
    """Plan, confirm and apply a change, and return the exit code."""
    needs_home = not change.spec.takes_transcripts
    with ToolCaller(options, changes=True, needs_home=needs_home) as tools:
        runner = _ChangeRunner(options, change, tools)
        try:
            return runner.plan_and_apply()
        except KeyboardInterrupt:
            return runner.report_interruption()
        finally:
            if options.json and runner.answer:
                print_json(runner.answer)


class _ChangeRunner:
    """One change in progress.

    `answer` is the answer of the last call.
    """

    def __init__(
        self, options: argparse.Namespace, change: ChangeRequest, tools: ToolCaller
    ) -> None:
        self._options = options
        self._change = change
        self._tools = tools
        # With --json, standard output is the answer alone.
        self._out = Terminal(sys.stderr if options.json else sys.stdout)
        self._err = Terminal(sys.stderr)
        self._handle: str | None = options.plan
        self._kind = change.verb
        self._is_silent = options.json or options.quiet
        self._at_work = False
        self.answer: Answer = {}

    def plan_and_apply(self) -> int:
        """Plan, confirm and apply the change, and return the exit code."""
        change = self._change
        if self._handle is not None:
            self.answer = self._load_preview(self._handle)
        else:
            with ProgressBar("Looking"):
                if change.preview is not None:
                    self.answer = change.preview(self._tools)
                else:
                    arguments = resolve_references(self._tools, change.spec, change.arguments)
                    self.answer = self._call_tool(arguments, TerminalProgress("Planning"))
        self._handle = self.answer["plan"]
        plan = None if self._handle is None else self._tools.home.ledger.get_plan(self._handle)
        if not self._options.json:
            self._add_ages(plan)
            self._add_protected_chats()
        if plan is not None and getattr(self._options, "limit", None):
            self._load_shown_items(plan, self._options.limit)
        if self.answer["outcome"] == "nothing":
            self._show_nothing_changed()
            return DONE
        return self._confirm_and_apply(plan)

    def _confirm_and_apply(self, plan: StoredPlan | None) -> int:
        # Without a plan the kind is the verb.
        state, kind = ("planned", self._change.verb) if plan is None else (plan.state, plan.kind)
        self._kind = kind
        if state not in ("planned", "applying"):  # finished or closed
            return self._apply_change()
        if not (self._is_silent and (self._options.yes or self._options.plan_only)):
            self._change.plan(self._out, kind, escape_answer(self.answer))
        if self._options.plan_only:
            self._show_plan_command()
            return DONE
        # A plan that was started has been confirmed before, as in `mcp_serve.consent`.
        if state == "planned" and not self._ask_confirmation(kind):
            self._decline_plan()
            return DECLINED
        return self._apply_change()

    def _add_ages(self, plan: StoredPlan | None) -> None:
        """Add the number of items of each age to the totals, for a person."""
        if plan is None or "totals" not in self.answer:
            return
        items = self._tools.home.maintenance.get_plan(plan, self.answer["count"]).items
        moments = [item.last_active_at for item in items if item.last_active_at is not None]
        ages = plan_output.count_ages(moments, time.time())
        self.answer["totals"] = self.answer["totals"] | {"by_age": ages}

    def _add_protected_chats(self) -> None:
        """Add the names of the chats that are routed to protected sessions, for a person."""
        protected = self.answer.get("protected", ())
        if not any(group["ids"] for group in protected):
            return
        home = self._tools.home
        names = {
            entry.session_id: render.render_line(home, entry.display_name or entry.key)
            for entry in home.store.load_entries().values()
        }
        for group in protected:
            chats = [names[session_id] for session_id in group["ids"] if session_id in names]
            group["chats"] = list(dict.fromkeys(filter(None, chats)))

    def _load_shown_items(self, plan: StoredPlan, limit: int) -> None:
        """Replace the items of the answer by the first `limit` items of the plan."""
        home = self._tools.home
        preview = home.maintenance.get_plan(plan, limit)
        self.answer["items"] = [plan_answers.render_item(home, item) for item in preview.items]

    def _decline_plan(self) -> None:
        if self._handle is None:
            self.answer = self.answer | {"outcome": "declined"}
        else:
            self.answer = plan_answers.render_unapplied(self._tools.home, self._handle, "declined")

    def report_interruption(self) -> int:
        """Report an interruption and the command that continues, and return the exit code."""
        self._err.write_line()
        if self._handle is None and not self._at_work:
            self._err.write_line("Stopped; nothing was changed.")
            return INTERRUPTED
        untouched = self._find_plan_state() == "planned" and not self._at_work
        changed = "nothing was changed" if untouched else "the home is consistent"
        self._show_continue_command(f"Stopped; {changed}. ")
        return INTERRUPTED

    def _load_preview(self, handle: str) -> Answer:
        """Return the preview of a stored plan, and refuse a plan that this verb cannot apply."""
        home, change = self._tools.home, self._change
        self._tools.validate_arguments(change.spec, {**change.arguments, "plan": handle})
        plan = plan_answers.load_plan(home, handle, change.spec.asks)
        if change.spec.check is not None:
            change.spec.check(home, plan, change.with_handle.get("summary"))
        return plan_answers.render_preview(home, PlanPreview.from_plan(plan))

    def _find_plan_state(self) -> str:
        """Return the present state of the plan."""
        if self._handle is None:
            return "planned"
        return self._tools.home.ledger.get_plan(self._handle).state

    def _ask_confirmation(self, kind: str) -> bool:
        """Ask for confirmation, and report a refusal."""
        if self._options.yes:
            return True
        self._out.write_line()
        count = self.answer["count"]
        if ask_confirmation(f"{plan_output.describe_plan(kind, count)}?", yes=False):
            return True
        closed = "" if self._handle is None else ", and the plan is closed"
        self._err.write_line(format_declined(f"nothing was changed{closed}"))
        return False

    def _call_tool(self, arguments: Answer, work: TerminalProgress) -> Answer:
        return self._tools.call_tool(self._change.spec, arguments, work)

    def _apply_change(self) -> int:
        """Call the tool until nothing remains or Ctrl-C, and show the result."""
        change = self._change
        arguments = (
            change.arguments
            if self._handle is None
            else {"plan": self._handle, **change.with_handle}
        )
        work = TerminalProgress(_PROGRESS_LABELS[change.verb])
        self._at_work = True
        try:
            with work:
                self.answer = self._call_tool(arguments, work)
                while self._outcome == "partial" and not work.is_cancelled():
                    self.answer = self._call_tool(arguments, work)
        except BrokenPipeError:
            raise  # the reader of the output has gone; the plan has not failed
        except (SessionError, OSError) as error:
            if work.is_cancelled():
                return self.report_interruption()
            has_begun = self._has_begun()
            if not has_begun and not self._is_fault(error):
                raise
            return self._report_failure(error, has_begun=has_begun)
        if self._outcome == "partial":
            self._show_result()
            self._show_continue_command("")
            return INTERRUPTED
        if self._outcome == "applied":
            self._show_result()
        skipped = self.answer.get("skipped") if change.preview is not None else None
        return PARTIAL if skipped else DONE

    @property
    def _outcome(self) -> str:
        """The outcome, which is `applied` for a tool that returns none."""
        return str(self.answer.get("outcome", "applied"))

    def _has_begun(self) -> bool:
        """Return True if a step was applied and the plan can be continued."""
        if self._handle is None:
            return self._outcome == "partial"
        plan = self._tools.home.ledger.get_plan(self._handle)
        if plan.state != "applying" or plan.batch is None:
            return False
        return bool(self._tools.home.ledger.list_steps(plan.batch))

    def _is_fault(self, error: SessionError | OSError) -> bool:
        """Return True if an error is that of a disk or file and the plan can be applied again."""
        if self._handle is None:
            return False
        if isinstance(error, (Denied, NotFound)):  # of the trash, once the plan was begun
            return self._tools.home.ledger.get_plan(self._handle).state == "applying"
        return isinstance(error, (StorageError, OSError))

    def _report_failure(self, error: SessionError | OSError, *, has_begun: bool) -> int:
        """Report an error and the command that continues, and return the exit code."""
        text = format_error(error) if isinstance(error, SessionError) else str(error)
        plan = f"plan {self._handle} failed: " if self._handle is not None else ""
        self._err.write_unwrapped(f"mcp-sessions: {plan}{text}")
        if has_begun:
            self._show_continue_command("Applied in part; the home is consistent. ")
            return PARTIAL
        self._show_continue_command("No step was done; the home is consistent. ")
        return FAILED

    def _show_continue_command(self, before: str) -> None:
        self._err.write_line(f"{before}Continue with")
        self._err.write_unwrapped(f"  {self._format_continue_command()}")

    def _show_nothing_changed(self) -> None:
        if self._is_silent:
            return
        self._out.write_line(translate_tool_text(self.answer.get("note", "Nothing to do.")))
        for warning in self.answer["warnings"]:
            self._out.write_line(f"Note: {translate_tool_text(warning)}.")
        plan_output.show_protected(self._out, escape_answer(self.answer))
        if self._change.nothing and "note" not in self.answer:
            self._out.write_hint(self._change.nothing)

    def _show_plan_command(self) -> None:
        if self._is_silent:
            return
        until = format_local_time(self.answer["expires_at"])
        sentence = (
            f"Apply plan {self._handle} until {until} with" if self._handle else "Apply it with"
        )
        self._out.write_line()
        self._out.write_line(f"Nothing was changed. {sentence}")
        self._out.write_unwrapped(f"  {self._format_continue_command()}")

    def _show_result(self) -> None:
        if self._is_silent:
            return
        self._change.done(self._out, self._kind, escape_answer(self.answer))
        if "next" in self.answer:
            self._out.write_line("Shrink the file with")
            self._out.write_unwrapped(f"  {format_command(self._options, 'prune', 'index')}")
        batch = self.answer.get("batch")
        if batch and (self._change.verb != "restore" or self._handle is not None):
            part = "" if self._outcome == "applied" else " this part"
            self._out.write_line(f"Undo{part} with")
            self._out.write_unwrapped(f"  {format_command(self._options, 'restore', batch)}")

    def _format_continue_command(self) -> str:
        change = self._change
        words = ("--plan", self._handle, *change.again) if self._handle else change.typed
        return format_command(self._options, change.verb, *words)


def resolve_references(tools: ToolCaller, spec: ToolSpec, arguments: Answer) -> Answer:
    """Return the arguments with titles and prefixes of sessions replaced by ids.

    A model must pass an id or a key, whose session never changes. A person may pass a title, since
    the sessions are shown before the question.

    Raises:
        InvalidInput: Several sessions match.
        NotFound: No session matches.
    """
    if spec.takes_titles or arguments.get("what") == "trash":
        return arguments
    stores = tools.served.get_stores()
    titled_spec = replace(spec, takes_titles=True)

    def find_session_id(reference: str) -> str:
        name = find_session_store(stores, reference, titled_spec)
        return session_lookup.find_session(tools.served.get_store(name), reference).id

    resolved = dict(arguments)
    if arguments.get("session") is not None:
        resolved["session"] = find_session_id(arguments["session"])
    if arguments.get("sessions") is not None:
        resolved["sessions"] = [find_session_id(reference) for reference in arguments["sessions"]]
    return resolved


_PROGRESS_LABELS = {
    "prune": "Removing",
    "finalize": "Ending",
    "compress": "Compressing",
    "restore": "Restoring",
    "edit": "Editing",
}

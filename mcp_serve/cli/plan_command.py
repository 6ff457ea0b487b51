"""Asking the person at the terminal before something is changed.

How a verb changes something: plan, show it, ask, apply, say what was done and how to undo it.

What a tool does at once, without a plan, is looked at and asked about in the same way. One call of
a tool works for some seconds; a person wants it done, so it is called again until it is. What stops
before that leaves the store whole, and says how to go on.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mcp_serve import plans
from mcp_serve.cli import missing_home, plan_output
from mcp_serve.cli.arguments import make_integer_parser
from mcp_serve.cli.errors import (
    DECLINED,
    DONE,
    INTERRUPTED,
    PARTIAL,
    QuestionInterrupted,
    format_error,
    translate_tool_text,
)
from mcp_serve.cli.options import format_command
from mcp_serve.cli.output import print_error, print_json
from mcp_serve.cli.progress import ProgressBar, TerminalProgress
from mcp_serve.cli.terminal import Terminal, format_local_time
from mcp_serve.cli.tool_calls import Answer, ToolCaller
from mcp_serve.tools.spec import ToolSpec
from session_core import SessionError


def can_ask_user() -> bool:
    """Whether a question would be seen, and could be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def format_declined(nothing: str = "nothing was changed") -> str:
    """Return what is said where the answer was no, or nobody could give one."""
    why = "" if can_ask_user() else "there is no terminal to ask at; pass --yes to confirm; "
    return f"Declined: {why}{nothing}."


def ask_confirmation(question: str, *, yes: bool) -> bool:
    """Ask a question; where nobody can answer it, the answer is no.

    Raises:
        Stopped: the person has pressed Ctrl-C instead.
    """
    if yes:
        return True
    if not can_ask_user():
        return False
    try:
        print_error(f"{question} [y/N] ", end="")
        answer = _read_line()
    except KeyboardInterrupt as error:
        raise QuestionInterrupted from error
    return answer.strip().lower() in ("y", "yes")


def _read_line() -> str:
    """Read a line from the terminal.

    A plain read misses a Ctrl-C that arrives just before it blocks, so this waits for the line and
    for the signal at once.
    """
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
"""Shows the answer of a kind of plan."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What a verb changes."""

    spec: ToolSpec
    verb: str
    asked: Answer
    """What is planned, where no plan is given."""
    beside: Answer = field(default_factory=dict)
    """What is given with the plan."""
    again: tuple[str, ...] = ()
    """What else has to be typed to go on with a plan."""
    plan: AnswerPrinter = plan_output.show_plan
    done: AnswerPrinter = plan_output.show_result
    nothing: str = ""
    """What is said where there is nothing to do."""
    look: Callable[[ToolCaller], Answer] | None = None
    """Says what would be done as a plan does, where the tool makes none."""
    typed: tuple[str, ...] = ()
    """What has to be typed then."""


def add_what_argument(parser: argparse.ArgumentParser, kinds: Sequence[str]) -> None:
    """Add what is changed: one of these kinds, the first where none is said, or named sessions."""
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
        help="this session, regardless of its age; repeatable",
    )


def add_plan_arguments(
    parser: argparse.ArgumentParser,
    only: str = "show the plan, print its handle and exit",
    *,
    handles: bool = True,
    limit: bool = False,
) -> None:
    """Add what every verb takes that shows first what it would do, and most do by a handle.

    With a `limit` somebody says how much of it is shown.
    """
    group = parser.add_argument_group("the plan")
    group.add_argument("--plan-only", "--dry-run", action="store_true", help=only)
    if handles:
        group.add_argument("--plan", metavar="HANDLE", help="apply this plan")
    else:
        parser.set_defaults(plan=None)
    if limit:
        group.add_argument(
            "--limit",
            type=make_integer_parser(1),
            metavar="N",
            help="number of items to show (default: 20)",
        )
    group.add_argument("--yes", action="store_true", help="apply without asking")


def run_change(options: argparse.Namespace, change: ChangeRequest) -> int:
    """Make a change; return how that went."""
    with ToolCaller(options, changes=True) as tools:
        making = _ChangeRunner(options, change, tools)
        try:
            return making.run()
        except KeyboardInterrupt:
            return making.report_interruption()
        finally:
            if options.json and making.answer:
                print_json(making.answer)


class _ChangeRunner:
    """One change as it is made; `answer` is that of the last step."""

    def __init__(
        self, options: argparse.Namespace, change: ChangeRequest, tools: ToolCaller
    ) -> None:
        self._options = options
        self._change = change
        self._tools = tools
        self._out = Terminal(sys.stderr if options.json else sys.stdout)
        self._err = Terminal(sys.stderr)
        self._handle: str | None = options.plan
        self._at_work = False
        self.answer: Answer = {}

    def run(self) -> int:
        """Make it."""
        change = self._change
        if self._handle is not None:
            self.answer = self._load_plan(self._handle)
        else:
            with ProgressBar("Looking"):
                if change.look is not None:
                    self.answer = change.look(self._tools)
                else:
                    self.answer = self._call_tool(change.asked, TerminalProgress("Planning"))
        self._handle = self.answer["plan"]
        if self._handle is not None and getattr(self._options, "limit", None):
            self._extend_items(self._handle, self._options.limit)
        if self.answer["outcome"] == "nothing":
            self._show_nothing_changed()
            return DONE
        return self._confirm_and_apply()

    def _confirm_and_apply(self) -> int:
        state, kind = self._find_plan_state()
        if state not in ("planned", "applying"):  # it answers what it came to, or that it is closed
            return self._apply_change()
        if not self._options.json or not (self._options.yes or self._options.plan_only):
            self._change.plan(self._out, kind, self.answer)
        if self._options.plan_only:
            self._show_plan_command()
            return DONE
        # What was begun was agreed to, as `mcp_serve.consent` has it.
        if state == "planned" and not self._ask_confirmation(kind):
            self._decline_plan()
            return DECLINED
        return self._apply_change()

    def _extend_items(self, handle: str, limit: int) -> None:
        """Let the answer name so many of the things that the plan is about."""
        home = self._tools.home
        found = home.maintenance.get_plan(handle, limit)
        self.answer["items"] = [plans.render_item(home, each) for each in found.items]

    def _decline_plan(self) -> None:
        if self._handle is None:
            self.answer = self.answer | {"outcome": "declined"}
        else:
            self.answer = plans.render_unapplied(self._tools.home, self._handle, "declined")

    def report_interruption(self) -> int:
        """Say that nothing more is done, and how to go on."""
        self._err.write_line()
        if self._handle is None and not self._at_work:
            self._err.write_line("Stopped; nothing was changed.")
            return INTERRUPTED
        untouched = self._find_plan_state()[0] == "planned" and not self._at_work
        changed = "nothing was changed" if untouched else "the home is consistent"
        self._show_continue_command(f"Stopped; {changed}. ")
        return INTERRUPTED

    def _load_plan(self, handle: str) -> Answer:
        """Return what a plan said when it was made; one that cannot be applied is refused."""
        home, change = self._tools.home, self._change
        self._tools.validate_arguments(change.spec, {**change.asked, "plan": handle})
        plans.check_plan_kind(home, handle, change.spec.asks)
        if change.spec.check is not None:
            change.spec.check(home, handle, change.beside.get("summary"))
        return plans.render_preview(home, home.maintenance.get_plan(handle))

    def _find_plan_state(self) -> tuple[str, str]:
        """Return how far the plan is and of which kind; what has none is of its verb's."""
        if self._handle is None:
            return "planned", self._change.verb
        found = self._tools.home.ledger.get_plan(self._handle)
        return found.state, found.kind

    def _ask_confirmation(self, kind: str) -> bool:
        """Ask; say why nothing is changed where the answer is no."""
        if self._options.yes:
            return True
        self._out.write_line()
        count = self.answer["count"]
        if ask_confirmation(f"{plan_output.describe_plan(kind, count)}?", yes=False):
            return True
        closed = "" if self._handle is None else ", and the plan is closed"
        self._err.write_line(format_declined(f"nothing was changed{closed}"))
        return False

    def _call_tool(self, given: Answer, work: TerminalProgress) -> Answer:
        return self._tools.call_tool(self._change.spec, given, work)

    def _apply_change(self) -> int:
        """Call the tool until nothing remains, or Ctrl-C; say what was done."""
        change = self._change
        given = change.asked if self._handle is None else {"plan": self._handle, **change.beside}
        work = TerminalProgress(_PROGRESS_LABELS[change.verb])
        self._at_work = True
        try:
            with work:
                self.answer = self._call_tool(given, work)
                while self._outcome == "partial" and not work.is_cancelled():
                    self.answer = self._call_tool(given, work)
        except SessionError as error:
            if work.is_cancelled():
                return self.report_interruption()
            if not self._has_begun():
                raise
            return self._report_failure(error)
        if self._outcome == "partial":
            self._show_result()
            self._show_continue_command("")
            return INTERRUPTED
        if self._outcome == "applied":
            self._show_result()
        left = self.answer.get("skipped") if change.look is not None else None
        return PARTIAL if left else DONE

    @property
    def _outcome(self) -> str:
        """What the tool came to; one that only ever does it all does not say so."""
        return str(self.answer.get("outcome", "applied"))

    def _has_begun(self) -> bool:
        """Whether a step of it was done, and it can be gone on with."""
        if self._handle is None:
            return self._outcome == "partial"
        plan = self._tools.home.ledger.get_plan(self._handle)
        if plan.state != "applying" or plan.batch is None:
            return False
        return bool(self._tools.home.ledger.list_steps(plan.batch))

    def _report_failure(self, error: SessionError) -> int:
        self._err.write_unwrapped(f"mcp-sessions: {format_error(error)}")
        self._show_continue_command("Applied in part; the home is consistent. ")
        return PARTIAL

    def _show_continue_command(self, before: str) -> None:
        self._err.write_line(f"{before}Continue with")
        self._err.write_unwrapped(f"  {self._format_continue_command()}")

    def _show_nothing_changed(self) -> None:
        if self._options.json:
            return
        self._out.write_line(
            missing_home.format_missing_note(self._tools.served) or "Nothing to do."
        )
        for warning in self.answer["warnings"]:
            self._out.write_line(f"Note: {translate_tool_text(warning)}.")
        plan_output.show_protected(self._out, self.answer)
        if self._change.nothing:
            self._out.write_hint(self._change.nothing)

    def _show_plan_command(self) -> None:
        if self._options.json:
            return
        until = format_local_time(self.answer["expires_at"])
        how = f"Apply plan {self._handle} until {until} with" if self._handle else "Apply it with"
        self._out.write_line()
        self._out.write_line(f"Nothing was changed. {how}")
        self._out.write_unwrapped(f"  {self._format_continue_command()}")

    def _show_result(self) -> None:
        if self._options.json:
            return
        self._change.done(self._out, self._find_plan_state()[1], self.answer)
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


_PROGRESS_LABELS = {
    "prune": "Removing",
    "finalize": "Ending",
    "compress": "Compressing",
    "restore": "Restoring",
    "edit": "Editing",
}

"""How a verb changes something: plan, show it, ask, apply, say what was done and how to undo it.

One call of a tool works for some seconds; a person wants it done, so it is called again until it
is. What stops before that leaves the store whole, and says how to go on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mcp_serve import plans
from mcp_serve.cli import previews
from mcp_serve.cli.asking import agreed, somebody_is_there
from mcp_serve.cli.codes import DECLINED, DONE, INTERRUPTED, PARTIAL
from mcp_serve.cli.errors import in_words, said
from mcp_serve.cli.options import command
from mcp_serve.cli.progress import Bar
from mcp_serve.cli.terminal import Terminal, local
from mcp_serve.cli.tools import Answer, Tools, print_json
from mcp_serve.cli.working import Working
from mcp_serve.tools.spec import Spec
from session_core import SessionError

Show = Callable[[Terminal, str, Answer], None]
"""Shows the answer of a kind of plan."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a verb changes."""

    spec: Spec
    verb: str
    asked: Answer
    """What is planned, where no plan is given."""
    beside: Answer = field(default_factory=dict)
    """What is given with the plan."""
    again: tuple[str, ...] = ()
    """What else has to be typed to go on with it."""
    plan: Show = previews.plan
    done: Show = previews.done
    nothing: str = ""
    """What is said where there is nothing to do."""
    at_once: bool = False
    """Whether what is asked may be done without a plan."""


def what(parser: argparse.ArgumentParser, kinds: Sequence[str]) -> None:
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
        "--session", action="append", metavar="ID", help="this one, however old; may be repeated"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every verb takes that plans first."""
    group = parser.add_argument_group("the plan")
    only = group.add_mutually_exclusive_group()
    only.add_argument("--plan-only", action="store_true", help="show it, print its handle, stop")
    only.add_argument("--plan", metavar="HANDLE", help="apply this one, which was made before")
    group.add_argument("--yes", action="store_true", help="apply it without a question")


def folder(text: str) -> Path:
    """Return a folder that is there, as an argument."""
    path = Path(text).expanduser()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}")
    return path


def run(options: argparse.Namespace, change: Change) -> int:
    """Make a change; return how that went."""
    with Tools(options, changes=True) as tools:
        making = _Making(options, change, tools)
        try:
            return making.run()
        except KeyboardInterrupt:
            return making.interrupted()
        finally:
            if options.json and making.answer:
                print_json(making.answer)


class _Making:
    """One change as it is made; `answer` is that of the last step."""

    def __init__(self, options: argparse.Namespace, change: Change, tools: Tools) -> None:
        self._options = options
        self._change = change
        self._tools = tools
        self._out = Terminal(sys.stderr if options.json else sys.stdout)
        self._err = Terminal(sys.stderr)
        self._handle: str | None = options.plan
        self.answer: Answer = {}

    def run(self) -> int:
        """Make it."""
        if self._handle is not None:
            self.answer = self._recorded(self._handle)
        elif self._change.at_once:
            code = self._work({**self._change.asked})
            if self.answer["outcome"] != "planned":
                return code
        else:
            with Bar("Looking"):
                self.answer = self._ask(self._change.asked, Working("Planning"))
        self._handle = self.answer["plan"]
        if self._handle is None:
            self._nothing()
            return DONE
        return self._decide(self._handle)

    def _decide(self, handle: str) -> int:
        state, kind = self._state(handle)
        if state not in ("planned", "applying"):  # it answers what it came to, or that it is closed
            return self._work({"plan": handle, **self._change.beside})
        if not self._options.json or not (self._options.yes or self._options.plan_only):
            self._change.plan(self._out, kind, self.answer)
        if self._options.plan_only:
            self._say_plan(handle)
            return DONE
        # What was begun was agreed to, as `mcp_serve.consent` has it.
        if state == "planned" and not self._agreed(kind):
            self.answer = plans.not_applied(self._tools.home, handle, "declined")
            return DECLINED
        return self._work({"plan": handle, **self._change.beside})

    def interrupted(self) -> int:
        """Say that nothing more is done, and how to go on."""
        self._err.line()
        if self._handle is None and not self._change.at_once:
            self._err.line("Stopped; nothing was changed.")
            return INTERRUPTED
        untouched = self._handle is not None and self._state(self._handle)[0] == "planned"
        changed = "nothing was changed" if untouched else "the store is whole"
        self._say_how_to_go_on(f"Stopped; {changed}. ")
        return INTERRUPTED

    def _recorded(self, handle: str) -> Answer:
        """Return what a plan said when it was made; one that cannot be applied is refused."""
        home, change = self._tools.home, self._change
        self._tools.read(change.spec, {**change.asked, "plan": handle})
        plans.check_kind(home, handle, change.spec.asks)
        if change.spec.check is not None:
            change.spec.check(home, handle, change.beside.get("summary"))
        return plans.preview(home, home.maintenance.planned(handle))

    def _state(self, handle: str) -> tuple[str, str]:
        found = self._tools.home.ledger.plan(handle)
        return found.state, found.kind

    def _agreed(self, kind: str) -> bool:
        """Ask; say why nothing is changed where the answer is no."""
        if self._options.yes:
            return True
        self._out.line()
        count = self.answer["count"]
        if agreed(f"{previews.words(kind, count)}?", yes=False):
            return True
        why = "" if somebody_is_there() else "nobody could be asked, and --yes was not given; "
        self._err.line(f"Declined: {why}nothing was changed, and the plan is closed.")
        return False

    def _ask(self, given: Answer, work: Working) -> Answer:
        return self._tools.ask(self._change.spec, given, work)

    def _work(self, given: Answer) -> int:
        """Call the tool until nothing remains, or Ctrl-C; say what was done."""
        work = Working(_WORDS[self._change.verb])
        try:
            with work:
                self.answer = self._ask(given, work)
                while self.answer["outcome"] == "partial" and not work.is_cancelled():
                    self.answer = self._ask(given, work)
        except SessionError as error:
            if work.is_cancelled():
                return self.interrupted()
            if not self._begun():
                raise
            return self._stuck(error)
        if self.answer["outcome"] == "partial":
            self._say_done()
            self._say_how_to_go_on("")
            return INTERRUPTED
        if self.answer["outcome"] == "applied":
            self._say_done()
        left = self.answer.get("skipped") if self._change.at_once else None
        return PARTIAL if left else DONE

    def _begun(self) -> bool:
        """Whether a step of it was done, and it can be gone on with."""
        if self._handle is None:
            return self.answer.get("outcome") == "partial"
        plan = self._tools.home.ledger.plan(self._handle)
        if plan.state != "applying" or plan.batch is None:
            return False
        return bool(self._tools.home.ledger.steps(plan.batch))

    def _stuck(self, error: SessionError) -> int:
        self._err.whole(f"mcp-sessions: {said(error)}")
        self._say_how_to_go_on("A part of it was done, and the store is whole. ")
        return PARTIAL

    def _say_how_to_go_on(self, before: str) -> None:
        self._err.line(f"{before}Go on with it by")
        self._err.whole(f"  {self._go_on()}")

    def _nothing(self) -> None:
        if self._options.json:
            return
        self._out.line("Nothing to do.")
        for warning in self.answer["warnings"]:
            self._out.line(f"Note: {in_words(warning)}.")
        previews.protected(self._out, self.answer)
        if self._change.nothing:
            self._out.hint(self._change.nothing)

    def _say_plan(self, handle: str) -> None:
        if self._options.json:
            return
        until = local(self.answer["expires_at"])
        self._out.line()
        self._out.line(f"Nothing was changed. Plan {handle} can be applied until {until} by")
        self._out.whole(f"  {self._go_on()}")

    def _say_done(self) -> None:
        if self._options.json:
            return
        kind = "" if self._handle is None else self._state(self._handle)[1]
        self._change.done(self._out, kind, self.answer)
        batch = self.answer.get("batch")
        if batch and self._change.verb != "restore":
            part = "" if self.answer["outcome"] == "applied" else " what was done"
            self._out.line(f"Undo{part or ' it'} by")
            self._out.whole(f"  {command(self._options, 'restore', batch)}")

    def _go_on(self) -> str:
        change = self._change
        asked = ("--plan", self._handle) if self._handle else (change.asked["batch"],)
        return command(self._options, change.verb, *asked, *change.again)


_WORDS = {
    "prune": "Removing",
    "finalize": "Ending",
    "compress": "Compressing",
    "restore": "Bringing back",
}

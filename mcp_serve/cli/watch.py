"""`mcp-sessions watch`: print the events of a home, one line each, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import anyio

from mcp_serve.cli.command_errors import DONE
from mcp_serve.cli.missing_home import find_missing_reason
from mcp_serve.cli.options import add_home_options, add_json_option
from mcp_serve.cli.output import escape_answer, print_json
from mcp_serve.cli.terminal import Terminal, format_clock_time
from mcp_serve.cli.tool_calls import Answer, ToolCaller, get_terminal
from mcp_serve.plain_text import to_plain_line
from mcp_serve.tool_dispatcher import ToolDispatcher
from mcp_serve.tools import events
from session_core import Busy

EXAMPLES = """\
examples:
  mcp-sessions watch                         every event
  mcp-sessions watch --session 20261118_09   of one conversation
  mcp-sessions watch --json | jq -r .session_id
"""

_TIMEOUT_S = 5
"""The longest time for which a replaced home is still followed."""

_BUSY_DELAY_S = 1

_EVENT_LABELS = {
    "session_started": "began",
    "session_ended": "ended:",
    "title_changed": "renamed:",
    "route_changed": "now serves the chat",
    "compressed": "was compressed",
}

_EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    "message": (),
    "session_started": ("title",),
    "session_ended": ("reason",),
    "title_changed": ("title",),
    "route_changed": ("session_key",),
    "compressed": (),
}
"""Fields shown for each type of event."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--session", metavar="ID", help="only this session")
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print events until Ctrl-C."""
    with ToolCaller(options, new=True) as tools:
        anyio.run(_Watcher(options, tools).follow_stores)
    return DONE


class _Watcher:
    """A watcher of all served stores."""

    def __init__(self, options: argparse.Namespace, tools: ToolCaller) -> None:
        self._options = options
        self._tools = tools
        self._caller = ToolDispatcher(tools.served)
        self._out = get_terminal()

    async def follow_stores(self) -> None:
        """Follow the stores until an error."""
        served = self._tools.served
        homes = [str(served.get_place(name)) for name in served.home_names]
        where = ", ".join([*homes, *served.transcript_names])
        # A server that does not answer is reported here, and waited for later.
        missing = [find_missing_reason(home) for home in served.get_homes()]
        start = {"timeout_s": 0, "session": self._options.session}
        cursor = (await self._poll_events(start))["cursor"]
        if missing and all(missing) and not served.transcript_names:
            Terminal(sys.stderr).write_line(
                f"There is no home yet in {homes[0]} ({missing[0]}). Waiting until it is made; "
                "stop with Ctrl-C."
            )
        Terminal(sys.stderr).write_hint(f"Watching {where}; stop with Ctrl-C.")
        while True:
            answered = await self._poll_events({"cursor": cursor, "timeout_s": _TIMEOUT_S})
            cursor = answered["cursor"]
            self._write_events(answered)

    async def _poll_events(self, arguments: Answer) -> Answer:
        """Wait for events, and retry while another process holds the home exclusively."""
        read = events.SPEC.arguments.read({k: v for k, v in arguments.items() if v is not None})
        chosen = {name: getattr(read, name) for name in read.model_fields_set}
        while True:
            try:
                return await self._caller.call_tool(events.SPEC, chosen)
            except Busy:
                await anyio.sleep(_BUSY_DELAY_S)

    def _write_events(self, answered: Answer) -> None:
        if answered["gap"]:
            self._write_event(
                {"gap": True},
                "Some events were missed; list the sessions again.",
                self._out.write_line,
            )
        for event in answered["events"]:
            # Messages may be long and are cut. Other events end in an id or a key to copy.
            write = self._out.write_truncated if "role" in event else self._out.write_line
            self._write_event(event, _format_event(escape_answer(event)), write)
        sys.stdout.flush()

    def _write_event(self, event: Answer, line: str, write: Callable[[str], None]) -> None:
        if self._options.json:
            print_json(event, indent=None)
        else:
            write(line)


def _format_event(event: Answer) -> str:
    store = f"{event['store']}  " if "store" in event else ""
    message = f"{event['role']}: {event.get('text', '')}" if "role" in event else ""
    what = message or _EVENT_LABELS.get(event["type"], event["type"])
    details = ", ".join(str(event[name]) for name in _EVENT_FIELDS[event["type"]] if name in event)
    return (
        f"{format_clock_time(event['at'])}  {store}{event['session_id']}  "
        f"{to_plain_line(f'{what} {details}')}"
    )

"""`mcp-sessions demo`: build a sample home and query its server as a client does.

The home and its state are in a temporary folder; no real home is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from mcp_serve.cli import sample_home, transcript_summary
from mcp_serve.cli.command_errors import DONE
from mcp_serve.cli.options import choose_driver
from mcp_serve.cli.output import print_error
from mcp_serve.cli.sample_home import SampleHome, create_sample_home
from mcp_serve.cli.terminal import Terminal, format_age, format_bytes, format_milliseconds
from mcp_serve.plain_text import to_plain_line
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import SessionError, find_home

if TYPE_CHECKING:
    from mcp import Client

EXAMPLES = """\
examples:
  mcp-sessions demo           see the calls of a client and the answers
  mcp-sessions demo --keep    keep the sample home to explore it
  mcp-sessions demo --serve   serve a sample home for your own client
"""

_LISTENING_PREFIX = "listening on "
_STOP_TIMEOUT_S = 5
FILE_WIDTH = 80
"""The width without a terminal; times stand at the right margin."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this verb."""
    parser.add_argument(
        "--keep", action="store_true", help="keep the sample home and print its path"
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve the sample home: over HTTP at a terminal, else on standard input and output",
    )


def run(options: argparse.Namespace) -> int:
    """Run the tour or serve the sample home, and return the exit code."""
    # With --serve, standard output carries the protocol.
    out = Terminal(sys.stderr if options.serve else sys.stdout, file_width=FILE_WIDTH)
    choose_driver()
    with create_sample_home(keep=options.keep) as home:
        code = _serve_home(home, out) if options.serve else _run_tour(home, out)
        if options.keep:
            _show_location(home, out)
    if not options.serve:
        out.write_line()
        _show_agent_sessions(out)
        out.write_block("", "Next, register the server with a client; this lists your clients:")
        out.write_line("  mcp-sessions install")
    return code


def _show_agent_sessions(out: Terminal) -> None:
    """Name the sessions of other agents that the user can ask about."""
    served = ServedStores(ServerOptions())
    if served.transcript_names:
        transcript_summary.show_stores(out, served)
        out.write_line()
    served.close()


def _run_tour(home: SampleHome, out: Terminal) -> int:
    """Build the home, start its server as a client does, and run the tour."""
    import anyio  # noqa: PLC0415 -- the SDK is not needed for --serve
    from mcp import StdioServerParameters  # noqa: PLC0415

    from mcp_serve.cli.mcp_client import run_with_server  # noqa: PLC0415

    _show_preface(out)
    began = time.perf_counter()
    built = home.fill()
    out.write_heading("A sample home", format_milliseconds(time.perf_counter() - began))
    out.write_block("", f"Everyday talk, tools and other scripts: {built}.")
    began = time.perf_counter()

    async def walk(client: Client) -> None:
        took = format_milliseconds(time.perf_counter() - began)
        out.write_heading("Its server, started as a client starts it", took)
        out.write_block("", " ".join(["mcp-sessions", *home.serve_arguments]), style="dim")
        tools = (await client.list_tools()).tools
        out.write_line(f"MCP {client.protocol_version}, {len(tools)} tools.")
        await Tour(client, out).walk()

    program, *rest = home.command
    # In a separate folder, no file of the user can be imported as a module.
    started = StdioServerParameters(command=program, args=rest, cwd=home.folder)
    anyio.run(partial(run_with_server, started, walk))
    return DONE


def _show_preface(out: Terminal) -> None:
    driver, real = choose_driver(), find_home()
    fixed = "" if driver.fixed else "; before 3.51.3, which fixed a rare WAL race"
    out.write_block("SQLite      ", f"{driver.name} {driver.version}{fixed}")
    out.write_block("Real home   ", f"{real.place} ({real.found_by}; the demo leaves it alone)")


def _serve_home(home: SampleHome, out: Terminal) -> int:
    """Serve the home until the client closes standard input or the user presses Ctrl-C."""
    home.fill()
    person, token = sys.stdin.isatty(), secrets.token_urlsafe(24)
    process = subprocess.Popen(  # noqa: S603 -- starts this program
        [*home.command, *(["--http", "--port", "0"] if person else [])],
        env=os.environ | {"MCP_SESSIONS_TOKEN": token},
        cwd=home.folder,
        stderr=subprocess.PIPE if person else None,
        encoding="utf-8",
    )
    with suppress(KeyboardInterrupt), _stop_process(process):
        for line in process.stderr or ():
            if line.startswith(_LISTENING_PREFIX):
                _show_connection(out, line.removeprefix(_LISTENING_PREFIX).strip(), token)
            else:
                print_error(line, end="")
        return process.wait()
    return DONE


@contextmanager
def _stop_process(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _show_connection(out: Terminal, address: str, token: str) -> None:
    out.write_block("", "A sample home is served until Ctrl-C. To connect a client, for example:")
    out.write_unwrapped(f"  claude mcp add --transport http demo {address} \\")
    out.write_unredacted(f'    --header "Authorization: Bearer {token}"')
    out.write_block("", "Or let a client start it:")
    out.write_line("  mcp-sessions demo --serve")


def _show_location(home: SampleHome, out: Terminal) -> None:
    out.write_line()
    out.write_unwrapped(f"The sample home stays in {home.path}")
    out.write_line("Explore it with:")
    setting = "set {}" if sys.platform == "win32" else "export {}"
    out.write_unwrapped("  " + setting.format(f"MCP_SESSIONS_HOME={home.path}"))
    out.write_line("  mcp-sessions list --store own")
    out.write_line("  mcp-sessions doctor")


Answer = dict[str, Any]

_NEWEST_COUNT = 6
_PAGE_SIZE = 50
_SHOWN_COUNT = 4
_MAX_LINES = 2

_QUERIES = (
    ("a plain question", "what did we decide about the orders schema?"),
    ("an exact identifier", "orders_sync.flush_batch"),
    ("an error code", "ERR_POOL_4711"),
    ("two characters", "予算"),
    ("a word that was summarised away", "pager"),
    ("text beside a picture", "screenshot"),
    ("a word in an earlier part", "Alfama"),
)


class Tour:
    """The tour with a connected client."""

    def __init__(self, client: Client, out: Terminal) -> None:
        self._client = client
        self._out = out

    async def walk(self) -> None:
        """List, read, search, check, prune and restore."""
        await self._list_sessions()
        await self._read_session()
        await self._search_sessions()
        await self._show_stats()
        batch = await self._prune_home()
        await self._show_counts()
        await self._restore_batch(batch)
        await self._show_counts()

    async def _list_sessions(self) -> None:
        self._out.write_heading("What have I worked on?")
        listed = (await self._call_tool("sessions_list", limit=_NEWEST_COUNT))["sessions"]
        self._out.write_truncated(f"{'active':>7}  {'from':<9} {'msgs':>4}  title", "dim")
        for session in listed:
            title = to_plain_line(session["title"] or session["preview"] or "(empty)")
            age = format_age(session["last_active_at"])
            self._out.write_truncated(
                f"{age:>7}  {session['source']:<9} {session['messages']:>4}  {title}"
            )

    async def _read_session(self) -> None:
        self._out.write_heading("What was said in the long one?")
        answer = await self._call_tool(
            "sessions_read", session=sample_home.LONG_SESSION_ID, limit=_PAGE_SIZE
        )
        messages = answer["messages"]
        self._out.write_truncated(
            f"{len(messages)} messages; the last {_SHOWN_COUNT} of them:", "dim"
        )
        for message in messages[-_SHOWN_COUNT:]:
            self._out.write_block(
                f"{message['role']:<10}", to_plain_line(message["text"]), lines=_MAX_LINES
            )

    async def _search_sessions(self) -> None:
        self._out.write_heading("Where was that said?")
        for kind, query in _QUERIES:
            hits = (await self._call_tool("sessions_search", query=query))["hits"]
            best = f"{hits[0]['title']}: {hits[0]['snippet']}" if hits else "nothing found"
            self._out.write_block("   ", f"({kind}) {to_plain_line(best)}", lines=_MAX_LINES)

    async def _show_stats(self) -> None:
        from mcp_serve.cli import plan_output  # noqa: PLC0415 -- loads plans, not for --serve

        self._out.write_heading("Is anything wrong?")
        answer = await self._call_tool("sessions_stats")
        self._out.write_block("", f"{_format_counts(answer)}, {format_bytes(answer['size']['db'])}")
        for finding in answer["findings"]:
            mended = f" -> {finding['tool']}" if finding["tool"] else ""
            text = plan_output.describe_finding(
                finding["code"], finding["count"], to_plain_line(finding["what"])
            )
            self._out.write_block("   ", text + mended)

    async def _prune_home(self) -> str:
        """Plan and apply a prune, and return the batch that undoes it."""
        self._out.write_heading("What would a cleanup remove? Nothing is changed yet.")
        planned = await self._call_tool("sessions_prune", what="all")
        size = planned["bytes"]
        freed = format_bytes(size["free_in_file"] + size["returned_to_disk"])
        text = f"A plan of {planned['count']} items that frees {freed}. By kind:"
        self._out.write_block("", text)
        kinds = groupby(planned["items"], key=lambda item: item["why"].split()[0])
        for first, *others in (list(kind) for _, kind in kinds):
            title = to_plain_line(first["title"] or first["id"])
            line = f"{title}: {to_plain_line(first['why'])}"
            self._out.write_block(f"{1 + len(others):>5}  ", line, lines=_MAX_LINES)
        self._out.write_heading("Apply exactly this plan; everything goes to the trash first.")
        applied = await self._call_tool("sessions_prune", plan=planned["plan"])
        skipped = f", {len(applied['skipped'])} skipped" if applied["skipped"] else ""
        text = f"{applied['outcome']}: {applied['removed']} removed{skipped}"
        self._out.write_block("", text)
        return str(applied["batch"])

    async def _restore_batch(self, batch: str) -> None:
        self._out.write_heading("Undo it.")
        answer = await self._call_tool("sessions_restore", batch=batch)
        self._out.write_block("", f"{answer['outcome']}: {answer['restored']} restored")

    async def _show_counts(self) -> None:
        answer = await self._call_tool("sessions_stats")
        self._out.write_block("", _format_counts(answer))

    async def _call_tool(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool and show the call with its time."""
        began = time.perf_counter()
        answer = await self._client.call_tool(tool, arguments)
        took = time.perf_counter() - began
        call = f"{tool} {json.dumps(arguments, ensure_ascii=False)}"
        self._out.write_both_sides(call, format_milliseconds(took))
        if answer.is_error or answer.structured_content is None:
            raise SessionError(f"{tool} failed: {answer.content}")
        return dict(answer.structured_content)


def _format_counts(answer: Answer) -> str:
    sessions = answer["sessions"]
    return (
        f"{sessions['total']:,} sessions ({sessions['open']:,} open), "
        f"{answer['messages']:,} messages"
    )

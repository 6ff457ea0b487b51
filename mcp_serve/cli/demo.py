"""`mcp-sessions demo`: build a sample home and query its server as a client does.

The home and its state are in a temporary folder; no real home is touched.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from mcp_serve.cli import transcript_summary
from mcp_serve.cli.demo_home.sample import SampleHome, create_sample_home
from mcp_serve.cli.errors import DONE
from mcp_serve.cli.options import choose_driver
from mcp_serve.cli.output import print_error
from mcp_serve.cli.terminal import Terminal, format_milliseconds
from mcp_serve.stores import ServedStores, ServerOptions
from session_core import find_home

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
    """Run the tour or serve the sample home; return the exit code."""
    # With --serve, standard output carries the protocol.
    out = Terminal(sys.stderr if options.serve else sys.stdout, file_width=FILE_WIDTH)
    choose_driver()
    with create_sample_home(keep=options.keep) as home:
        code = _serve_home(home, out) if options.serve else _run_tour(home, out)
        if options.keep:
            _show_location(home, out)
    if not options.serve:
        out.write_line()
        _show_own_sessions(out)
        out.write_block("", "Next, register the server with a client; this lists your clients:")
        out.write_line("  mcp-sessions install")
    return code


def _show_own_sessions(out: Terminal) -> None:
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

    from mcp_serve.cli.demo_home.tour import Tour  # noqa: PLC0415
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
    out.write_block("Real home   ", f"{real.path} ({real.found_by}; the demo leaves it alone)")


def _serve_home(home: SampleHome, out: Terminal) -> int:
    """Serve the home until the client closes standard input or the user presses Ctrl-C."""
    home.fill()
    person, token = sys.stdin.isatty(), secrets.token_urlsafe(24)
    process = subprocess.Popen(  # noqa: S603 -- ourselves
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
    out.write_secret(f'    --header "Authorization: Bearer {token}"')
    out.write_block("", "Or let a client start it:")
    out.write_line("  mcp-sessions demo --serve")


def _show_location(home: SampleHome, out: Terminal) -> None:
    out.write_line()
    out.write_unwrapped(f"The sample home stays in {home.path}")
    out.write_line("Explore it with:")
    setting = "set {}" if sys.platform == "win32" else "export {}"
    out.write_unwrapped("  " + setting.format(f"MCP_SESSIONS_HOME={home.path}"))
    out.write_line("  mcp-sessions list")
    out.write_line("  mcp-sessions doctor")

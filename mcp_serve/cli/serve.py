"""`mcp-sessions serve`: run the MCP server on standard input and output, or over HTTP."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from mcp_serve.cli.argument_parser import make_integer_parser
from mcp_serve.cli.command_errors import INTERRUPTED
from mcp_serve.cli.options import add_extension_option, add_home_options
from mcp_serve.stores.stores import ServedStores, ServerOptions

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_HOST, _PORT = "127.0.0.1", 8765

EXAMPLES = """\
examples:
  mcp-sessions serve --read-only         without the tools that change data
  mcp-sessions serve --all-profiles      with all profiles of the Hermes home
  mcp-sessions serve --http --port 0     over HTTP, on a free port
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    add_home_options(parser)
    parser.add_argument(
        "--read-only", action="store_true", help="leave out the tools that change data"
    )
    parser.add_argument(
        "--confirm",
        choices=("ask", "never"),
        default="ask",
        help="ask the user before a plan is applied, if the client can ask (default: ask)",
    )
    parser.add_argument("--no-redact", action="store_true", help="do not redact secrets")
    add_extension_option(parser)
    http = parser.add_argument_group("HTTP")
    http.add_argument("--http", action="store_true", help="serve /mcp and /sse over HTTP")
    http.add_argument("--host", help=f"address to listen on (default: {_HOST})")
    http.add_argument(
        "--port",
        type=make_integer_parser(0, 65_535),
        help=f"port to listen on (default: {_PORT}); 0 takes a free one",
    )
    http.add_argument(
        "--allow-host", action="append", default=[], help="accepted Host header; repeatable"
    )
    http.add_argument(
        "--allow-origin", action="append", default=[], help="accepted Origin header; repeatable"
    )
    http.add_argument("--no-token", action="store_true", help="require no token; only on loopback")


def run(options: argparse.Namespace) -> int:
    """Serve until the input ends or the process is terminated."""
    if not options.http:
        _refuse_http_options(options)
    served = ServedStores(
        ServerOptions(
            home=options.home,
            stores=options.store,
            all_profiles=options.all_profiles,
            read_only=options.read_only,
            redact=not options.no_redact,
            confirm=options.confirm == "ask",
            load_extension=options.load_extension,
            finds_transcripts=not options.http or _is_loopback(options.host or _HOST),
            runs_long=True,
            before=_choose_driver,
        )
    )
    try:
        if options.http:
            _serve_http(served, options)
        else:
            # Before models are built, since pydantic reports a Ctrl-C during that as its own error.
            _exit_on_interrupt()
            if sys.stdin.isatty():
                _explain_to_person(served)
            mcp_server = _create_server(served)
            from mcp_serve.sdk import stdio  # noqa: PLC0415 -- the SDK, as above

            stdio.serve_stdio(mcp_server)
    finally:
        served.close()
    return 0


def _explain_to_person(served: ServedStores) -> None:
    """Print that the server waits for a client, if a person has started it at a terminal."""
    from mcp_serve.cli.terminal import Terminal  # noqa: PLC0415 -- not for a client

    out = Terminal(sys.stderr)
    stores = ", ".join(served.names)
    out.write_line(f"Serving {stores} over MCP on standard input and output, until Ctrl-C.")
    out.write_line("A client starts this command itself. To register it with one:")
    out.write_unwrapped("  mcp-sessions install")
    out.write_line("To serve clients over HTTP instead:")
    out.write_unwrapped("  mcp-sessions serve --http")


def _is_loopback(host: str) -> bool:
    from mcp_serve.http.auth import is_loopback  # noqa: PLC0415 -- not for a server on standard input

    return is_loopback(host)


def _refuse_http_options(options: argparse.Namespace) -> None:
    """Refuse HTTP options without `--http`.

    Raises:
        InvalidInput: An HTTP option was given.
    """
    names = ("host", "port", "allow_host", "allow_origin", "no_token")
    unset: tuple[object, ...] = (None, [])
    values = ((name, getattr(options, name)) for name in names)
    option = next((name for name, it in values if it is not False and it not in unset), None)
    if option is not None:
        from session_core import InvalidInput  # noqa: PLC0415 -- loaded after the first answer

        raise InvalidInput(f"--{option.replace('_', '-')} applies only to HTTP; add --http")


def _exit_on_interrupt() -> None:
    """Exit at once on Ctrl-C, as on SIGTERM.

    Interrupted work can be continued.
    """

    # A thread reads standard input and cannot be stopped before the next line.
    def end(*_: object) -> None:
        os._exit(INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)


def _choose_driver() -> None:
    from mcp_serve.cli.options import choose_driver  # noqa: PLC0415 -- loaded after the first answer

    choose_driver()


def _serve_http(served: ServedStores, options: argparse.Namespace) -> None:
    from mcp_serve.http import app, auth  # noqa: PLC0415 -- not for a server on standard input
    from mcp_serve.http.auth import load_or_create_token  # noqa: PLC0415
    from mcp_serve.sdk.factory import make_stream_closer  # noqa: PLC0415

    _choose_driver()
    token = None if options.no_token else load_or_create_token(served.token_folder)
    host, port = options.host or _HOST, _PORT if options.port is None else options.port
    opened = auth.AccessRules.from_address(host, options.allow_host, options.allow_origin, token)
    listening = app.open_listener(host, port)
    server = _create_server(served)
    app.serve_app(app.create_app(server, opened), listening, host, make_stream_closer(server))


def _create_server(served: ServedStores) -> MCPServer[Any]:
    """Create the server, and exclude what is loaded by then from garbage collection."""
    # The modules imported here live until exit; a garbage collection would traverse all of them.
    gc.disable()
    from mcp_serve import server  # noqa: PLC0415 -- the SDK; errors are reported before it loads

    mcp_server = server.create_server(served)
    gc.freeze()
    gc.enable()
    return mcp_server

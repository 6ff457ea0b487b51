"""`mcp-sessions doctor`: check the home and every configured client, without changing anything."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import anyio
from mcp import Client, StdioServerParameters

from mcp_serve import render
from mcp_serve.cli import keep, missing_home, plan_output, transcript_summary
from mcp_serve.cli.argument_parser import parse_amount
from mcp_serve.cli.clients import config_files
from mcp_serve.cli.clients.supported_clients import (
    CLIENTS,
    ClientProgram,
    UserEnvironment,
    is_present,
)
from mcp_serve.cli.command_errors import DONE, FAILED, UNKNOWN_ID
from mcp_serve.cli.mcp_client import ServerUnreachable, run_with_server
from mcp_serve.cli.options import add_home_options, add_json_option, choose_driver
from mcp_serve.cli.output import print_json
from mcp_serve.cli.terminal import Terminal, format_bytes, measure_width
from mcp_serve.http import auth
from mcp_serve.plain_text import shorten_text, to_plain_line
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import (
    Corrupt,
    Denied,
    SessionError,
    find_active_profile,
    find_home,
    list_homes,
)
from session_core.maintenance import HealthReport
from session_core.state import DatabaseAddress

EXAMPLES = """\
examples:
  mcp-sessions doctor                  check the home and every configured client
  mcp-sessions doctor --all-profiles   check every profile too
  mcp-sessions doctor --json | jq '.checks[] | select(.state != "ok")'
  mcp-sessions doctor --token          print the bearer token of serve --http
"""

_STATE_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✔", "green"),
    "warning": ("!", "yellow"),
    "failure": ("✘", "red"),
}
_LABEL_WIDTH = 14
_NO_HOME = "no_home"
"""The code of the check that found no home."""
_COMMAND_PREFIXES = ("mcp-sessions ", "chmod ")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("--token", action="store_true", help="print only the bearer token")
    parser.add_argument(
        "--timeout",
        type=parse_amount,
        default=30,
        metavar="S",
        help="seconds to wait for a server (default: 30)",
    )
    add_home_options(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Run all checks, and return 1 if a check failed or 3 if there is no store."""
    served = ServedStores(
        ServerOptions(
            home=options.home,
            stores=options.store,
            all_profiles=options.all_profiles,
            read_only=True,
        )
    )
    if options.token:
        from mcp_serve.cli.options import choose_driver  # noqa: PLC0415 -- `--help` does not need it
        from mcp_serve.http.auth import load_token  # noqa: PLC0415

        choose_driver()
        token = load_token(served.token_folder)
        served.close()
        if options.json:
            print_json({"token": token})
        else:
            print(token)  # noqa: T201 -- the output of a command
        return DONE
    try:
        checks = (
            _print_checks(_run_checks(served, options))
            if options.json
            else _show_checks(_run_checks(served, options))
        )
    finally:
        served.close()
    missing = [check for check in checks if check.more.get("code") == _NO_HOME]
    if any(check.state == "failure" and check not in missing for check in checks):
        return FAILED
    return UNKNOWN_ID if missing else DONE


def _run_checks(served: ServedStores, options: argparse.Namespace) -> Iterator[Check]:

    yield from check_homes(served)
    yield check_sqlite()
    configured: list[ConfiguredClient] = []
    yield from check_clients(Path.cwd(), configured)
    homes = [str(served.get_place(name)) for name in served.home_names]
    yield from check_handshakes(served, configured, homes, options.timeout)


def _print_checks(checks: Iterator[Check]) -> list[Check]:
    results = list(checks)
    plain = [asdict(check) for check in results]
    plain = [fields | fields.pop("more") for fields in plain]
    print_json({"checks": plain})
    return results


def _show_checks(checks: Iterator[Check]) -> list[Check]:
    """Show each check as soon as it is done."""
    out, results = Terminal(sys.stdout), []
    for check in checks:
        mark, colour = _STATE_MARKS[check.state]
        head = f"{mark} {check.state:<8}{check.about:<{_LABEL_WIDTH}} "
        out.write_block(head, _shorten_home(check.says), style=colour)
        if check.next:
            _show_advice(out, " " * len(head) + "-> ", _shorten_home(check.next))
        sys.stdout.flush()
        results.append(check)
    out.write_line()
    out.write_line(_summarize_counts(Counter(check.state for check in results)))
    return results


def _show_advice(out: Terminal, head: str, text: str) -> None:
    """Show advice.

    A command that does not fit on the line gets a line of its own, uncut.
    """
    if text.startswith(_COMMAND_PREFIXES) and measure_width(head + text) > out.width:
        out.write_unwrapped(f"  -> {text}")
    else:
        out.write_block(head, text)


def _shorten_home(text: str) -> str:
    """Return a text with the home directory written as `~`."""
    return text.replace(f"{Path.home()}/", "~/")


def _summarize_counts(counts: Counter[State]) -> str:
    if counts.keys() == {"ok"}:
        return "No problems found."
    return f"{counts['failure']} failed, {counts['warning']} warnings."


@dataclass(frozen=True, slots=True)
class ConfiguredClient:
    """A client with the server in its configuration, and the command that it starts."""

    by: str
    """The argument of `install` that writes this entry again."""
    label: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


def check_clients(folder: Path, configured: list[ConfiguredClient]) -> Iterator[Check]:
    """Yield the state of each client, and append the configured clients to `configured`.

    Entries of a project are reported and never started, since the project may be untrusted.
    """
    machine, projects = UserEnvironment(), list[ConfiguredClient]()
    absent: list[Check] = []
    for client in CLIENTS:
        own, project = client.user(machine), client.find_file(machine, folder)
        is_here = client.is_installed(machine)
        check = _check_file(client, own, client.name, configured, is_here=is_here)
        if is_here or check.state != "ok" or "entries" in check.more:
            yield check
        else:
            absent.append(check)
        # In the home directory, some project files are also the files of the user.
        if project is not None and project != own and is_present(project):
            yield from _check_project(client, project, projects)
    if absent:
        names = [check.about for check in absent]
        yield Check(
            "other clients", "ok", f"not installed: {', '.join(names)}", more={"absent": names}
        )
    if not configured and not projects:
        yield Check(
            "clients",
            "warning",
            "the server is not registered with any client",
            "mcp-sessions install",
        )


def _check_project(
    client: ClientProgram, path: Path, projects: list[ConfiguredClient]
) -> Iterator[Check]:
    """Yield the state of a project file that names the server or cannot be read."""
    check = _check_file(client, path, f"{client.name} --project", projects, is_here=True)
    if "entries" in check.more:
        yield replace(check, says=f"{check.says} (this project); not started by doctor")
    elif check.state != "ok":
        yield check


def _check_file(
    client: ClientProgram,
    path: Path,
    by: str,
    configured: list[ConfiguredClient],
    *,
    is_here: bool,
) -> Check:
    more: dict[str, Any] = {"path": str(path)}
    try:
        entries = config_files.find_our_entries(client, path)
    except SessionError as error:
        advice = f"fix the file; mcp-sessions install {by} --print shows the entry"
        return Check(client.name, "failure", str(error).partition(";")[0], advice, more)
    if entries:
        configured += [_parse_entry(by, client.label, entry) for entry in entries.values()]
        return Check(
            client.name, "ok", f"registered in {path}", more=more | {"entries": list(entries)}
        )
    if is_here:
        text = f"installed; not registered in {path}"
        return Check(client.name, "ok", text, f"mcp-sessions install {by}", more)
    return Check(client.name, "ok", "not installed", more=more)


def _parse_entry(by: str, label: str, entry: dict[str, Any]) -> ConfiguredClient:
    env = entry.get("env", entry.get("environment"))
    pairs = env.items() if isinstance(env, dict) else ()
    variables = tuple((str(name), str(value)) for name, value in pairs)
    return ConfiguredClient(by, label, tuple(config_files.get_command_line(entry)), variables)


def check_handshakes(
    served: ServedStores, configured: list[ConfiguredClient], homes: list[str], timeout_s: float
) -> list[Check]:
    """Start all distinct configured commands concurrently, and return checks of their answers."""
    starts: dict[tuple[Any, Any], list[ConfiguredClient]] = {}
    for client in configured or [_describe_own_server(served)]:
        starts.setdefault((client.command, client.env), []).append(client)
    checks: dict[int, Check] = {}

    async def check_client(at: int, clients: list[ConfiguredClient]) -> None:
        checks[at] = await _check_handshake(clients, homes, timeout_s)

    async def check_all_clients() -> None:
        async with anyio.create_task_group() as tasks:
            for at, clients in enumerate(starts.values()):
                tasks.start_soon(check_client, at, clients)

    anyio.run(check_all_clients)
    return [checks[at] for at in sorted(checks)]


def _describe_own_server(served: ServedStores) -> ConfiguredClient:
    """Return this command as a client would start it, without an address as an argument."""
    command = (*config_files.find_command(shared=False), "serve")
    place = served.get_place() if served.home_names else None
    if isinstance(place, DatabaseAddress):
        shell = tuple(pair for pair in os.environ.items() if pair[0].startswith("PG"))
        env = (*shell, ("MCP_SESSIONS_HOME", place.address))
        return ConfiguredClient("", "this command", command, env)
    home = () if place is None else ("--home", str(place))
    return ConfiguredClient("", "this command", (*command, *home))


async def _check_handshake(
    clients: list[ConfiguredClient], homes: list[str], timeout_s: float
) -> Check:
    first = clients[0]
    labels = ", ".join(client.label for client in clients)
    more: dict[str, Any] = {
        "clients": [client.by for client in clients],
        "command": list(first.command),
    }
    program, *rest = first.command or ("",)
    started = StdioServerParameters(command=program, args=rest, env=dict(first.env))
    began = time.perf_counter()
    try:
        # Most clients still use the legacy handshake; the demo uses the newer one.
        answer = await run_with_server(started, _query_server, mode="legacy", timeout_s=timeout_s)
    except ServerUnreachable as error:
        advice = (
            f"mcp-sessions install {first.by}"
            if first.by
            else "run mcp-sessions serve to see the error"
        )
        text = f"{labels}: {error}; started as: {' '.join(first.command)}"
        return Check("handshake", "failure", text, advice, more)
    took = time.perf_counter() - began
    text = f"{labels}: {answer['tools']} tools in {took:.1f} s from {answer['home']}"
    more |= {"seconds": round(took, 3), **answer}
    if homes and answer["home"] not in homes:
        is_named = "--home" in first.command
        reason = (
            "its entry names that home"
            if is_named
            else "clients do not inherit the variables of this shell"
        )
        text += f", not {homes[0]}: {reason}"
        advice = f"mcp-sessions install {first.by} --home {homes[0]}"
        return Check("handshake", "warning", text, advice, more)
    return Check("handshake", "ok", text, more=more)


async def _query_server(client: Client) -> dict[str, Any]:
    tools = (await client.list_tools()).tools
    answer = await client.call_tool("sessions_stats")
    if answer.is_error or answer.structured_content is None:
        raise ServerUnreachable(f"sessions_stats failed: {answer.content}")
    return {"tools": len(tools), "home": answer.structured_content["home"]}


State = Literal["ok", "warning", "failure"]

_OTHERS_MODE = 0o077


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, with advice if the state is not ok."""

    about: str
    state: State
    says: str
    next: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Further JSON keys, so that a script need not parse the text."""


_FINDING_FIXES = {
    "duplicate_titles": "mcp-sessions edit ID --title TITLE",
    "broken_entries": "fix it by hand; the next change of a route sets a broken file aside",
    "long_log": "close the programs that have the database open; the last one truncates the log",
    "engine_fault": "install a newer SQLite",
    "blocked_index": "add --load-extension to serve, prune, compress, restore or import",
    "unreadable": "mcp-sessions stats --deep",
}
"""Advice for findings that no plan fixes."""

_STATE_ADVICE = "set MCP_SESSIONS_STATE to a folder that you own"

_HARMLESS_FINDINGS = ("never_ended", "drifted_counters")
"""Findings that need no action: sessions may be open, and counters are not relied on."""


def check_homes(served: ServedStores) -> Iterator[Check]:
    """Yield the checks of every chosen home."""
    choose_driver()
    yield _check_location(served)
    is_wrong = _has_wrong_name(served)
    for name in served.home_names:
        label = f" {name}" if len(served.home_names) > 1 else ""
        is_needless = bool(served.transcript_names) and name == "own"
        yield from _check_home(
            served.get_home(name), label, is_wrong=is_wrong, is_needless=is_needless
        )
    if served.transcript_names:
        yield from _check_transcripts(served)


def _has_wrong_name(served: ServedStores) -> bool:
    """Return True if the named home is missing.

    A home that cannot be read is reported later.
    """
    try:
        return missing_home.explain_wrong_name(served) is not None
    except SessionError:
        return False


def check_sqlite() -> Check:
    """Return the check of the SQLite version."""
    driver = choose_driver()
    text = f"{driver.version} ({driver.name})"
    if driver.fixed:
        return Check("sqlite", "ok", f"{text}; not affected by the checkpoint race")
    return Check(
        "sqlite",
        "warning",
        f"{text}: before 3.51.3, concurrent checkpoints can in rare cases damage a database",
        "pip install pysqlite3 (if a wheel exists), or use a Python with a newer SQLite",
    )


def _check_location(served: ServedStores) -> Check:
    home = find_home(served.options.home)
    names = list_homes(home)
    hint = f"; stores: {', '.join(names)}" if len(names) > 1 else ""
    profile = None if home.path is None else find_active_profile(home.path)
    active = shorten_text(to_plain_line(profile or ""))
    if active not in ("", "default"):
        hint += f"; the active profile of Hermes is {active}; serve it with --store hermes:{active}"
    text = f"{home.place} ({home.found_by}){hint}"
    more = {"path": str(home.place), "found_by": home.found_by}
    more |= {"active_profile": active} if active else {}
    is_secret = isinstance(home.place, DatabaseAddress) and not home.place.can_be_shown
    if is_secret and home.found_by == "--home":
        text += "; other users can read the password in the list of processes"
        advice = "move the password to a password file (PGPASSFILE) or a service file"
        return Check("home", "warning", text, advice, more)
    return Check("home", "ok", text, more=more)


def _check_transcripts(served: ServedStores) -> Iterator[Check]:
    """Yield the number of sessions and the newest title of each agent, or an error."""
    try:
        summaries = transcript_summary.summarize_stores(served)
    except SessionError as error:
        yield Check("transcripts", "failure", f"cannot be read: {error}", _STATE_ADVICE)
        return
    try:
        served.get_transcripts(None).labels.list_batches((), 1)
    except SessionError as error:
        yield Check("labels", "warning", str(error))
    for store in summaries:
        yield Check(store.name, "ok", store.describe(), more={"total": store.sessions})
        if store.problem is not None:
            more = {"code": "unknown_layout", "count": 1}
            yield Check(store.name, "warning", store.problem, more=more)
    try:
        status = served.get_transcripts(None).keep.measure_status()
    except SessionError as error:
        yield Check("keep", "failure", str(error))
        return
    says, more = keep.describe_status(status), {"keep": keep.render_status(status)}
    if status.problem is None:
        yield Check("keep", "ok", says, None if status.mode == "on" else keep.TURN_ON, more)
    else:
        yield Check("keep", "warning", f"{says} {status.problem}", _STATE_ADVICE, more)


def _check_home(
    home: ServedHome, label: str, *, is_wrong: bool, is_needless: bool
) -> Iterator[Check]:
    about = f"sessions{label}"
    if home.db_path is None:
        from mcp_serve.cli.server_checks import check_server  # noqa: PLC0415 -- it imports this module

        checks = list(check_server(home, label))
        yield from checks
        # The database cannot be opened either.
        if any(check.state == "failure" for check in checks):
            return
    try:
        missing = missing_home.find_missing_reason(home)
        home.db.list_sessions(limit=1)
        health = None if missing else home.maintenance.health()
    except (SessionError, OSError) as error:
        yield Check(about, "failure", f"cannot be read: {error}", _advise_on_error(home, error))
    else:
        if health is None:
            if is_needless and not is_wrong:
                yield Check(about, "ok", "no home of our own yet; transcripts need none")
                return
            yield _check_missing_home(home, about, missing, is_wrong=is_wrong)
        else:
            yield from _check_health(home, about, health)
    yield _check_gateway(home, label)
    yield from _check_state_folder(home, label)


def _check_missing_home(
    home: ServedHome, about: str, missing: str | None, *, is_wrong: bool
) -> Check:
    state: State = "failure" if is_wrong or missing_home.has_empty_database(home) else "warning"
    text = f"there is no home in {home.place}: {missing}"
    return Check(about, state, text, missing_home.suggest_remedy(home), {"code": _NO_HOME})


def _check_health(home: ServedHome, about: str, health: HealthReport) -> Iterator[Check]:
    counts, size = health.sessions, health.sizes.db if health.sizes else 0
    text = f"{counts.total:,} ({counts.open:,} open), {counts.messages:,} messages"
    text += f", {format_bytes(size)}"
    more = {"total": counts.total, "open": counts.open, "messages": counts.messages, "bytes": size}
    yield Check(about, "ok", text, more=more)
    for finding in health.findings:
        what = render.render_line(home, finding.what, 300) or finding.code
        what = plan_output.describe_finding(finding.code, finding.count, what)
        mends = (
            f"mcp-sessions {finding.tool} {finding.plan}"
            if finding.tool
            else _FINDING_FIXES.get(finding.code)
        )
        state: State = "failure" if finding.code == "unreadable" else "warning"
        if finding.code not in _HARMLESS_FINDINGS:
            yield Check(about, state, what, mends, {"code": finding.code, "count": finding.count})


def _advise_on_error(home: ServedHome, error: Exception) -> str:
    if not isinstance(home.place, Path):
        return "check the address, the password file and the server"
    if isinstance(error, Denied):
        return f"make it readable: ls -la {home.place}"
    if isinstance(error, Corrupt):
        return (
            f"stop the programs that write to it, copy {home.place}, then restore a backup "
            "or run `sqlite3 state.db .recover`"
        )
    return "try again; if it still fails, close the other programs that use the database"


def _check_gateway(home: ServedHome, label: str) -> Check:
    about, live = f"gateway{label}", home.find_gateway()
    others = ", ".join(f"{holder.name or '?'} ({holder.pid})" for holder in home.list_holders())
    holders_note = f"; database open in {others}" if others else ""
    if live is None:
        return Check(about, "ok", f"not running{holders_note}", more={"live": False})
    text = f"running as process {live.pid}; only it may change its routes{holders_note}"
    return Check(about, "ok", text, more={"live": True, "pid": live.pid})


def _check_state_folder(home: ServedHome, label: str) -> Iterator[Check]:
    about = f"state folder{label}"
    try:
        token = auth.find_token(home.token_folder)
        if home.db_path is None:
            yield Check(about, "ok", "in the database, with the home")
            yield _check_token(label, token)
            return
        folder = home.folder.find()
        home.folder.check_place()
        place, is_beside = home.folder.place, home.folder.is_adjacent
    except SessionError as error:
        yield Check(about, "failure", str(error), _STATE_ADVICE)
        return
    yield _check_folder_access(about, folder, place, is_beside=is_beside)
    yield _check_token(label, token)


def _check_token(label: str, token: str | None) -> Check:
    text = "set; mcp-sessions doctor --token prints it" if token else "none yet"
    return Check(f"token{label}", "ok", text if token else f"{text}; serve --http creates one")


def _check_folder_access(about: str, folder: Path | None, place: Path, *, is_beside: bool) -> Check:
    """Return the check of the state folder, which must be writable and private."""
    existing = _find_existing_folder(place)
    more = {"path": str(folder)} if folder else {}
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        text = f"{existing} is not writable, so changes and undo are not possible"
        mends = f"make it writable: ls -la {existing}" if is_beside else _STATE_ADVICE
        return Check(about, "failure", text, mends, more)
    if folder is None:
        return Check(about, "ok", f"none yet; the first change creates one in {place.parent}")
    if os.name == "posix" and stat.S_IMODE(folder.stat().st_mode) & _OTHERS_MODE:
        text = f"other users can read {folder}, including the trash"
        return Check(about, "warning", text, f"chmod 700 {folder}", more)
    return Check(about, "ok", f"{folder}, private", more=more)


def _find_existing_folder(folder: Path) -> Path:
    """Return the folder, or its closest existing parent."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))

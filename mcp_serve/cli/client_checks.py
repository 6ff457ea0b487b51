"""The checks of `doctor` on configured clients: their files, and the servers that they start."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from mcp_serve.cli.clients import config_files
from mcp_serve.cli.clients.supported_clients import (
    CLIENTS,
    ClientProgram,
    UserEnvironment,
    is_present,
)
from mcp_serve.cli.home_checks import Check
from mcp_serve.cli.mcp_client import ServerUnreachable, run_with_server
from mcp_serve.stores.stores import ServedStores
from session_core import SessionError
from session_core.state import DatabaseAddress


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
    for client in configured or [_make_own_client(served)]:
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


def _make_own_client(served: ServedStores) -> ConfiguredClient:
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

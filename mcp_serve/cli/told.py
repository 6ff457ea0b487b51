"""What `doctor` says of the clients: which know of the server, and what they get from it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from mcp import Client as Asking
from mcp import StdioServerParameters

from mcp_serve.cli.checks import Check
from mcp_serve.cli.clients import change, server
from mcp_serve.cli.clients.places import CLIENTS, Client, Machine, is_there
from mcp_serve.cli.talk import NoServer, talk
from session_core import SessionError


@dataclass(frozen=True, slots=True)
class Told:
    """A client that has the server in its configuration, and what it starts."""

    by: str
    """What installs it anew."""
    label: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


def of_clients(folder: Path, told: list[Told]) -> Iterator[Check]:
    """Yield how each client is, and note what those start that know of us.

    What a project says is told and never started: it may be anybody's, who named us in there.
    """
    machine, projects = Machine(), list[Told]()
    for client in CLIENTS:
        own, project = client.user(machine), client.file(machine, folder)
        is_here = client.is_here(machine)
        yield _of_file(client, own, client.name, told, is_here=is_here)
        # In the folder of the user some files of a project are those of the user.
        if project is not None and project != own and is_there(project):
            yield from _of_project(client, project, projects)
    if not told and not projects:
        yield Check("clients", "warning", "none knows of this server", "mcp-sessions install")


def _of_project(client: Client, path: Path, projects: list[Told]) -> Iterator[Check]:
    """Yield what a file of a project says, where that is about us."""
    found = _of_file(client, path, f"{client.name} --project", projects, is_here=True)
    if "entries" in found.more:
        yield replace(found, says=f"{found.says}, of this project; it is not started here")
    elif found.state != "ok":
        yield found


def _of_file(client: Client, path: Path, by: str, told: list[Told], *, is_here: bool) -> Check:
    more: dict[str, Any] = {"path": str(path)}
    try:
        entries = change.ours_in(client, path)
    except SessionError as error:
        again = f"mend the file; mcp-sessions install {by} --print shows what belongs into it"
        return Check(client.name, "failure", str(error).partition(";")[0], again, more)
    if entries:
        told += [_told(by, client.label, entry) for entry in entries.values()]
        return Check(client.name, "ok", f"told, in {path}", more=more | {"entries": list(entries)})
    if is_here:
        said = f"here and not told, in {path}"
        return Check(client.name, "ok", said, f"mcp-sessions install {by}", more)
    return Check(client.name, "ok", f"not here; it would be told in {path}", more=more)


def _told(by: str, label: str, entry: dict[str, Any]) -> Told:
    env = entry.get("env", entry.get("environment"))
    pairs = env.items() if isinstance(env, dict) else ()
    given = tuple((str(name), str(value)) for name, value in pairs)
    return Told(by, label, tuple(server.words(entry)), given)


def of_handshakes(told: list[Told], homes: list[Path], timeout_s: float) -> list[Check]:
    """Start what each client starts, each once and all at once; return how they answered."""
    starts: dict[tuple[Any, Any], list[Told]] = {}
    ours = (*server.command(shared=False), "serve", "--home", str(homes[0]))
    for each in told or [Told("", "this command", ours)]:
        starts.setdefault((each.command, each.env), []).append(each)
    found: dict[int, Check] = {}

    async def shake(at: int, those: list[Told]) -> None:
        found[at] = await _shake(those, homes, timeout_s)

    async def shake_all() -> None:
        async with anyio.create_task_group() as tasks:
            for at, those in enumerate(starts.values()):
                tasks.start_soon(shake, at, those)

    anyio.run(shake_all)
    return [found[at] for at in sorted(found)]


async def _shake(those: list[Told], homes: list[Path], timeout_s: float) -> Check:
    first = those[0]
    labels = ", ".join(each.label for each in those)
    more: dict[str, Any] = {"clients": [each.by for each in those], "command": list(first.command)}
    program, *rest = first.command or ("",)
    started = StdioServerParameters(command=program, args=rest, env=dict(first.env))
    began = time.perf_counter()
    try:
        # Most clients still begin so; the newer way is tried by the demo.
        answer = await talk(started, _ask, mode="legacy", timeout_s=timeout_s)
    except NoServer as error:
        again = f"mcp-sessions install {first.by}" if first.by else "mcp-sessions serve says more"
        said = f"{labels}: {error}, when {' '.join(first.command)} was started"
        return Check("handshake", "failure", said, again, more)
    took = time.perf_counter() - began
    said = f"{labels}: {answer['tools']} tools in {took:.1f} s, of {answer['home']}"
    more |= {"seconds": round(took, 3), **answer}
    if "--home" not in first.command and Path(answer["home"]) not in homes:
        said += f", which is not {homes[0]}: a client does not have the variables of this shell"
        again = f"mcp-sessions install {first.by} --home {homes[0]}"
        return Check("handshake", "warning", said, again, more)
    return Check("handshake", "ok", said, more=more)


async def _ask(client: Asking) -> dict[str, Any]:
    tools = (await client.list_tools()).tools
    answer = await client.call_tool("sessions_stats")
    if answer.is_error or answer.structured_content is None:
        raise NoServer(f"sessions_stats has failed: {answer.content}")
    return {"tools": len(tools), "home": answer.structured_content["home"]}

"""`mcp-sessions doctor`: how the home is, and whether the clients get to it; it changes nothing.

What `doctor` says of the clients: which know of the server, and what they get from it.

What `doctor` looks at in a home and around it; nothing is written, nothing is made.
"""

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
from typing import TYPE_CHECKING, Any, Literal

import anyio
from mcp import Client as Asking
from mcp import StdioServerParameters

from mcp_serve import render
from mcp_serve.cli import missing_home, plan_output
from mcp_serve.cli.arguments import amount
from mcp_serve.cli.clients import files
from mcp_serve.cli.clients.places import CLIENTS, Client, Machine, is_there
from mcp_serve.cli.errors import DONE, FAILED
from mcp_serve.cli.mcp_client import NoServer, talk
from mcp_serve.cli.options import choose_driver, of_answers, of_homes
from mcp_serve.cli.output import print_json
from mcp_serve.cli.screen import GREEN, RED, YELLOW, Screen, columns
from mcp_serve.homes import Home
from mcp_serve.http import auth
from mcp_serve.profiles import Options, Served
from mcp_serve.render import plain, shorten
from session_core import (
    Corrupt,
    Denied,
    Health,
    SessionError,
    active_profile,
    find_home,
    gateway,
    holders,
    profiles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


EXAMPLES = """\
examples:
  mcp-sessions doctor                  how the home is, and what each client gets
  mcp-sessions doctor --all-profiles   every profile of it
  mcp-sessions doctor --json | jq '.checks[] | select(.state != "ok")'
  mcp-sessions doctor --token          the bearer token of serve --http alone
"""

_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✔", GREEN),
    "warning": ("!", YELLOW),
    "failure": ("✘", RED),
}
_ABOUT = 14
_COMMANDS = ("mcp-sessions ", "chmod ")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what it takes."""
    parser.add_argument("--token", action="store_true", help="print the bearer token alone")
    parser.add_argument(
        "--timeout", type=amount, default=30, metavar="S", help="how long a server may take (30)"
    )
    of_homes(parser)
    of_answers(parser)


def run(options: argparse.Namespace) -> int:
    """Look at everything; return whether something has failed."""
    served = Served(
        Options(
            home=options.home,
            profiles=options.profile,
            all_profiles=options.all_profiles,
            read_only=True,
        )
    )
    if options.token:
        from mcp_serve.cli.options import choose_driver  # noqa: PLC0415 -- not for the help
        from mcp_serve.http.auth import token_of  # noqa: PLC0415

        choose_driver()
        token = token_of(served.home().folder)
        served.close()
        if options.json:
            print_json({"token": token})
        else:
            print(token)  # noqa: T201 -- the output of a command
        return DONE
    try:
        checks = _as_json(_all(served, options)) if options.json else _show(_all(served, options))
    finally:
        served.close()
    return FAILED if any(each.state == "failure" for each in checks) else DONE


def _all(served: Served, options: argparse.Namespace) -> Iterator[Check]:

    yield from check_homes(served)
    yield of_sqlite()
    knowing: list[Told] = []
    yield from of_clients(Path.cwd(), knowing)
    homes = [served.path(name) for name in served.names]
    yield from of_handshakes(knowing, homes, options.timeout)


def _as_json(checks: Iterator[Check]) -> list[Check]:
    found = list(checks)
    plain = [asdict(each) for each in found]
    plain = [each | each.pop("more") for each in plain]
    print_json({"checks": plain})
    return found


def _show(checks: Iterator[Check]) -> list[Check]:
    """Show each as soon as it is known."""
    screen, found = Screen(sys.stdout), []
    for each in checks:
        mark, colour = _MARKS[each.state]
        head = f"{mark} {each.state:<8}{each.about:<{_ABOUT}} "
        screen.block(head, _short(each.says), style=colour)
        if each.next:
            _advise(screen, " " * len(head) + "-> ", _short(each.next))
        sys.stdout.flush()
        found.append(each)
    screen.line()
    screen.line(_sum(Counter(each.state for each in found)))
    return found


def _advise(screen: Screen, head: str, text: str) -> None:
    """Say what to do next; a command that does not fit beside its head stands whole below."""
    if text.startswith(_COMMANDS) and columns(head + text) > screen.width:
        screen.whole(f"  -> {text}")
    else:
        screen.block(head, text)


def _short(text: str) -> str:
    """Return a text with the folder of the user as people write it."""
    return text.replace(f"{Path.home()}/", "~/")


def _sum(counts: Counter[State]) -> str:
    if counts.keys() == {"ok"}:
        return "Nothing is wrong."
    return f"{counts['failure']} failed, {counts['warning']} to look at."


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
        entries = files.ours_in(client, path)
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
    return Told(by, label, tuple(files.words(entry)), given)


def of_handshakes(told: list[Told], homes: list[Path], timeout_s: float) -> list[Check]:
    """Start what each client starts, each once and all at once; return how they answered."""
    starts: dict[tuple[Any, Any], list[Told]] = {}
    ours = (*files.command(shared=False), "serve", "--home", str(homes[0]))
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


State = Literal["ok", "warning", "failure"]

_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, and what to do where it is not as it should be."""

    about: str
    state: State
    says: str
    next: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """What a script would else have to read out of the words."""


_NEXT = {
    "duplicate_titles": "mcp-sessions edit ID --title TITLE",
    "broken_entries": "mend it by hand; the next change of a route sets a broken file aside",
    "long_log": "end the programs that have the database open; the last to close it cuts the log",
    "engine_fault": "install a newer SQLite",
    "blocked_index": "add --load-extension to serve, prune, compress, restore or import",
    "unreadable": "mcp-sessions stats --deep",
}
"""What mends a finding that no plan does."""

_ANOTHER_STATE = "set MCP_SESSIONS_STATE to a folder of yours"

_HARMLESS = ("never_ended", "drifted_counters")
"""Findings that are as they are: sessions may be open, and no counter is trusted."""


def check_homes(served: Served) -> Iterator[Check]:
    """Yield how every home is that was asked for."""
    choose_driver()
    yield _found(served)
    is_wrong = missing_home.wrong(served) is not None
    for name in served.names:
        label = f" {name}" if len(served.names) > 1 else ""
        yield from _of_home(served.home(name), label, is_wrong=is_wrong)


def of_sqlite() -> Check:
    """Return on which SQLite this runs."""
    driver = choose_driver()
    said = f"{driver.version} ({driver.name})"
    if driver.fixed:
        return Check("sqlite", "ok", f"{said}, without the checkpoint race")
    return Check(
        "sqlite",
        "warning",
        f"{said}: before 3.51.3 two checkpoints at once could, rarely, damage a database",
        "pip install pysqlite3, where there is a wheel of it, or a Python with a newer SQLite",
    )


def _found(served: Served) -> Check:
    found = find_home(served.options.home)
    names = ", ".join(profiles(found.path))
    hint = f"; its profiles are {names}" if names != "default" else ""
    active = shorten(plain(active_profile(found.path) or ""))
    if active not in ("", "default"):
        hint += f"; Hermes starts in {active}, which is not followed (--profile serves it)"
    said = f"{found.path} ({found.found_by}){hint}"
    more = {"path": str(found.path), "found_by": found.found_by}
    more |= {"active_profile": active} if active else {}
    return Check("home", "ok", said, more=more)


def _of_home(home: Home, label: str, *, is_wrong: bool) -> Iterator[Check]:
    about = f"sessions{label}"
    try:
        missing = missing_home.reason(home.path)
        home.db.list_sessions(limit=1)
        health = None if missing else home.maintenance.health()
    except (SessionError, OSError) as error:
        yield Check(about, "failure", f"cannot be read: {error}", _way_out(home, error))
    else:
        if health is None:
            yield _of_missing(home, about, missing, is_wrong=is_wrong)
        else:
            yield from _of_health(home, about, health)
    yield _of_gateway(home, label)
    yield from _of_state(home, label)


def _of_missing(home: Home, about: str, missing: str | None, *, is_wrong: bool) -> Check:
    state: State = "failure" if is_wrong or missing_home.is_empty(home.path) else "warning"
    said = f"there is no home in {home.path}: {missing}"
    return Check(about, state, said, missing_home.to_do(home.path))


def _of_health(home: Home, about: str, health: Health) -> Iterator[Check]:
    counts, size = health.sessions, health.sizes.db if health.sizes else 0
    said = f"{counts.total:,} ({counts.open:,} open), {counts.messages:,} messages"
    said += f", {size / 1e6:,.1f} MB"
    more = {"total": counts.total, "open": counts.open, "messages": counts.messages, "bytes": size}
    yield Check(about, "ok", said, more=more)
    for each in health.findings:
        what = render.one_line(home, each.what, 300) or each.code
        what = plan_output.said(each.code, each.count, what)
        mends = f"mcp-sessions {each.tool} {each.plan}" if each.tool else _NEXT.get(each.code)
        state: State = "failure" if each.code == "unreadable" else "warning"
        if each.code not in _HARMLESS:
            yield Check(about, state, what, mends, {"code": each.code, "count": each.count})


def _way_out(home: Home, error: Exception) -> str:
    if isinstance(error, Denied):
        return f"make it yours to read: ls -la {home.path}"
    if isinstance(error, Corrupt):
        return (
            f"stop what writes to it, keep a copy of {home.path}, then put a backup in its place "
            "or let `sqlite3 state.db .recover` save what is left"
        )
    return "try again; if it stays so, stop what else has the database open"


def _of_gateway(home: Home, label: str) -> Check:
    about, live = f"gateway{label}", gateway(home.db_path.parent)
    others = ", ".join(f"{each.name or '?'} ({each.pid})" for each in holders(home.db_path))
    beside = f"; the database is open in {others}" if others else ""
    if live is None:
        return Check(about, "ok", f"none is live{beside}", more={"live": False})
    said = f"live, as process {live.pid}; its routes are changed by itself alone{beside}"
    return Check(about, "ok", said, more={"live": True, "pid": live.pid})


def _of_state(home: Home, label: str) -> Iterator[Check]:
    about = f"state folder{label}"
    try:
        found = home.folder.find()
        given = auth.found(home.folder)
        home.folder.check_place()
        place, is_beside = home.folder.place, home.folder.is_beside_database
    except SessionError as error:
        yield Check(about, "failure", str(error), _ANOTHER_STATE)
        return
    yield _of_folder(about, found, place, is_beside=is_beside)
    said = "there is one; mcp-sessions doctor --token prints it" if given else "none yet"
    yield Check(f"token{label}", "ok", f"{said}, serve --http makes one" if not given else said)


def _of_folder(about: str, found: Path | None, place: Path, *, is_beside: bool) -> Check:
    """Return whether what is kept is kept, and from others."""
    existing = _existing(place)
    more = {"path": str(found)} if found else {}
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        said = f"{existing} may not be written, so nothing can be changed and undone"
        mends = f"make it yours to write: ls -la {existing}" if is_beside else _ANOTHER_STATE
        return Check(about, "failure", said, mends, more)
    if found is None:
        return Check(about, "ok", f"none yet; the first change makes one in {place.parent}")
    if os.name == "posix" and stat.S_IMODE(found.stat().st_mode) & _OTHERS:
        said = f"{found} is open to others, with what is in the trash"
        return Check(about, "warning", said, f"chmod 700 {found}", more)
    return Check(about, "ok", f"{found}, yours alone", more=more)


def _existing(folder: Path) -> Path:
    """Return the folder, or the first one above it that is there."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))

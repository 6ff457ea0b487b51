"""What `doctor` looks at in a home and around it; nothing is written, nothing is made."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp_serve import rows, token
from mcp_serve.cli import absent, findings
from mcp_serve.cli.driver import choose_driver
from mcp_serve.homes import Home
from mcp_serve.quoting import plain, shorten
from mcp_serve.served import Served
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


def of_homes(served: Served) -> Iterator[Check]:
    """Yield how every home is that was asked for."""
    choose_driver()
    yield _found(served)
    is_wrong = absent.wrong(served) is not None
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
        missing = absent.reason(home.path)
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
    state: State = "failure" if is_wrong or absent.is_empty(home.path) else "warning"
    said = f"there is no home in {home.path}: {missing}"
    return Check(about, state, said, absent.to_do(home.path))


def _of_health(home: Home, about: str, health: Health) -> Iterator[Check]:
    counts, size = health.sessions, health.sizes.db if health.sizes else 0
    said = f"{counts.total:,} ({counts.open:,} open), {counts.messages:,} messages"
    said += f", {size / 1e6:,.1f} MB"
    more = {"total": counts.total, "open": counts.open, "messages": counts.messages, "bytes": size}
    yield Check(about, "ok", said, more=more)
    for each in health.findings:
        what = rows.one_line(home, each.what, 300) or each.code
        what = findings.said(each.code, each.count, what)
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
        given = token.found(home.folder)
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

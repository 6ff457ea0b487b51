"""The checks of `doctor` on homes: database, server, transcripts, gateway and state folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp_serve import render
from mcp_serve.cli import keep, missing_home, plan_output, transcript_summary
from mcp_serve.cli.options import choose_driver
from mcp_serve.cli.terminal import format_bytes
from mcp_serve.http import auth
from mcp_serve.plain_text import shorten_text, to_plain_line
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.stores import ServedStores
from session_core import (
    Busy,
    Corrupt,
    Denied,
    InvalidInput,
    SessionError,
    find_active_profile,
    find_home,
    list_homes,
)
from session_core.maintenance import HealthReport
from session_core.state import DatabaseAddress, ServerReport, inspect_server

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

NO_HOME = "no_home"
"""The code of the check that found no home."""

_MAX_SKEW_S = 2.0
_ENCODING = "UTF8"

_ADVICE: tuple[tuple[type[SessionError], str], ...] = (
    (Busy, "start the server, or fix host, port and firewall"),
    (Denied, "fix the user, the password (PGPASSFILE, service file) or pg_hba.conf of the server"),
    (InvalidInput, "fix the address"),
)


def check_homes(served: ServedStores) -> Iterator[Check]:
    """Yield the checks of every chosen home."""
    choose_driver()
    yield _check_location(served)
    is_wrong = _is_named_home_missing(served)
    for name in served.home_names:
        label = f" {name}" if len(served.home_names) > 1 else ""
        is_needless = bool(served.transcript_names) and name == "own"
        yield from _check_home(
            served.get_home(name), label, is_wrong=is_wrong, is_needless=is_needless
        )
    if served.transcript_names:
        yield from _check_transcripts(served)


def _is_named_home_missing(served: ServedStores) -> bool:
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
        checks = list(_check_server(home, label))
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
    return Check(about, state, text, missing_home.suggest_remedy(home), {"code": NO_HOME})


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


def _check_server(home: ServedHome, label: str) -> Iterator[Check]:
    """Yield the checks of a server.

    The first check is a failure if the other checks are missing.
    """
    about = f"server{label}"
    if not isinstance(home.place, DatabaseAddress):
        raise TypeError(f"{home.place} is not an address")
    try:
        report = inspect_server(home.place.address)
    except SessionError as error:
        advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), None)
        yield Check(about, "failure", str(error), advice)
        return
    yield _check_version(about, report)
    yield _check_role(f"role{label}", report, home.place)
    yield _check_migrations(f"migrations{label}", report, home.place)
    yield _check_clock(f"clock{label}", report)
    yield _check_pooling(f"pooler{label}", report)


def _check_version(about: str, report: ServerReport) -> Check:
    text = f"PostgreSQL {report.version}, {report.round_trip_s * 1000:.1f} ms away"
    more = {"version": report.version, "seconds": round(report.round_trip_s, 6)}
    if report.encoding != _ENCODING:
        text += f"; its database has the encoding {report.encoding}, which lacks characters"
        return Check(about, "failure", text, "create the database with ENCODING 'UTF8'", more)
    if report.is_standby:
        advice = "name the primary, or add target_session_attrs=read-write to the address"
        return Check(about, "warning", f"{text}; a standby, which takes no changes", advice, more)
    return Check(about, "ok", text, more=more)


def _check_role(about: str, report: ServerReport, place: DatabaseAddress) -> Check:
    more = {"role": report.role, "is_exempt": report.is_exempt, "can_write": report.can_write}
    migrate = f"mcp-sessions migrate --home '{place}' --grant"
    if report.is_exempt:
        text = f"{report.role} is exempt from row security, which keeps homes apart"
        return Check(about, "warning", text, f"{migrate} ROLE, and connect as that role", more)
    if not report.can_write and not report.pending:
        text = f"{report.role} may not change homes"
        return Check(about, "warning", text, f"{migrate} {report.role}, as the owner", more)
    return Check(about, "ok", f"{report.role}, bound by row security", more=more)


def _check_migrations(about: str, report: ServerReport, place: DatabaseAddress) -> Check:
    if report.newer is not None:
        text = f"migration {report.newer:04} is of a newer mcp-sessions"
        more = {"newer": report.newer}
        return Check(about, "failure", text, "install a newer mcp-sessions", more)
    more_pending = {"pending": list(report.pending)}
    if report.pending:
        text = f"missing: {', '.join(report.pending)}"
        advice = f"mcp-sessions migrate --home '{place}'"
        return Check(about, "failure", text, advice, more_pending)
    return Check(about, "ok", "all applied", more=more_pending)


def _check_clock(about: str, report: ServerReport) -> Check:
    more = {"skew_s": round(report.skew_s, 3)}
    # Half of the round trip is uncertain.
    if abs(report.skew_s) <= _MAX_SKEW_S + report.round_trip_s / 2:
        return Check(about, "ok", "agrees with that of the server", more=more)
    direction = "behind" if report.skew_s > 0 else "ahead of"
    text = f"{abs(report.skew_s):,.1f} s {direction} that of the server, so leases and ages differ"
    return Check(about, "warning", text, "synchronize the clocks of both machines (NTP)", more)


def _check_pooling(about: str, report: ServerReport) -> Check:
    more = {"pooling": report.pooling}
    if report.pooling == "none":
        return Check(about, "ok", "none; connected directly", more=more)
    if report.pooling == "transaction":
        return Check(about, "ok", "lends connections for a transaction", more=more)
    advice = "set pool_mode = transaction in the pooler"
    if report.pooling == "statement":
        text = "lends connections for a statement, so no change can be made"
        return Check(about, "failure", text, advice, more)
    text = "lends connections for a session, so each program keeps some of the server"
    return Check(about, "warning", text, advice, more)

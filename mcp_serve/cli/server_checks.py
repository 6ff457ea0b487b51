"""The checks of `doctor` on the server of a home with an address."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_serve.cli.doctor import Check
from mcp_serve.stores.homes import ServedHome
from session_core import Busy, Denied, InvalidInput, SessionError
from session_core.state import DatabaseAddress, ServerReport, inspect_server

_MAX_SKEW_S = 2.0
_ENCODING = "UTF8"

_ADVICE: tuple[tuple[type[SessionError], str], ...] = (
    (Busy, "start the server, or fix host, port and firewall"),
    (Denied, "fix the user, the password (PGPASSFILE, service file) or pg_hba.conf of the server"),
    (InvalidInput, "fix the address"),
)


def check_server(home: ServedHome, label: str) -> Iterator[Check]:
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

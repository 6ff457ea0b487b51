"""What was asked for: the filters of a search in SQL, and what a cursor of it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from session_core.errors import InvalidInput
from session_core.state.sqlite import listing, sessions
from session_core.state.sqlite.connection import Connection
from session_core.types import SearchMode, SearchUnit, SessionFilter, SessionStatus

_TIP_STATUS_SQL = {"open": "s.ended_at IS NULL", "ended": "s.ended_at IS NOT NULL"}


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The arguments of a search."""

    query: str
    mode: SearchMode
    per: SearchUnit
    session: str | None
    source: tuple[str, ...] | None
    project: str | None
    roles: tuple[str, ...] | None
    status: str | None
    since: float | None
    until: float | None

    def __post_init__(self) -> None:
        """Make equal what means the same, so that a cursor is of the same search."""
        for name in ("source", "roles"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, tuple(sorted(set(given))))

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidInput: a value is none of those that there are.
        """
        for name, known in (("mode", ("words", "substring")), ("per", ("conversation", "message"))):
            value = getattr(self, name)
            if value not in known:
                raise InvalidInput(f"unknown {name} {value!r:.40}; known are {', '.join(known)}")

    @property
    def scope(self) -> dict[str, Any]:
        """What a cursor depends on."""
        return asdict(self)


def build_condition(handle: Connection, request: SearchRequest) -> tuple[str, dict[str, Any]]:
    """Return the condition of the filters on `messages m` and `sessions s`, and its values.

    A conversation that was continued is open or ended as its tip is, which SQL does not tell; such
    sessions pass here.
    """
    if request.session is not None:
        sessions.require_session(handle, request.session)
    of_tip = request.status in tuple(_TIP_STATUS_SQL)
    status = cast("SessionStatus | None", None if of_tip else request.status)
    if request.session is not None and request.status is None:
        status = "all"  # who names a session means it, though it is put away
    where = SessionFilter(source=request.source, project=request.project, status=status)
    text, values = listing.compose_condition(handle, where)
    conditions = [text]
    if of_tip:
        conditions.append(
            f"({_TIP_STATUS_SQL[str(request.status)]} OR s.end_reason = 'compression')"
        )
    for name, one in (
        ("session", "m.session_id = :session"),
        ("since", "m.timestamp >= :since"),
        ("until", "m.timestamp < :until"),
    ):
        value = getattr(request, name)
        if value is not None:
            values[name] = value
            conditions.append(one)
    if request.roles is not None:
        _add_roles(request.roles, conditions, values)
    return " AND ".join(conditions), values


def _add_roles(roles: Sequence[str], conditions: list[str], values: dict[str, Any]) -> None:
    names = [f"role_{place}" for place in range(len(roles))]
    values |= dict(zip(names, roles, strict=True))
    conditions.append(f"m.role IN ({', '.join(':' + name for name in names)})")

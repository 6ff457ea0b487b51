"""The arguments of a search, its filters in SQL, and the scope of its cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast, get_args

from session_core.errors import InvalidInput
from session_core.state import sql_blocks
from session_core.state.sqlite import session_filters, sessions
from session_core.state.sqlite.connection import Connection
from session_core.types import SearchMode, SearchOrder, SearchUnit, SessionFilter, SessionStatus

SQL = sql_blocks.load_blocks("search")

_VALID_VALUES = {
    "mode": get_args(SearchMode),
    "per": get_args(SearchUnit),
    "order": get_args(SearchOrder),
}
_TIP_STATUS_SQL = {"open": "s.ended_at IS NULL", "ended": "s.ended_at IS NOT NULL"}


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The arguments of a search."""

    query: str
    mode: SearchMode
    per: SearchUnit
    session: str | None
    source: tuple[str, ...] | None
    exclude_source: tuple[str, ...] | None
    project: tuple[str, ...] | None
    roles: tuple[str, ...] | None
    tool: str | None
    status: str | None
    since: float | None
    until: float | None
    order: SearchOrder = "relevance"
    moment: float | None = None

    def __post_init__(self) -> None:
        # Equal requests get equal values, so that a cursor fits each spelling of its search.
        for name in ("source", "exclude_source", "roles"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, tuple(sorted(set(values))))

    def check(self) -> None:
        """Refuse unknown values.

        Raises:
            InvalidInput: `mode`, `per` or `order` is unknown.
        """
        for name, values in _VALID_VALUES.items():
            value = getattr(self, name)
            if value not in values:
                raise InvalidInput(f"{name} must be {' or '.join(values)}, got {value!r:.40}")

    @property
    def scope(self) -> dict[str, Any]:
        """All arguments on which a cursor depends."""
        return asdict(self)


def build_condition(handle: Connection, request: SearchRequest) -> tuple[str, dict[str, Any]]:
    """Build the condition of the filters on `messages m` and `sessions s`, and its values."""
    if request.session is not None:
        sessions.check_session(handle, request.session)
    # The status of a continued conversation is the status of its tip, which SQL cannot see: all
    # continued sessions pass here, and `MatchConversations.has_wanted_status` decides.
    is_tip_status = request.status in tuple(_TIP_STATUS_SQL)
    status = cast("SessionStatus | None", None if is_tip_status else request.status)
    if request.session is not None and request.status is None:
        status = "all"  # a session that is named is searched even if it is archived
    where = SessionFilter(
        source=request.source,
        exclude_source=request.exclude_source,
        project=request.project,
        status=status,
    )
    text, values = session_filters.compose_condition(handle, where)
    conditions = [text]
    if is_tip_status:
        conditions.append(
            f"({_TIP_STATUS_SQL[str(request.status)]} OR s.end_reason = 'compression')"
        )
    for name, condition in (
        ("session", "m.session_id = :session"),
        ("since", "m.timestamp >= :since"),
        ("until", "m.timestamp < :until"),
        ("tool", handle.resolve_block(SQL["uses_tool"])),
    ):
        value = getattr(request, name)
        if value is not None:
            values[name] = value
            conditions.append(condition)
    if request.roles is not None:
        _add_roles(request.roles, conditions, values)
    return " AND ".join(conditions), values


def _add_roles(roles: Sequence[str], conditions: list[str], values: dict[str, Any]) -> None:
    names = [f"role_{number}" for number in range(len(roles))]
    values |= dict(zip(names, map(str.lower, roles), strict=True))
    conditions.append(f"lower(m.role) IN ({', '.join(':' + name for name in names)})")

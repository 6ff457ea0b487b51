"""Lists of sessions: filters and orders in SQL, and summaries of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from session_core.errors import InvalidInput
from session_core.state.validation import parse_folders
from session_core.transcripts.parts import ROLE_MASK, ROLES, cut_line
from session_core.transcripts.types import TranscriptSummary
from session_core.types import SessionFilter

OPEN_S = 86_400.0
"""The age of the last record below which a session counts as open."""

_FIELDS = (
    "s.id, s.source_id, s.store, s.session_id, s.native_id,"
    " coalesce(s.resume_id, s.native_id) AS resume_id, s.title, s.preview, s.preview_number,"
    " s.folder, s.branch, s.model, s.started_at, s.active_at, s.parent_id, s.link, s.archived,"
    " s.is_read, s.messages, s.cost_usd, s.input_tokens + s.output_tokens AS tokens, s.pinned"
)
_NAMES = (
    *(
        "id",
        "source_id",
        "store",
        "session_id",
        "native_id",
        "resume_id",
        "title",
        "preview",
        "preview_number",
    ),
    *("folder", "branch", "model", "started_at", "active_at", "parent_id", "link", "archived"),
    *("is_read", "messages", "cost_usd", "tokens", "pinned"),
)
_VALUES = {
    "recent": "s.active_at",
    "started": "coalesce(s.started_at, s.active_at)",
    # The number of messages is known after the whole file was read.
    "size": "s.is_read * s.messages",
    "cost": "s.cost_usd",
    "tokens": "(s.input_tokens + s.output_tokens)",
}
_TIMES = ("recent", "started")
_UNSUPPORTED = (
    *("end_reason", "provider", "user_id", "chat_id", "chat_type"),
    *("min_tool_calls", "max_tool_calls"),
)
"""Filters on data that transcripts do not have, which no session meets."""

_LABEL_LENGTH = 80

SummaryRow = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL condition with its values."""

    sql: str
    values: tuple[Any, ...] = ()

    def add_clause(self, sql: str) -> Condition:
        """Return this condition joined with an SQL clause by AND."""
        return Condition(f"{self.sql} AND {sql}", self.values)


NO_DELEGATES = Condition("s.link IS NOT 'delegate'")
"""Excludes subagents, which belong to the session that called them."""


def build_conditions(where: SessionFilter, now: float) -> list[Condition]:
    """Return the SQL conditions of a filter, for a session `s`."""
    # A file without messages is not a session, but a file that is partly read may have some.
    conditions = [Condition("(s.messages > 0 OR NOT s.is_read)")]
    if any(getattr(where, name) is not None for name in _UNSUPPORTED):
        conditions.append(Condition("0"))
    conditions += _build_set_conditions(where)
    if where.titled is not None:
        conditions.append(Condition(f"coalesce(s.title, '') {'<>' if where.titled else '='} ''"))
    conditions += _build_status_condition(where, now)
    if where.project is not None:
        conditions.append(_build_folder_condition(where.project))
    title = "coalesce(s.title, s.preview, '')"
    for word in (where.words or "").split():
        pattern = f"%{_escape_like(word)}%"
        sql = f"({title} LIKE ? ESCAPE '!' OR s.session_id LIKE ? ESCAPE '!')"
        conditions.append(Condition(sql, (pattern, pattern)))
    for text, column in (
        (where.title_like, title),
        (where.model_like, "coalesce(s.model, '')"),
        (where.branch_like, "coalesce(s.branch, '')"),
    ):
        if text is not None:
            conditions.append(
                Condition(f"{column} LIKE ? ESCAPE '!'", (f"%{_escape_like(text)}%",))
            )
    if where.cwd_prefix is not None:
        prefix = _escape_like(where.cwd_prefix) + "%"
        conditions.append(Condition("s.folder LIKE ? ESCAPE '!'", (prefix,)))
    return conditions + _build_range_conditions(where)


def _build_set_conditions(where: SessionFilter) -> Iterator[Condition]:
    if where.ids is not None:
        yield match_any("s.session_id", where.ids)
    if where.source is not None:
        yield match_any("lower(s.store)", [name.lower() for name in where.source])
    if where.exclude_source is not None:
        excluded = match_any("lower(s.store)", [name.lower() for name in where.exclude_source])
        yield Condition(f"NOT {excluded.sql}", excluded.values)


def _build_folder_condition(project: str | Sequence[str]) -> Condition:
    """Return the condition that a session is in one of the folders or below."""
    values: list[str] = []
    for path in parse_folders("project", project) or ():
        folder = path.rstrip("/") or "/"
        values += [folder, _escape_like(folder if folder == "/" else folder + "/") + "%"]
    clauses = ["(s.folder = ? OR s.folder LIKE ? ESCAPE '!')"] * (len(values) // 2)
    return Condition(f"({' OR '.join(clauses) or '0'})", tuple(values))


def build_message_conditions(
    roles: Sequence[str] | None, tool: str | None, since: float | None, until: float | None
) -> list[Condition]:
    """Return the SQL conditions of a search, for a message `m`."""
    conditions = []
    if roles is not None:
        known = [ROLES.index(role.lower()) for role in roles if role.lower() in ROLES]
        conditions.append(match_any(f"(m.flags & {ROLE_MASK})", known))
    if tool is not None:
        sql = "m.tool IN (SELECT id FROM tools WHERE name = ? COLLATE NOCASE)"
        conditions.append(Condition(sql, (tool,)))
    if since is not None:
        conditions.append(Condition("m.at >= ?", (int(since * 1000),)))
    if until is not None:
        conditions.append(Condition("m.at < ?", (int(until * 1000),)))
    return conditions


def _build_status_condition(where: SessionFilter, now: float) -> Iterator[Condition]:
    border = int((now - OPEN_S) * 1000)
    if where.status in (None, "open", "ended"):
        yield Condition("NOT s.archived")
    if where.status == "archived":
        yield Condition("s.archived")
    elif where.status in ("open", "ended"):
        yield Condition(f"s.active_at {'>=' if where.status == 'open' else '<'} ?", (border,))


def _build_range_conditions(where: SessionFilter) -> list[Condition]:
    started, tokens = _VALUES["started"], _VALUES["tokens"]
    ranges = (
        (f"{started} >= ?", where.started_after, 1000),
        (f"{started} < ?", where.started_before, 1000),
        ("s.active_at >= ?", where.active_after, 1000),
        ("s.active_at < ?", where.active_before, 1000),
        # Every listed session has a message or was not read yet, so 1 asks for nothing more.
        ("s.messages >= ?", None if where.min_messages == 1 else where.min_messages, 1),
        ("s.messages <= ?", where.max_messages, 1),
        (f"{tokens} >= ?", where.min_tokens, 1),
        (f"{tokens} <= ?", where.max_tokens, 1),
        ("s.cost_usd >= ?", where.min_cost, 1),
        ("s.cost_usd <= ?", where.max_cost, 1),
    )
    return [Condition(sql, (bound * unit,)) for sql, bound, unit in ranges if bound is not None]


def match_any(column: str, values: Sequence[str | int]) -> Condition:
    """Return the condition that a column has one of these values."""
    marks = ", ".join("?" * len(values))
    return Condition(f"{column} IN ({marks})", tuple(values))


def _escape_like(text: str) -> str:
    """Return a text for LIKE without wildcards."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def build_list_sql(
    conditions: Sequence[Condition], order: str, limit: int, position: Sequence[Any] | None
) -> tuple[str, list[Any]]:
    """Return the statement and values for one page, after `position`.

    A position is (value, store, id). Sessions with equal values are ordered by rising store and
    falling id, as in a list merged from several stores.
    """
    if order not in _VALUES:
        raise InvalidInput(f"order must be one of {', '.join(_VALUES)}, got {order!r:.40}")
    value = _VALUES[order]
    sql = " AND ".join(condition.sql for condition in conditions)
    values = [value for condition in conditions for value in condition.values]
    if position is not None:
        bound, store, session = position
        sql += (
            f" AND {value} <= ?"
            f" AND ({value} < ? OR s.store > ? OR (s.store = ? AND s.session_id < ?))"
        )
        values += [bound, bound, store, store, session]
    statement = (
        f"SELECT {_FIELDS}, {value} FROM sessions s WHERE {sql}"  # noqa: S608 -- values are parameters
        f" ORDER BY {value} DESC, s.store, s.session_id DESC LIMIT ?"
    )
    return statement, [*values, limit]


def build_folders_sql(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return the statement and values for the folders of sessions."""
    sql = " AND ".join(["s.folder <> ''", *(condition.sql for condition in conditions)])
    values = [value for condition in conditions for value in condition.values]
    return f"SELECT DISTINCT s.folder FROM sessions s WHERE {sql}", values  # noqa: S608 -- values are parameters


def make_position(order: str, below: tuple[float, str, str]) -> tuple[float, str, str]:
    """Return the position after `below`, with times in milliseconds."""
    value, store, session = below
    # Milliseconds are exact in seconds of a double only after rounding.
    return (round(value * 1000, 3) if order in _TIMES else value), store, session


def sort_rows(rows: list[SummaryRow]) -> None:
    """Sort rows of several statements in the order of each statement."""
    # Each sort keeps the order of the sort before it, so the most important key comes last.
    rows.sort(key=lambda row: row["session_id"], reverse=True)
    rows.sort(key=lambda row: row["store"])
    rows.sort(key=lambda row: row["value"], reverse=True)


def make_row(values: Sequence[Any]) -> SummaryRow:
    """Return a row of the statement as a mapping, with its sort value as `value`."""
    return dict(zip((*_NAMES, "value"), values, strict=True))


def make_summary(
    row: SummaryRow, resume: tuple[str, ...] | None, now: float, *, is_kept: bool = False
) -> TranscriptSummary:
    """Build the summary of a row."""
    active = row["active_at"] / 1000
    status = "archived" if row["archived"] else "open" if active >= now - OPEN_S else "ended"
    started = row["started_at"]
    return TranscriptSummary(
        id=row["session_id"],
        source=row["store"],
        title=row["title"],
        preview=row["preview"] or "",
        preview_id=row["preview_number"],
        status=status,  # type: ignore[arg-type]
        started_at=active if started is None else started / 1000,
        last_active_at=active,
        messages=row["messages"] if row["is_read"] else None,
        project=row["folder"],
        branch=row["branch"],
        model=row["model"],
        parent_id=row["parent_id"],
        link=row["link"],
        tokens=row["tokens"],
        cost=row["cost_usd"] or None,
        resume=resume,
        pinned=bool(row["pinned"]),
        is_kept=is_kept,
    )


def shorten_prompt(preview: str | None) -> str | None:
    """Return the first prompt, shortened to a label of its session."""
    return None if preview is None else cut_line(preview, _LABEL_LENGTH)

"""Token counts and costs, in total for a session and by model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session_core._typing import Unpack
from session_core.errors import InvalidInput
from session_core.state.columns import TokenColumns, UsageColumns
from session_core.state.sqlite import sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.store import SqliteOperations

_COUNT_COLUMNS = (
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
_COST_COLUMNS = ("estimated_cost_usd", "actual_cost_usd")
_PROVENANCE_COLUMNS = ("cost_status", "cost_source", "pricing_version")
_ROUTE_COLUMNS = ("model", "billing_provider", "billing_base_url", "billing_mode")
_KNOWN_COLUMNS = (*_COUNT_COLUMNS, *_COST_COLUMNS, *_PROVENANCE_COLUMNS, *_ROUTE_COLUMNS)
_KEY_COLUMNS = ("session_id", *_ROUTE_COLUMNS, "task")
_CHANGES = {
    "cost_status": "coalesce(?, cost_status)",
    "cost_source": "coalesce(?, cost_source)",
    "last_seen": "?",
}
"""The changes of the other columns of an existing row. Counts and costs are added."""

_COUNT_LIMIT = 2**62

UsageValues = dict[str, Any]


class SqliteUsage(SqliteOperations):
    """Token counts and costs."""

    def update_token_counts(
        self, session_id: str, *, absolute: bool = False, **counts: Unpack[TokenColumns]
    ) -> None:
        """Add to or set the token and cost columns of a session, and add to the row of the model.

        A missing session is created with the source `unknown`. The first accounted call may replace
        the requested model; later calls only fill empty columns.

        Args:
            session_id: the session.
            absolute: set the totals instead of adding to them, for example to correct wrong totals.
                The rows of models stay unchanged, because totals cannot be split by model.
            counts: the counts by column, for example `input_tokens`, `output_tokens` or `model`.

        Raises:
            InvalidInput: a count is unknown or not valid.
        """
        usage = _check_counts(counts)
        now = self._clock()

        def add_usage(handle: Connection) -> None:
            new = {"source": "unknown", "model": usage["model"]}
            sessions.insert_or_fill_session(
                handle, sessions.encode_create_arguments(session_id, new, now)
            )
            if _has_usage(usage):
                _store_answering_model(handle, session_id, usage)
            _update_totals(handle, session_id, usage, absolute=absolute)
            if not absolute and _has_usage(usage):
                row = sessions.require_session(handle, session_id)
                route = {name: usage[name] or row.get(name) for name in _ROUTE_COLUMNS}
                _add_model_usage(handle, {**usage, **route, "session_id": session_id}, now)

        self._write(add_usage)

    def record_auxiliary_usage(
        self,
        session_id: str,
        task: str,
        *,
        model: str | None = None,
        **counts: Unpack[UsageColumns],
    ) -> None:
        """Account a call outside of the conversation (vision, titles, compression) to its task.

        The totals of the session do not change. A home without tasks in its table ignores the call.
        """
        if not task or not isinstance(task, str):
            raise InvalidInput("task must be non-empty text, such as 'vision'")
        usage = _check_counts({"api_call_count": 1, **counts, "model": model})
        now = self._clock()

        def add_task_usage(handle: Connection) -> None:
            sessions.require_session(handle, session_id)
            if handle.has_column("session_model_usage", "task"):
                _add_model_usage(handle, {**usage, "session_id": session_id, "task": task}, now)

        self._write(add_task_usage)


def list_model_usage(handle: Connection, session_id: str) -> list[dict[str, Any]]:
    """Return the usage of each model in a session."""
    if not handle.has_column("session_model_usage"):
        return []
    return handle.fetch_rows(
        "SELECT * FROM session_model_usage WHERE session_id = ? ORDER BY first_seen, model",
        (session_id,),
    )


def _check_counts(counts: Mapping[str, Any]) -> UsageValues:
    for name in counts:
        if name not in _KNOWN_COLUMNS:
            raise InvalidInput(f"unknown count {name!r}; valid are {', '.join(_KNOWN_COLUMNS)}")
    for name, value in counts.items():
        if value is not None and not _is_valid_count(name, value):
            raise InvalidInput(
                f"{name} is not valid: a count must be an integer >= 0, a cost a number >= 0, and "
                "the other fields text"
            )
    return {
        name: counts.get(name) or (0 if name in _COUNT_COLUMNS else None) for name in _KNOWN_COLUMNS
    }


def _is_valid_count(name: str, value: Any) -> bool:
    if name not in (*_COUNT_COLUMNS, *_COST_COLUMNS):
        return isinstance(value, str)
    if (
        not isinstance(value, (int, float)) or not 0 <= value < _COUNT_LIMIT
    ):  # NaN fails this comparison
        return False
    return name in _COST_COLUMNS or value == int(value)


def _has_usage(usage: UsageValues) -> bool:
    return any(usage[name] for name in (*_COUNT_COLUMNS, *_COST_COLUMNS))


def _store_answering_model(handle: Connection, session_id: str, usage: UsageValues) -> None:
    """Store the model that answered.

    The first accounted call overwrites the columns, later calls fill empty columns.
    """
    row = sessions.require_session(handle, session_id)
    is_first = not row.get("api_call_count") and usage["model"] and usage["billing_provider"]
    if is_first and any(row.get(name) != usage[name] for name in ("model", "billing_provider")):
        route = {name: usage[name] for name in _ROUTE_COLUMNS}
    else:
        route = {name: usage[name] for name in _ROUTE_COLUMNS if usage[name] and not row.get(name)}
    if route:
        sessions.update_session(handle, session_id, route)


def _update_totals(
    handle: Connection, session_id: str, usage: UsageValues, *, absolute: bool
) -> None:
    """Add the usage to the totals of a session, or replace the totals if it is `absolute`."""
    row: dict[str, Any] = {**sessions.require_session(handle, session_id)}

    def total(name: str) -> Any:
        before = 0 if absolute else row.get(name)
        return (usage[name] or 0) + (before if isinstance(before, (int, float)) else 0)

    values = {name: total(name) for name in (*_COUNT_COLUMNS, "estimated_cost_usd")}
    # An unknown cost stays NULL; 0 would mean that the call was free.
    if usage["actual_cost_usd"] is not None:
        values["actual_cost_usd"] = total("actual_cost_usd")
    values |= {name: usage[name] for name in _PROVENANCE_COLUMNS if usage[name] is not None}
    sessions.update_session(handle, session_id, values)


def _add_model_usage(handle: Connection, usage: UsageValues, now: float) -> None:
    if not handle.has_column("session_model_usage"):
        return
    # The columns of the key cannot be NULL, so an unknown part is an empty text.
    values = {name: usage.get(name) or "" for name in _KEY_COLUMNS}
    values["model"] = values["model"] or "unknown"
    values |= {name: usage[name] or 0 for name in (*_COUNT_COLUMNS, *_COST_COLUMNS)}
    values |= {name: usage[name] for name in ("cost_status", "cost_source")}
    values |= {"first_seen": now, "last_seen": now}
    present_names = [name for name in values if handle.has_column("session_model_usage", name)]
    keys = [name for name in present_names if name in _KEY_COLUMNS]
    changes = {name: _CHANGES.get(name, f"{name} + ?") for name in present_names}
    changes = {name: text for name, text in changes.items() if name not in (*keys, "first_seen")}
    assignments = ", ".join(f"{name} = {change}" for name, change in changes.items())
    updated = handle.execute_update(
        f"UPDATE session_model_usage SET {assignments} "  # noqa: S608 -- column names of fixed tuples
        f"WHERE {' AND '.join(f'{name} = ?' for name in keys)}",
        [values[name] for name in (*changes, *keys)],
    )
    if not updated:
        handle.execute_update(
            f"INSERT INTO session_model_usage ({', '.join(present_names)}) "  # noqa: S608 -- column names of fixed tuples
            f"VALUES ({', '.join('?' * len(present_names))})",
            [values[name] for name in present_names],
        )

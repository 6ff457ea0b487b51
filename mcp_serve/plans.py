"""How plans and what became of them are said, the same by every tool that changes something."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from mcp_serve import naming, rows
from mcp_serve.homes import Home
from mcp_serve.times import iso
from session_core import WHY_PROTECTED, Applied, InvalidInput, Preview, SessionFilter, Undone

NO_BYTES = {"needed_now": 0, "won_now": 0, "won_later": 0}
_MOST_SKIPPED = 50
_WARNING = 500


def preview(home: Home, found: Preview) -> dict[str, Any]:
    """Return what a plan would do."""
    return {
        "outcome": found.outcome,
        "plan": found.plan,
        "expires_at": iso(found.expires_at),
        "count": found.count,
        "items": [
            {
                "id": each.id,
                "title": rows.one_line(home, each.title),
                "why": rows.one_line(home, each.why),
            }
            for each in found.items
        ],
        "protected": [
            {"why": WHY_PROTECTED[why], "count": count} for why, count in found.protected.items()
        ],
        "bytes": {name: getattr(found.bytes, name) for name in NO_BYTES},
        "warnings": warned(home, found.warnings),
    }


def warned(home: Home, warnings: Iterable[str]) -> list[str]:
    """Return warnings as they are said: they name titles, reasons and folders."""
    return [rows.one_line(home, each, _WARNING) or "" for each in warnings]


def applied(home: Home, found: Applied | Undone, counted: str) -> dict[str, Any]:
    """Return what was done of a plan; `counted` names what is counted.

    Raises:
        InvalidInput: it was the plan of an undo.
    """
    if not isinstance(found, Applied):
        raise InvalidInput("that plan takes a compression back; pass it to sessions_restore")
    said = preview(home, home.maintenance.planned(found.plan))
    unsaid = len(found.skipped) - _MOST_SKIPPED
    more = [f"{unsaid:,} more were skipped"] if unsaid > 0 else []
    return said | {
        "outcome": found.outcome,
        counted: getattr(found, counted),
        "skipped": [
            {"id": each.id, "why": rows.one_line(home, each.why)}
            for each in found.skipped[:_MOST_SKIPPED]
        ],
        "remaining": found.remaining,
        "batch": found.batch,
        "warnings": list(dict.fromkeys([*said["warnings"], *warned(home, found.warnings), *more])),
    }


def not_applied(home: Home, plan: str, outcome: str) -> dict[str, Any]:
    """Return a plan that the human has declined, which closes it, or has put off."""
    said = preview(home, home.maintenance.planned(plan)) | {"outcome": outcome}
    if outcome == "declined":
        home.maintenance.decline(plan)
    else:
        how = "call again with the same plan, or start the server with --confirm=never"
        said["warnings"] = [*said["warnings"], f"nobody has agreed and nothing was changed; {how}"]
    return said


def check_alone(given: Any, beside: Collection[str] = ()) -> None:
    """Refuse what is passed with a plan: that is recorded, and nothing adds to it.

    Raises:
        InvalidInput: something is.
    """
    if getattr(given, "plan", None) is None:
        return
    fields = type(given).model_fields
    for name, field in fields.items():
        if name in ("plan", "profile", *beside):
            continue
        if getattr(given, name) != field.default:
            raise InvalidInput(f"with plan no {name} may be given; the plan has recorded it")


def check_kind(home: Home, plan: str, verb: str) -> None:
    """Refuse a plan of another tool.

    Raises:
        NotFound: there is no such plan.
        InvalidInput: it is one of another tool.
    """
    kind = home.ledger.plan(plan).kind
    if not kind.startswith(verb):
        raise InvalidInput(f"plan {plan} is one to {kind}; pass it to the tool that made it")


def named(home: Home, sessions: list[str] | None) -> tuple[str, ...] | None:
    """Return the sessions that full ids and session keys mean."""
    if sessions is None:
        return None
    return tuple(dict.fromkeys(naming.find_exactly(home, each) for each in sessions))


def where(given: Any) -> SessionFilter:
    """Return the filter of what is given; what a tool has no argument for says nothing."""
    source = getattr(given, "source", None)
    return SessionFilter(
        project=getattr(given, "project", None),
        source=None if source is None else (source,),
        end_reason=getattr(given, "end_reason", None),
        min_messages=getattr(given, "min_messages", None),
        max_messages=getattr(given, "max_messages", None),
    )

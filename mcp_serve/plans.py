"""How plans and what became of them are said, the same by every tool that changes something."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from mcp_serve import answer_size, render, resolve
from mcp_serve.arguments import iso, several
from mcp_serve.homes import Home
from mcp_serve.progress import Work
from session_core import (
    WHY_PROTECTED,
    Applied,
    Bytes,
    InvalidInput,
    Preview,
    SessionFilter,
    Undone,
)

NO_BYTES = asdict(Bytes())
SHRINK = "sessions_prune(what='index')"
"""The call that gives the free room of a database file back to the disk."""

WENT_ON = "this call went on with what a call before it had begun"

_TOOLS = {
    "prune": "sessions_prune",
    "finalize": "sessions_finalize",
    "compress": "sessions_compress",
    "undo": "sessions_restore",
}
"""Which tool takes a plan, by what its kind begins with."""

_WARNING = 500
_FOR_ITEMS, _FOR_SKIPPED, _FOR_WARNINGS = 8_000, 6_000, 4_000
"""So many characters of an answer are for each; the rest of it is short."""


def preview(home: Home, found: Preview) -> dict[str, Any]:
    """Return what a plan would do."""
    items = [item(home, each) for each in found.items]
    return {
        "outcome": found.outcome,
        "plan": found.plan,
        "expires_at": iso(found.expires_at),
        "count": found.count,
        "items": answer_size.first(items, _FOR_ITEMS),
        "protected": [
            {"why": WHY_PROTECTED[why], "count": count} for why, count in found.protected.items()
        ],
        "bytes": asdict(found.bytes),
        "warnings": warned(home, found.warnings),
    }


def item(home: Home, found: Any) -> dict[str, Any]:
    """Return one thing that a plan is about."""
    return {
        "id": render.name(found.id),
        "title": render.one_line(home, found.title),
        "why": render.one_line(home, found.why),
    }


def warned(home: Home, warnings: Iterable[str]) -> list[str]:
    """Return warnings as they are said: they name titles, reasons and folders."""
    found = [render.one_line(home, each, _WARNING) or "" for each in dict.fromkeys(warnings)]
    shown = answer_size.first(found, _FOR_WARNINGS)
    more = len(found) - len(shown)
    return [*shown, f"and {more:,} more warnings"] if more else shown


def skipped(home: Home, left: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return what was left as it is and why, as much as fits."""
    said = [{"id": render.name(each), "why": render.one_line(home, why)} for each, why in left]
    return answer_size.first(said, _FOR_SKIPPED)


def apply(home: Home, plan: str, verb: str, counted: str, work: Work) -> dict[str, Any]:
    """Apply a plan of a verb, or go on with it; `counted` names what its answer counts.

    Raises:
        NotFound: there is no such plan.
        InvalidInput: it is one of another tool.
    """
    check_kind(home, plan, verb)
    goes_on = home.ledger.plan(plan).state == "applying"
    found = run(home, plan, work)
    if not isinstance(found, Applied):
        raise InvalidInput("that plan takes a compression back; pass it to sessions_restore")
    return applied(home, found, counted, count=getattr(found, counted), goes_on=goes_on)


def run(home: Home, plan: str, work: Work) -> Applied | Undone:
    """Apply a plan, or go on with it, and report the progress."""
    planned = home.maintenance.planned(plan)

    def tell(done: Applied) -> None:
        work.tell(planned.count - done.remaining, planned.count)

    found = home.maintenance_for(work.client).apply(plan, progress=tell, stop=work.is_cancelled)
    if isinstance(found, Applied):
        tell(found)
    return found


def applied(
    home: Home, found: Applied, counted: str, *, count: int, goes_on: bool = False
) -> dict[str, Any]:
    """Return what a plan came to, with the name of what is counted."""
    planned = home.maintenance.planned(found.plan)
    left = skipped(home, [(each.id, each.why) for each in found.skipped])
    unsaid = len(found.skipped) - len(left)
    more = [f"{unsaid:,} more were skipped"] if unsaid else []
    begun = [WENT_ON] if goes_on else []
    return preview(home, planned) | {
        "outcome": found.outcome,
        counted: count,
        "skipped": left,
        "remaining": found.remaining,
        "batch": found.batch,
        "bytes": asdict(found.bytes),
        **({"next": SHRINK} if found.shrinks else {}),
        "warnings": warned(home, [*begun, *more, *planned.warnings, *found.warnings]),
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
        tools = (tool for start, tool in _TOOLS.items() if kind.startswith(start))
        raise InvalidInput(
            f"plan {plan} is one to {kind}; pass it to {next(tools, 'what made it')}"
        )


def named(home: Home, sessions: list[str] | None) -> tuple[str, ...] | None:
    """Return the sessions that full ids and session keys mean."""
    if sessions is None:
        return None
    return tuple(dict.fromkeys(resolve.find_exactly(home, each) for each in sessions))


def where(given: Any) -> SessionFilter:
    """Return the filter of what is given; what a tool has no argument for says nothing."""
    return SessionFilter(
        project=getattr(given, "project", None),
        source=several(getattr(given, "source", None)),
        end_reason=getattr(given, "end_reason", None),
        min_messages=getattr(given, "min_messages", None),
        max_messages=getattr(given, "max_messages", None),
    )

"""How plans and what became of them are said, the same by every tool that changes something."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from mcp_serve import answer_size, render, resolve
from mcp_serve.arguments import format_time, to_tuple
from mcp_serve.homes import ServedHome
from mcp_serve.progress import CallContext
from session_core import (
    PROTECTION_REASONS,
    ApplyResult,
    Bytes,
    InvalidInput,
    PlanPreview,
    SessionFilter,
    UndoResult,
)

NO_BYTES = asdict(Bytes())
SHRINK_CALL = "sessions_prune(what='index')"
"""The call that gives the free room of a database file back to the disk."""

RESUMED_NOTE = "this call went on with what a call before it had begun"

_TOOL_BY_KIND = {
    "prune": "sessions_prune",
    "finalize": "sessions_finalize",
    "compress": "sessions_compress",
    "undo": "sessions_restore",
}
"""Which tool takes a plan, by what its kind begins with."""

_MAX_WARNING_CHARS = 500
_FOR_ITEMS, _FOR_SKIPPED, _FOR_WARNINGS = 8_000, 6_000, 4_000
"""So many characters of an answer are for each; the rest of it is short."""


def render_preview(home: ServedHome, found: PlanPreview) -> dict[str, Any]:
    """Return what a plan would do."""
    items = [render_item(home, each) for each in found.items]
    return {
        "outcome": found.outcome,
        "plan": found.plan,
        "expires_at": format_time(found.expires_at),
        "count": found.count,
        "items": answer_size.take_fitting_rows(items, _FOR_ITEMS),
        "protected": [
            {"why": PROTECTION_REASONS[why], "count": count}
            for why, count in found.protected.items()
        ],
        "bytes": asdict(found.bytes),
        "warnings": render_warnings(home, found.warnings),
    }


def render_item(home: ServedHome, found: Any) -> dict[str, Any]:
    """Return one thing that a plan is about."""
    return {
        "id": render.render_id(found.id),
        "title": render.render_line(home, found.title),
        "why": render.render_line(home, found.why),
    }


def render_warnings(home: ServedHome, warnings: Iterable[str]) -> list[str]:
    """Return warnings as they are said: they name titles, reasons and folders."""
    found = [
        render.render_line(home, each, _MAX_WARNING_CHARS) or "" for each in dict.fromkeys(warnings)
    ]
    shown = answer_size.take_fitting_rows(found, _FOR_WARNINGS)
    more = len(found) - len(shown)
    return [*shown, f"and {more:,} more warnings"] if more else shown


def render_skipped(home: ServedHome, left: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return what was left as it is and why, as much as fits."""
    said = [
        {"id": render.render_id(each), "why": render.render_line(home, why)} for each, why in left
    ]
    return answer_size.take_fitting_rows(said, _FOR_SKIPPED)


def apply_plan(
    home: ServedHome, plan: str, verb: str, counted: str, work: CallContext
) -> dict[str, Any]:
    """Apply a plan of a verb, or go on with it; `counted` names what its answer counts.

    Raises:
        NotFound: there is no such plan.
        InvalidInput: it is one of another tool.
    """
    check_plan_kind(home, plan, verb)
    goes_on = home.ledger.get_plan(plan).state == "applying"
    found = run_plan(home, plan, work)
    if not isinstance(found, ApplyResult):
        raise InvalidInput("that plan takes a compression back; pass it to sessions_restore")
    return render_applied(home, found, counted, count=getattr(found, counted), goes_on=goes_on)


def run_plan(home: ServedHome, plan: str, work: CallContext) -> ApplyResult | UndoResult:
    """Apply a plan, or go on with it, and report the progress."""
    planned = home.maintenance.get_plan(plan)

    def tell(done: ApplyResult) -> None:
        work.report_progress(planned.count - done.remaining, planned.count)

    found = home.make_maintenance(work.client).apply(plan, progress=tell, stop=work.is_cancelled)
    if isinstance(found, ApplyResult):
        tell(found)
    return found


def render_applied(
    home: ServedHome, found: ApplyResult, counted: str, *, count: int, goes_on: bool = False
) -> dict[str, Any]:
    """Return what a plan came to, with the name of what is counted."""
    planned = home.maintenance.get_plan(found.plan)
    left = render_skipped(home, [(each.id, each.why) for each in found.skipped])
    unsaid = len(found.skipped) - len(left)
    more = [f"{unsaid:,} more were skipped"] if unsaid else []
    begun = [RESUMED_NOTE] if goes_on else []
    return render_preview(home, planned) | {
        "outcome": found.outcome,
        counted: count,
        "skipped": left,
        "remaining": found.remaining,
        "batch": found.batch,
        "bytes": asdict(found.bytes),
        **({"next": SHRINK_CALL} if found.shrinks else {}),
        "warnings": render_warnings(home, [*begun, *more, *planned.warnings, *found.warnings]),
    }


def render_unapplied(home: ServedHome, plan: str, outcome: str) -> dict[str, Any]:
    """Return a plan that the human has declined, which closes it, or has put off."""
    said = render_preview(home, home.maintenance.get_plan(plan)) | {"outcome": outcome}
    if outcome == "declined":
        home.maintenance.close_plan(plan)
    else:
        how = "call again with the same plan, or start the server with --confirm=never"
        said["warnings"] = [*said["warnings"], f"nobody has agreed and nothing was changed; {how}"]
    return said


def check_plan_alone(given: Any, beside: Collection[str] = ()) -> None:
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


def check_plan_kind(home: ServedHome, plan: str, verb: str) -> None:
    """Refuse a plan of another tool.

    Raises:
        NotFound: there is no such plan.
        InvalidInput: it is one of another tool.
    """
    kind = home.ledger.get_plan(plan).kind
    if not kind.startswith(verb):
        tools = (tool for start, tool in _TOOL_BY_KIND.items() if kind.startswith(start))
        raise InvalidInput(
            f"plan {plan} is one to {kind}; pass it to {next(tools, 'what made it')}"
        )


def find_sessions(home: ServedHome, sessions: list[str] | None) -> tuple[str, ...] | None:
    """Return the sessions that full ids and session keys mean."""
    if sessions is None:
        return None
    return tuple(dict.fromkeys(resolve.find_exact_session(home, each) for each in sessions))


def build_filter(given: Any) -> SessionFilter:
    """Return the filter of what is given; what a tool has no argument for says nothing."""
    return SessionFilter(
        project=getattr(given, "project", None),
        source=to_tuple(getattr(given, "source", None)),
        end_reason=getattr(given, "end_reason", None),
        min_messages=getattr(given, "min_messages", None),
        max_messages=getattr(given, "max_messages", None),
    )

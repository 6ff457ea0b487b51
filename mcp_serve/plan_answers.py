"""Apply plans and render plans and results, alike for every changing tool."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from typing import Any, Literal

from mcp_serve import answer_size, render
from mcp_serve.arguments import format_time, to_tuple
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.stores import session_lookup
from mcp_serve.stores.homes import ServedHome
from mcp_serve.stores.served_store import ServedStore
from session_core import InvalidInput, SessionFilter
from session_core.ledger import StoredPlan
from session_core.maintenance import (
    PLAN_KINDS,
    PROTECTION_REASONS,
    ApplyResult,
    Bytes,
    PlanKind,
    PlanPreview,
    PlanTotals,
)

Answer = Literal["agreed", "declined", "cancelled"]
"""The answer of a user to the question about a plan."""

NO_BYTES = asdict(Bytes())
# The call that returns free space inside the database file to the disk.
SHRINK_CALL = "sessions_prune(what='index')"

RESUMED_NOTE = "this call continued a change that an earlier call had started"

_MAX_WARNING_CHARS = 500
_MAX_SOURCES = 20
# Characters of an answer for each list; the other fields are short.
_FOR_ITEMS, _FOR_SKIPPED, _FOR_WARNINGS = 8_000, 6_000, 4_000


def render_preview(home: ServedStore, preview: PlanPreview) -> dict[str, Any]:
    """Return the preview of a plan."""
    items = [render_item(home, item) for item in preview.items]
    return {
        "outcome": preview.outcome,
        "plan": preview.plan,
        "expires_at": format_time(preview.expires_at),
        "count": preview.count,
        **({} if preview.totals is None else {"totals": _render_totals(home, preview.totals)}),
        "items": answer_size.take_fitting_rows(items, _FOR_ITEMS),
        "protected": [
            {
                "why": PROTECTION_REASONS[why],
                "count": count,
                "ids": [
                    render.render_id(item_id) for item_id in preview.protected_ids.get(why, ())
                ],
            }
            for why, count in preview.protected.items()
        ],
        "bytes": asdict(preview.bytes),
        "warnings": render_warnings(home, preview.warnings),
    }


def _render_totals(home: ServedStore, totals: PlanTotals) -> dict[str, Any]:
    sources = {
        render.render_line(home, source, 80) or "": count
        for source, count in list(totals.by_source.items())[:_MAX_SOURCES]
    }
    return asdict(totals) | {"by_source": sources}


def render_item(home: ServedStore, item: Any) -> dict[str, Any]:
    """Return an item of a plan."""
    return {
        "id": render.render_id(item.id),
        "title": render.render_line(home, item.title),
        "why": render.render_line(home, item.why),
        **({} if item.messages is None else {"messages": item.messages}),
        **render.drop_empty(last_active_at=format_time(item.last_active_at)),
    }


def render_warnings(home: ServedStore, warnings: Iterable[str]) -> list[str]:
    """Return warnings for an answer, with stored titles, reasons and folders redacted."""
    lines = [
        render.render_line(home, warning, _MAX_WARNING_CHARS) or ""
        for warning in dict.fromkeys(warnings)
    ]
    fitting = answer_size.take_fitting_rows(lines, _FOR_WARNINGS)
    hidden_count = len(lines) - len(fitting)
    return [*fitting, f"and {hidden_count:,} more warnings"] if hidden_count else fitting


def render_skipped(home: ServedStore, skipped: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return skipped items with their reasons, as many as fit into the answer."""
    rows = [
        {"id": render.render_id(item_id), "why": render.render_line(home, reason)}
        for item_id, reason in skipped
    ]
    return answer_size.take_fitting_rows(rows, _FOR_SKIPPED)


def render_first_items(
    home: ServedHome, preview: PlanPreview, page_query: PagedQuery
) -> dict[str, Any]:
    """Return the preview of a new plan with the cursor of its further items."""
    store = {} if home.store_name is None else {"store": home.store_name}
    query = replace(page_query, query={"plan": preview.plan, **store})
    return _add_cursor(render_preview(home, preview), query, 0)


def render_more_items(home: ServedHome, plan: str, page_query: PagedQuery) -> dict[str, Any]:
    """Return a plan with the items of a cursor."""
    start: int = page_query.place
    # The store of a cursor is not known before it is opened.
    store = render.drop_empty(store=home.store_name)
    preview = home.maintenance.get_plan(plan, start=start)
    return _add_cursor(render_preview(home, preview) | store, page_query, start)


def _add_cursor(answer: dict[str, Any], page_query: PagedQuery, start: int) -> dict[str, Any]:
    end = start + len(answer["items"])
    has_more = answer["plan"] is not None and start < end < answer["count"]
    return answer | {"next_cursor": page_query.make_cursor(end) if has_more else None}


def apply_and_render(
    home: ServedHome, handle: str, tool: str, counted: str, work: CallContext
) -> dict[str, Any]:
    """Apply or continue a plan.

    `counted` is the key of the count in the answer.

    Raises:
        NotFound: the plan does not exist.
        InvalidInput: the plan belongs to another tool.
    """
    plan = load_plan(home, handle, tool)
    result = run_plan(home, plan, work)
    if result.undone is not None:
        raise InvalidInput(f"plan {handle} undoes a compression; apply it with sessions_restore")
    return render_applied(home, plan, result, counted, count=getattr(result, counted))


def run_plan(home: ServedHome, plan: StoredPlan, work: CallContext) -> ApplyResult:
    """Apply or continue a plan and report progress."""
    count = PlanPreview.from_plan(plan).count

    def report(progress: ApplyResult) -> None:
        work.report_progress(count - progress.remaining, count)

    result = home.maintenance.apply(
        plan, client=work.client, progress=report, stop=work.is_cancelled
    )
    report(result)
    return result


def render_applied(
    home: ServedHome, plan: StoredPlan, result: ApplyResult, counted: str, *, count: int
) -> dict[str, Any]:
    """Return the result of a plan that was applied before.

    `counted` is the key of the count in the answer.
    """
    preview = PlanPreview.from_plan(plan)
    skipped = render_skipped(home, [(item.id, item.why) for item in result.skipped])
    hidden_count = len(result.skipped) - len(skipped)
    hidden_note = [f"{hidden_count:,} more were skipped"] if hidden_count else []
    resumed_note = [RESUMED_NOTE] if plan.state == "applying" else []
    return render_preview(home, replace(preview, items=())) | {
        "outcome": result.outcome,
        counted: count,
        "skipped": skipped,
        "remaining": result.remaining,
        "batch": result.batch,
        "bytes": asdict(result.bytes),
        **({"next": SHRINK_CALL} if result.shrinks else {}),
        "warnings": render_warnings(
            home, [*resumed_note, *hidden_note, *preview.warnings, *result.warnings]
        ),
    }


def render_unapplied(home: ServedHome, plan: str, outcome: Answer) -> dict[str, Any]:
    """Return a plan that was not applied, and close it if it was declined."""
    answer = render_preview(home, home.maintenance.get_plan(plan)) | {"outcome": outcome}
    if outcome == "declined":
        home.maintenance.close_plan(plan)
    else:
        advice = "call again with the same plan, or start the server with --confirm=never"
        answer["warnings"] = [*answer["warnings"], f"not confirmed; nothing was changed; {advice}"]
    return answer


def load_plan(home: ServedHome, handle: str, tool: str) -> StoredPlan:
    """Return a plan that a tool applies.

    Raises:
        NotFound: the plan does not exist.
        InvalidInput: the plan belongs to another tool.
    """
    plan = home.ledger.get_plan(handle)
    kind = PLAN_KINDS.get(plan.kind)
    if kind is None or kind.tool != tool:
        owner = "the tool that made it" if kind is None else f"sessions_{kind.tool}"
        raise InvalidInput(f"plan {handle} is a plan to {plan.kind}; pass it to {owner}")
    return plan


def list_what_values(tool: str) -> tuple[str, ...]:
    """Return the values of `what` that a tool accepts, the default first."""
    return tuple(kind.what for kind in list_requestable_kinds(tool))


def list_requestable_kinds(tool: str) -> list[PlanKind]:
    """Return the kinds of plans that a tool makes on request, the default first."""
    return [kind for kind in PLAN_KINDS.values() if kind.tool == tool and kind.summary]


def find_sessions(home: ServedHome, sessions: list[str] | None) -> tuple[str, ...] | None:
    """Return the ids of sessions given as ids, prefixes or session keys."""
    if sessions is None:
        return None
    return tuple(
        dict.fromkeys(
            session_lookup.find_session_by_id_or_key(home, session) for session in sessions
        )
    )


def build_filter(arguments: Any) -> SessionFilter:
    """Return the session filter of the arguments.

    Missing arguments do not filter.
    """
    return SessionFilter(
        project=getattr(arguments, "project", None),
        source=to_tuple(getattr(arguments, "source", None)),
        end_reason=getattr(arguments, "end_reason", None),
        min_messages=getattr(arguments, "min_messages", None),
        max_messages=getattr(arguments, "max_messages", None),
    )

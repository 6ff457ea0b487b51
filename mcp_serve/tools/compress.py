"""`sessions_compress`: return a brief for a summary, then apply the summary."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_serve import answer_size, arguments, plan_answers, render, schemas
from mcp_serve.arguments import format_time
from mcp_serve.progress import CallContext
from mcp_serve.query_cursors import PagedQuery
from mcp_serve.redaction import redaction
from mcp_serve.stores import session_lookup
from mcp_serve.stores.homes import ServedHome
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput
from session_core.compression import CompressionResult, NotCompressed, SummaryBrief
from session_core.ledger import StoredPlan
from session_core.maintenance import PlanPreview

_MAX_FACTS_CHARS = 8_000
_PLAN_CHARS = 1_000  # the fields around the brief


class CompressArguments(arguments.StoreArguments):
    """The arguments of `sessions_compress`."""

    session: arguments.UntitledSession | None = None
    plan: Annotated[arguments.Handle, Field(description="From call 1.")] | None = None
    summary: (
        Annotated[str, Field(max_length=400_000, description="Your summary, with plan.")] | None
    ) = None
    method: Annotated[
        Literal["summary", "extractive"], Field(description="extractive: made without a model.")
    ] = "summary"
    shape: Literal["auto", "in_place", "continuation"] = "auto"
    keep_last: (
        Annotated[int, Field(ge=0, le=100_000, description="Last messages to keep.")] | None
    ) = None


def compress_session(
    home: ServedHome, arguments: CompressArguments, page_query: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Return a plan with its brief, or apply a plan."""
    del page_query
    if arguments.plan is not None:
        return _apply_plan(home, arguments.plan, arguments.summary, work)
    if arguments.session is None:
        raise InvalidInput("pass session to get a plan and a brief, or plan to apply it")
    if arguments.summary is not None:
        raise InvalidInput(
            "summary requires plan; call with session first to get a plan and a brief"
        )
    try:
        planned = home.compressor.plan(
            session_lookup.find_session_by_id_or_key(home, arguments.session),
            shape=arguments.shape,
            keep_last=arguments.keep_last,
            method=arguments.method,
        )
    except NotCompressed as error:
        if error.code != "nothing_to_win":
            raise
        reason = render.render_line(home, str(error), 500) or ""
        return _render_plan(None, None, 0) | {"outcome": "nothing", "warnings": [reason]}
    return _render_plan(planned.plan, planned.expires_at, planned.brief.messages) | {
        "brief": _render_brief(planned.brief)
    }


def check_compression(home: ServedHome, plan: StoredPlan, summary: str | None) -> None:
    """Refuse a plan that cannot be applied with, or without, this summary.

    Raises:
        InvalidInput: the summary is missing or not acceptable.
    """
    if summary is not None and redaction.MARK in summary:
        raise InvalidInput(
            f"summary must not contain {redaction.MARK!r}, which stands for a secret; "
            "write it without these marks"
        )
    home.compressor.check(plan, summary)


def _apply_plan(
    home: ServedHome, handle: str, summary: str | None, work: CallContext
) -> dict[str, Any]:
    plan = plan_answers.load_plan(home, handle, SPEC.asks)
    check_compression(home, plan, summary)
    home.maintenance.settle()
    count = PlanPreview.from_plan(plan).count
    result = home.compressor.apply(plan, summary, client=work.client, stop=work.is_cancelled)
    work.report_progress(count, count)
    return _render_result(handle, count, result, home.ledger.get_batch(result.batch).bytes)


def _render_brief(brief: SummaryBrief) -> dict[str, Any]:
    fields = {
        "from_id": brief.from_id,
        "to_id": brief.to_id,
        "messages": brief.messages,
        "tokens": brief.tokens,
        "must_survive": answer_size.take_fitting_rows(brief.must_survive, _MAX_FACTS_CHARS),
        "target_chars": brief.target_chars,
        "digest": "",
    }
    remaining = answer_size.DEFAULT_CHARS - answer_size.count_chars(fields) - _PLAN_CHARS
    return fields | {"digest": answer_size.cut_text(brief.digest, remaining)}


def _render_plan(plan: str | None, expires_at: float | None, count: int) -> dict[str, Any]:
    return {
        "outcome": "planned",
        "plan": plan,
        "expires_at": format_time(expires_at),
        "count": count,
        "bytes": plan_answers.NO_BYTES,
        "warnings": [],
    }


def _render_result(plan: str, count: int, result: CompressionResult, trash: int) -> dict[str, Any]:
    retention = result.retention
    return _render_plan(plan, None, count) | {
        "outcome": "applied",
        "bytes": plan_answers.NO_BYTES | {"trash": trash},
        "shape": result.shape,
        "session_id": render.render_id(result.session_id),
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "retention": {
            "found": retention.found,
            "kept": retention.kept,
            "by_kind": {kind: list(counts) for kind, counts in retention.by_kind.items()},
        },
        "remaining": 0,
        "batch": result.batch,
    }


SPEC = ToolSpec(
    name="sessions_compress",
    title="Compress a session",
    description=(
        "Replace the middle of a long conversation with a summary. Call 1 (session) returns a "
        "plan and a brief: range of message ids, facts to keep verbatim, length, digest. Read the "
        "range with sessions_read, write the summary, then make call 2 (plan and summary). With "
        "method=extractive call 2 is plan alone: the summary is made without a model. Nothing is "
        "lost: sessions_restore(batch) undoes it."
    ),
    arguments=CompressArguments,
    answers=schemas.CompressOutput,
    run=compress_session,
    changes=True,
    asks="compress",
    allowed_with_plan=("summary",),
    check=check_compression,
)

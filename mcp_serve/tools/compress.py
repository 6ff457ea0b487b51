"""`sessions_compress`: a brief for whoever writes the summary, then the summary in its place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_serve import answer_size, plans, render, resolve, schemas
from mcp_serve import arguments as given_as
from mcp_serve.arguments import format_time
from mcp_serve.cursors import PagedQuery
from mcp_serve.homes import CLIENT_NAME, ServedHome
from mcp_serve.progress import CallContext
from mcp_serve.redaction import redaction
from mcp_serve.tools.spec import ToolSpec
from session_core import CompressionResult, InvalidInput, NotCompressed, SummaryBrief

_MAX_FACTS_CHARS = 8_000
_PLAN_CHARS = 1_000
"""So many characters of an answer are for the facts, and for what stands beside the brief."""


class CompressArguments(given_as.ProfileArguments):
    """The arguments of `sessions_compress`."""

    session: given_as.ExactSession | None = None
    plan: Annotated[given_as.Handle, Field(description="That of call 1.")] | None = None
    summary: (
        Annotated[str, Field(max_length=400_000, description="What you wrote, with plan.")] | None
    ) = None
    method: Annotated[
        Literal["summary", "extractive"], Field(description="extractive: made without a model.")
    ] = "summary"
    shape: Literal["auto", "in_place", "continuation"] = "auto"
    keep_last: Annotated[int, Field(ge=0, le=100_000, description="Messages that stay.")] | None = (
        None
    )


def compress_session(
    home: ServedHome, given: CompressArguments, asked: PagedQuery, work: CallContext
) -> dict[str, Any]:
    """Answer a plan with its brief, or apply one."""
    del asked
    if given.plan is not None:
        return _apply_plan(home, given.plan, given.summary, work)
    if given.session is None:
        raise InvalidInput("give a session for a plan and a brief, or the plan to apply it")
    if given.summary is not None:
        raise InvalidInput("a summary goes with a plan; call with session first for the brief")
    try:
        planned = home.make_compressor(work.client).plan(
            resolve.find_exact_session(home, given.session),
            shape=given.shape,
            keep_last=given.keep_last,
            method=given.method,
        )
    except NotCompressed as error:
        if error.code != "nothing_to_win":
            raise
        why = render.render_line(home, str(error), 500) or ""
        return _render_plan(None, None, 0) | {"outcome": "nothing", "warnings": [why]}
    return _render_plan(planned.plan, planned.expires_at, planned.brief.messages) | {
        "brief": _render_brief(planned.brief)
    }


def check_compression(home: ServedHome, plan: str, summary: str | None) -> None:
    """Refuse a plan that cannot be applied with a summary, or without one.

    Raises:
        InvalidInput: it is that of another tool, or the summary is not one that it waits for.
    """
    plans.check_plan_kind(home, plan, "compress")
    if summary is not None and redaction.MARK in summary:
        raise InvalidInput(
            f"the summary contains {redaction.MARK!r}, which stands for a secret; "
            "write it without these marks"
        )
    home.make_compressor(CLIENT_NAME).check(plan, summary)


def _apply_plan(
    home: ServedHome, plan: str, summary: str | None, work: CallContext
) -> dict[str, Any]:
    check_compression(home, plan, summary)
    home.make_maintenance(work.client).settle()
    count = home.maintenance.get_plan(plan).count
    done = home.make_compressor(work.client).apply(plan, summary, stop=work.is_cancelled)
    work.report_progress(count, count)
    return _render_result(plan, count, done, home.ledger.get_batch(done.batch).bytes)


def _render_brief(brief: SummaryBrief) -> dict[str, Any]:
    said = {
        "from_id": brief.from_id,
        "to_id": brief.to_id,
        "messages": brief.messages,
        "tokens": brief.tokens,
        "must_survive": answer_size.take_fitting_rows(brief.must_survive, _MAX_FACTS_CHARS),
        "target_chars": brief.target_chars,
        "digest": "",
    }
    left = answer_size.DEFAULT_CHARS - answer_size.count_chars(said) - _PLAN_CHARS
    return said | {"digest": answer_size.cut_text(brief.digest, left)}


def _render_plan(plan: str | None, expires_at: float | None, count: int) -> dict[str, Any]:
    return {
        "outcome": "planned",
        "plan": plan,
        "expires_at": format_time(expires_at),
        "count": count,
        "items": [],
        "protected": [],
        "bytes": plans.NO_BYTES,
        "warnings": [],
    }


def _render_result(plan: str, count: int, done: CompressionResult, trash: int) -> dict[str, Any]:
    kept = done.retention
    return _render_plan(plan, None, count) | {
        "outcome": "applied",
        "bytes": plans.NO_BYTES | {"trash": trash},
        "shape": done.shape,
        "session_id": render.render_id(done.session_id),
        "tokens_before": done.tokens_before,
        "tokens_after": done.tokens_after,
        "retention": {
            "found": kept.found,
            "kept": kept.kept,
            "by_kind": {kind: list(both) for kind, both in kept.by_kind.items()},
        },
        "skipped": [],
        "remaining": 0,
        "batch": done.batch,
    }


SPEC = ToolSpec(
    name="sessions_compress",
    title="Compress a session",
    description=(
        "Replace the middle of a long conversation by a summary. "
        "Call 1 (session) answers a plan and a brief: the range of message ids, what must survive "
        "verbatim, the length, a digest. Read the range with sessions_read, write the summary, "
        "then call 2 (plan and summary). With method=extractive call 2 is plan alone: a summary "
        "made without a model. Nothing is lost: sessions_restore(batch) takes it back."
    ),
    arguments=CompressArguments,
    answers=schemas.CompressOutput,
    run=compress_session,
    changes=True,
    asks="compress",
    beside_plan=("summary",),
    check=check_compression,
)

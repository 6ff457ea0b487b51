"""`sessions_compress`: a brief for whoever writes the summary, then the summary in its place."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_serve import arguments as given_as
from mcp_serve import budget, naming, plans, redaction, shapes, whole
from mcp_serve.cursors import Asked
from mcp_serve.homes import Home
from mcp_serve.times import iso
from mcp_serve.tools.spec import Spec
from session_core import Compressed, InvalidInput, NotCompressed, Planned

_FOR_FACTS = 8_000
_LEAST_SECRET = 6
_SEAM = re.compile(r"[\s=:@\"'`\\/]+")


class CompressArguments(given_as.Home):
    """The arguments of `sessions_compress`."""

    session: given_as.ExactSession | None = None
    plan: given_as.Handle | None = None
    summary: (
        Annotated[
            str, Field(max_length=400_000, description="With plan: the summary that you wrote.")
        ]
        | None
    ) = None
    method: Annotated[
        Literal["summary", "extractive"], Field(description="extractive: made without a model.")
    ] = "summary"
    shape: Literal["auto", "in_place", "continuation"] = "auto"
    keep_last: Annotated[int, Field(ge=0, le=100_000, description="Messages that stay.")] | None = (
        None
    )


def compress(home: Home, given: CompressArguments, asked: Asked) -> dict[str, Any]:
    """Answer a plan with its brief, or apply one."""
    del asked
    if given.plan is not None:
        return _done(given.plan, _apply(home, given.plan, given.summary))
    if given.session is None:
        raise InvalidInput("session is required; the plan of the first call for the second")
    if given.summary is not None:
        raise InvalidInput("a summary goes with a plan; call with session first for the brief")
    try:
        planned = home.compressor.plan(
            naming.find_exactly(home, given.session), shape=given.shape, keep_last=given.keep_last
        )
    except NotCompressed as error:
        if error.code != "nothing_to_win":
            raise
        return _plan(None, None, 0) | {"outcome": "nothing", "warnings": [str(error)]}
    return _plan(planned.plan, planned.expires_at, planned.brief.messages) | {
        "brief": _brief(home, planned)
    }


def _apply(home: Home, plan: str, summary: str | None) -> Compressed:
    if summary is not None and redaction.MARK in summary:
        raise InvalidInput(
            f"the summary contains {redaction.MARK!r}, which stands for a secret; "
            "write it without these marks"
        )
    return home.compressor.apply(plan, summary)


def _brief(home: Home, planned: Planned) -> dict[str, Any]:
    brief = planned.brief
    facts: list[str] = []
    secrets = _secrets(home, planned) if home.redacts else set()
    room = _FOR_FACTS
    for fact in brief.must_survive:
        room -= budget.size(fact) + 1
        if room < 0:
            break
        if home.redact(fact) == fact and not _tells(fact, secrets):
            facts.append(fact)
    said = {
        "from_id": brief.from_id,
        "to_id": brief.to_id,
        "messages": brief.messages,
        "tokens": brief.tokens,
        "must_survive": facts,
        "target_chars": brief.target_chars,
        "digest": "",
    }
    left = budget.DEFAULT - budget.size(said) - 1_000
    digest = "\n".join(
        line for line in home.redact(brief.digest).split("\n") if not _tells(line, secrets)
    )
    return said | {"digest": budget.cut(digest, left)}


def _secrets(home: Home, planned: Planned) -> set[str]:
    """Return what is secret in the range: a line of a brief may lack the name that says so."""
    rows = home.db.get_messages(planned.session_id)
    ids = range(planned.brief.from_id, planned.brief.to_id + 1)
    found = {secret for row in rows if row["id"] in ids for secret in whole.secrets(row)}
    return {value for secret in found for value in _values(secret)}


def _values(secret: str) -> list[str]:
    """Return a secret without the names beside it: what has a digit, or stands last."""
    parts = [part for part in _SEAM.split(secret) if len(part) >= _LEAST_SECRET]
    return [part for part in parts if part is parts[-1] or any(map(str.isdigit, part))]


def _tells(line: str, secrets: set[str]) -> bool:
    """Whether a line has a secret in it, or is a piece of one."""
    said = line.strip()
    return any(
        secret in said or (said in secret and len(said) >= _LEAST_SECRET) for secret in secrets
    )


def _plan(plan: str | None, expires_at: float | None, count: int) -> dict[str, Any]:
    return {
        "outcome": "planned",
        "plan": plan,
        "expires_at": iso(expires_at),
        "count": count,
        "items": [],
        "protected": [],
        "bytes": plans.NO_BYTES,
        "warnings": [],
    }


def _done(plan: str, done: Compressed) -> dict[str, Any]:
    kept = done.retention
    return _plan(plan, None, done.rows) | {
        "outcome": "applied",
        "shape": done.shape,
        "session_id": done.session_id,
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


SPEC = Spec(
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
    answers=shapes.Compressed,
    run=compress,
    changes=True,
    asks="compress",
    beside_plan=("summary",),
)

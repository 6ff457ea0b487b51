"""Plans: recorded, applied once, and answering what they came to ever after.

A plan is valid for a day. It ends as finished or closed, or it runs out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from session_core.errors import Conflict, InvalidInput
from session_core.ledger.batches import (
    LedgerStorage,
    encode_json,
    insert_batch,
    make_handle,
    make_not_found,
    read_batch,
)
from session_core.ledger.database import PACKAGE
from session_core.ledger.types import Batch, Member, PartialMember, StoredPlan
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection

SQL = sql_blocks.load_blocks("plans", PACKAGE)

PLAN_VALID_S = 86_400.0
_PLAN_RETENTION_S = 30 * 86_400.0
"""How long what a plan came to is told, and that it has run out."""


class PlanLedger(LedgerStorage):
    """Plans and what becomes of them."""

    def add_plan(
        self, kind: str, members: Iterable[Member], about: Any, cutoff: float | None = None
    ) -> StoredPlan:
        """Record a plan of exactly these members; it is durable when this returns.

        Raises:
            InvalidInput: a member is named twice, or something is no JSON value.
        """
        members = tuple(members)
        if len({member.id for member in members}) < len(members):
            raise InvalidInput("a plan names each of its members once")
        now = self._clock()
        plan = StoredPlan(
            make_handle("p"), kind, "planned", members, about, cutoff, now, now + PLAN_VALID_S
        )
        self._file.write(lambda handle: _insert_plan(handle, plan))
        return self.get_plan(plan.handle)

    def get_plan(self, handle: str) -> StoredPlan:
        """Return a plan with its members.

        Raises:
            NotFound: there is none; `nearest` has what may have been meant.
            Conflict: it has run out.
        """
        now = self._clock()

        def look(rows: Connection) -> StoredPlan:
            return _parse_plan(
                _read_plan_row(rows, handle, now), rows.fetch_tuples(SQL["list_members"], (handle,))
            )

        return self._file.read(look)

    def list_results(self, kind: str, members: Sequence[str], limit: int) -> list[Any]:
        """Return what the last plans with one of these members came to, the newest first.

        What was undone since is left out.
        """
        values = {"kind": kind, "members": encode_json(members), "limit": limit}
        found = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_results"], values))
        return [json.loads(result) for (result,) in found]

    def find_recorded_value(self, name: str) -> Any:
        """Return what the newest plan that was begun records under a name, None if none does."""
        text = self._file.read(lambda rows: rows.fetch_value(SQL["get_recorded"], (f"$.{name}",)))
        return json.loads(text or "null")

    def begin_plan(self, handle: str, more: Mapping[str, Any] | None = None) -> Batch:
        """Begin to apply a plan, or go on with it; return the batch of its steps.

        Add `more` to what is recorded about the plan if this call begins it.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
        """
        now = self._clock()

        def step(rows: Connection) -> Batch:
            plan = _read_plan_row(rows, handle, now)
            if plan["state"] == "applying":
                return read_batch(rows, plan["batch"])
            if plan["state"] != "planned":
                raise Conflict(f"plan {handle} is {plan['state']}; make another")
            batch = insert_batch(rows, plan["kind"], handle, now)
            about = {**json.loads(plan["about"]), **more} if more else None
            values = {"handle": handle, "batch": batch.id, "about": about and encode_json(about)}
            rows.run_change(SQL["begin_plan"], values)
            return batch

        return self._file.write(step)

    def finish_plan(self, handle: str, result: Any) -> None:
        """End a plan that was applied, with what it came to.

        Raises:
            Conflict: it was not being applied.
        """
        self._end_plan(handle, "finished", ("applying",), result)

    def close_plan(self, handle: str) -> None:
        """End a plan that is not to be applied, or no further.

        Raises:
            Conflict: it has ended already.
        """
        self._end_plan(handle, "closed", ("planned", "applying"), None)

    def stop_plan(self, handle: str) -> None:
        """Let no step of a plan begin any more; one that was begun is ended by `end_stopped`.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended already.
        """

        def step(rows: Connection) -> None:
            _require_state(rows, handle, ("planned", "applying"))
            rows.run_change(SQL["stop_plan"], (handle,))

        self._file.write(step)

    def list_stopped_plans(self) -> list[StoredPlan]:
        """Return the plans that are to be ended: they were stopped, or have run out half-way."""
        return self._select_plans("list_stopped", self._clock())

    def list_applied_plans(self, kind: str) -> list[StoredPlan]:
        """Return the plans of a kind that are being applied, the newest first."""
        return self._select_plans("list_applied", kind, self._clock())

    def _select_plans(self, block: str, *values: Any) -> list[StoredPlan]:
        return self._file.read(
            lambda rows: [
                _parse_plan(row, rows.fetch_tuples(SQL["list_members"], (row["handle"],)))
                for row in rows.fetch_rows(SQL[block], values)
            ]
        )

    def end_stopped_plan(self, handle: str, halves: Iterable[str], why: str) -> None:
        """End a plan that was stopped; what is gone of these members is to be put back.

        Raises:
            Conflict: it has ended already.
        """
        values = [{"plan": handle, "id": each, "why": why, "half": True} for each in halves]

        def step(rows: Connection) -> None:
            _require_state(rows, handle, ("stopping",))
            rows.connection.executemany(SQL["skip_member"], values)
            rows.run_change(SQL["end_plan"], {"handle": handle, "state": "closed", "result": None})

        self._file.write(step)

    def skip_members(
        self, handle: str, members: Iterable[str], why: str, *, half: bool = False
    ) -> None:
        """Note of members that they are left as they are; what was decided about one stays.

        `half` says that a part of them is gone, which is to be put back.
        """
        values = [{"plan": handle, "id": each, "why": why, "half": half} for each in members]
        self._file.write(lambda rows: rows.connection.executemany(SQL["skip_member"], values))

    def is_member_open(self, handle: str, member: str) -> bool:
        """Whether a member was not left as it is; no change that is under way is waited for."""
        return bool(
            self._beside.read(lambda rows: rows.fetch_value(SQL["is_open"], (handle, member)))
        )

    def list_partial_members(self) -> list[PartialMember]:
        """Return what is to be put back of all plans."""
        found = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_halves"]))
        return [PartialMember(plan, batch, _parse_member(row)) for plan, batch, *row in found]

    def finish_partial(self, handle: str, member: str, more: str) -> None:
        """Note that what was gone of a member was put back; `more` is added to why it was left."""
        values = {"plan": handle, "id": member, "more": more}
        self._file.write(lambda rows: rows.run_change(SQL["end_half"], values))

    def finish_partials(self, batch: str) -> None:
        """Note that a batch was taken back, with all that is gone of its members."""
        self._file.write(lambda rows: rows.run_change(SQL["end_halves"], (batch,)))

    def _end_plan(self, handle: str, state: str, of: tuple[str, ...], result: Any) -> None:
        values = {"handle": handle, "state": state, "result": encode_json(result)}

        def step(rows: Connection) -> None:
            _require_state(rows, handle, of)
            rows.run_change(SQL["end_plan"], values)

        self._file.write(step)


def claim_members(rows: Connection, plan: str, members: tuple[str, ...], step: str) -> None:
    """Give members of a plan that is being applied to a step, each of which must be open."""
    found = rows.fetch_row(SQL["get_plan"], (plan,))
    if found is None or found["state"] != "applying":
        raise Conflict(f"plan {plan} is not being applied any more")
    # One by one: in JSON, as SQLite reads it, an id would end at its first NUL.
    claims = [{"plan": plan, "step": step, "id": each} for each in members]
    if sum(rows.run_change(SQL["claim_member"], claim) for claim in claims) == len(members):
        return
    named = all(rows.fetch_value(SQL["is_named"], (plan, each)) for each in members)
    if not named or len(set(members)) < len(members):
        raise InvalidInput(f"a step of plan {plan} changes only what that names, each once")
    raise Conflict(f"somebody else applies plan {plan}, or has: look at it again")


def release_members(rows: Connection, step: str, skipped: str | None) -> None:
    """Take members from a step that changes nothing; `skipped` says why they are left at that."""
    rows.run_change(SQL["release_members"], {"step": step, "skipped": skipped})


def _insert_plan(rows: Connection, plan: StoredPlan) -> None:
    long_ago = plan.created_at - _PLAN_RETENTION_S
    for block in ("forget_members", "forget_plans"):
        rows.run_change(SQL[block], (long_ago,))
    values = {
        "handle": plan.handle,
        "kind": plan.kind,
        "about": encode_json(plan.about),
        "cutoff": plan.cutoff,
        "now": plan.created_at,
        "expires_at": plan.expires_at,
    }
    rows.run_change(SQL["add_plan"], values)
    rows.connection.executemany(
        SQL["add_member"],
        (
            (plan.handle, position, member.id, encode_json(member.revision), member.why)
            for position, member in enumerate(plan.members)
        ),
    )


def _require_state(rows: Connection, handle: str, of: tuple[str, ...]) -> None:
    found = rows.fetch_row(SQL["get_plan"], (handle,))
    if found is None:
        raise make_not_found(rows, "plan", handle, SQL["list_names"])
    if found["state"] not in of:
        raise Conflict(f"plan {handle} is {found['state']}")


def _read_plan_row(rows: Connection, handle: str, now: float) -> dict[str, Any]:
    found = rows.fetch_row(SQL["get_plan"], (handle,))
    if found is None:
        raise make_not_found(rows, "plan", handle, SQL["list_names"])
    if found["state"] in ("planned", "applying") and found["expires_at"] <= now:
        done = f"; what it has done can be undone as {found['batch']}" if found["batch"] else ""
        raise Conflict(f"plan {handle} has expired, a day after it was made: make another{done}")
    return found


def _parse_member(row: Sequence[Any]) -> Member:
    name, revision, why, step, skipped, half = row
    return Member(name, json.loads(revision), why, step, skipped, bool(half))


def _parse_plan(row: Mapping[str, Any], members: list[tuple[Any, ...]]) -> StoredPlan:
    return StoredPlan(
        handle=row["handle"],
        kind=row["kind"],
        state=row["state"],
        members=tuple(map(_parse_member, members)),
        about=json.loads(row["about"]),
        cutoff=row["cutoff"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        batch=row["batch"],
        result=json.loads(row["result"] or "null"),
    )

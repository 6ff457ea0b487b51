"""Plans: stored once, applied once, and then returned with their result.

A plan is valid for a day. It ends as finished or closed, or it expires.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from session_core.errors import Conflict, InvalidInput
from session_core.ledger.batches import insert_batch
from session_core.ledger.database import PACKAGE
from session_core.ledger.storage import (
    LedgerStorage,
    encode_json,
    make_handle,
    make_not_found,
)
from session_core.ledger.types import Member, PartialMember, PlanState, StoredPlan
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import Connection

SQL = sql_blocks.load_blocks("plans", PACKAGE)

PLAN_VALID_S = 86_400.0
_PLAN_RETENTION_S = 30 * 86_400.0
"""How long the result of a plan, or the fact that it has expired, is kept."""


class PlanLedger(LedgerStorage):
    """Plans and their members."""

    def add_plan(
        self, kind: str, members: Iterable[Member], about: Any, cutoff: float | None = None
    ) -> StoredPlan:
        """Store a plan of exactly these members.

        `about` is JSON that the plan keeps for its planner. `cutoff` is the latest activity that
        its members may have had. The plan is durable when this returns.

        Raises:
            InvalidInput: a member is named twice, or a value is not JSON.
        """
        members = tuple(members)
        if len({member.id for member in members}) < len(members):
            raise InvalidInput("the members of a plan must be unique")
        now = self._clock()
        # The values are returned as JSON stores them, so that a plan is the same when it is loaded.
        stored = (replace(item, revision=_normalize_json(item.revision)) for item in members)
        plan = StoredPlan(
            make_handle("p"),
            kind,
            "planned",
            tuple(stored),
            _normalize_json(about),
            cutoff,
            now,
            now + PLAN_VALID_S,
        )
        self._file.write(lambda rows: _insert_plan(rows, plan))
        return plan

    def get_plan(self, handle: str) -> StoredPlan:
        """Return a plan with its members.

        Raises:
            NotFound: the plan does not exist; `nearest` lists similar handles.
            Conflict: the plan has expired.
        """
        now = self._clock()

        def read_plan(rows: Connection) -> StoredPlan:
            return _parse_plan(
                _read_plan_row(rows, handle, now), rows.fetch_tuples(SQL["list_members"], (handle,))
            )

        return self._file.read(read_plan)

    def get_plan_state(self, handle: str) -> PlanState | None:
        """Return the state of a plan, or None if the plan does not exist."""
        state: PlanState | None = self._file.read(
            lambda rows: rows.fetch_value(SQL["get_state"], (handle,))
        )
        return state

    def list_members(self, handle: str) -> tuple[Member, ...]:
        """Return the members of a plan with their outcome so far."""
        rows = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_members"], (handle,)))
        return tuple(map(_parse_member, rows))

    def list_results(self, kind: str, members: Sequence[str], limit: int) -> list[Any]:
        """Return the results of the newest plans with one of these members, newest first.

        Plans that were undone are left out.
        """
        values = {"kind": kind, "members": encode_json(members), "limit": limit}
        results = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_results"], values))
        return [json.loads(result) for (result,) in results]

    def find_recorded_value(self, name: str) -> Any:
        """Return the value that the newest started plan records under a name, or None."""
        text = self._file.read(lambda rows: rows.fetch_value(SQL["get_recorded"], (f"$.{name}",)))
        return json.loads(text or "null")

    def begin_plan(self, handle: str, more: Mapping[str, Any] | None = None) -> StoredPlan:
        """Begin or continue to apply a plan, and return the plan with the batch of its steps.

        If this call begins the plan, `more` is added to the data recorded about it.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has ended or expired.
        """
        now = self._clock()

        def start_plan(rows: Connection) -> StoredPlan:
            row = _read_plan_row(rows, handle, now)
            # In state "applying", another call or a process that died has begun it.
            if row["state"] == "planned":
                batch = insert_batch(rows, row["kind"], handle, now)
                about = encode_json({**json.loads(row["about"]), **more}) if more else row["about"]
                begun = {"state": "applying", "batch": batch.id, "about": about}
                rows.execute_update(SQL["begin_plan"], {"handle": handle, **begun})
                row = {**row, **begun}
            elif row["state"] != "applying":
                raise Conflict(f"plan {handle} is {row['state']}; make a new one")
            return _parse_plan(row, rows.fetch_tuples(SQL["list_members"], (handle,)))

        return self._file.write(start_plan)

    def finish_plan(self, handle: str, result: Any) -> None:
        """End a plan that was applied and store its result.

        Raises:
            Conflict: the plan was not being applied.
        """
        self._end_plan(handle, "finished", ("applying",), result)

    def close_plan(self, handle: str) -> None:
        """End a plan that will not be applied any further.

        Raises:
            Conflict: the plan has ended already.
        """
        self._end_plan(handle, "closed", ("planned", "applying"), None)

    def stop_plan(self, handle: str) -> None:
        """Prevent new steps of a plan.

        `end_stopped_plan` ends the plan after its last step.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has ended already.
        """

        def prevent_steps(rows: Connection) -> None:
            _require_state(rows, handle, ("planned", "applying"))
            rows.execute_update(SQL["stop_plan"], (handle,))

        self._file.write(prevent_steps)

    def list_stopped_plans(self) -> list[StoredPlan]:
        """Return the plans that must be ended because they were stopped or expired half-way."""
        return self._select_plans("list_stopped", self._clock())

    def list_applied_plans(self, kind: str) -> list[StoredPlan]:
        """Return the plans of a kind that are being applied, newest first."""
        return self._select_plans("list_applied", kind, self._clock())

    def _select_plans(self, block: str, *values: Any) -> list[StoredPlan]:
        return self._file.read(
            lambda rows: [
                _parse_plan(row, rows.fetch_tuples(SQL["list_members"], (row["handle"],)))
                for row in rows.fetch_rows(SQL[block], values)
            ]
        )

    def end_stopped_plan(self, handle: str, halves: Iterable[str], why: str) -> None:
        """End a plan that was stopped, and mark these members as partly removed, to be restored.

        Raises:
            Conflict: the plan has ended already.
        """
        values = [{"plan": handle, "id": member, "why": why, "half": True} for member in halves]

        def close_plan(rows: Connection) -> None:
            _require_state(rows, handle, ("stopping",))
            rows.execute_updates(SQL["skip_member"], values)
            rows.execute_update(
                SQL["end_plan"], {"handle": handle, "state": "closed", "result": None}
            )

        self._file.write(close_plan)

    def skip_members(
        self, handle: str, members: Iterable[str], why: str, *, half: bool = False
    ) -> None:
        """Mark members as skipped.

        Members that are already decided stay as they are.

        `half` marks a part of them as removed, to be restored.
        """
        values = [{"plan": handle, "id": member, "why": why, "half": half} for member in members]
        self._file.write(lambda rows: rows.execute_updates(SQL["skip_member"], values))

    def is_member_open(self, handle: str, member: str) -> bool:
        """Return True if a member is not skipped, without waiting for a write of another thread."""
        return bool(
            self._read_file.read(lambda rows: rows.fetch_value(SQL["is_open"], (handle, member)))
        )

    def list_partial_members(self) -> list[PartialMember]:
        """Return the members of all plans that must be restored."""
        partials = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_halves"]))
        return [PartialMember(plan, batch, _parse_member(row)) for plan, batch, *row in partials]

    def finish_partial(self, handle: str, member: str, more: str) -> None:
        """Record that a partly removed member was restored, and append `more` to its reason."""
        values = {"plan": handle, "id": member, "more": more}
        self._file.write(lambda rows: rows.execute_update(SQL["end_half"], values))

    def finish_partials(self, batch: str) -> None:
        """Record that the undo of a batch has restored the partly removed members of its plan."""
        self._file.write(lambda rows: rows.execute_update(SQL["end_halves"], (batch,)))

    def _end_plan(self, handle: str, state: str, states: tuple[str, ...], result: Any) -> None:
        values = {"handle": handle, "state": state, "result": encode_json(result)}

        def end_plan(rows: Connection) -> None:
            # In the transaction of the change: of several processes that end a plan, one succeeds.
            _require_state(rows, handle, states)
            rows.execute_update(SQL["end_plan"], values)

        self._file.write(end_plan)


def claim_members(rows: Connection, plan: str, members: tuple[str, ...], step: str) -> None:
    """Assign open members of a plan that is being applied to a step."""
    if rows.fetch_value(SQL["get_state"], (plan,)) != "applying":
        raise Conflict(f"plan {plan} is no longer being applied")
    # One statement for each id: SQLite's JSON functions cut an id at its first NUL.
    claims = [{"plan": plan, "step": step, "id": member} for member in members]
    if rows.execute_updates(SQL["claim_member"], claims) == len(members):
        return
    all_named = all(rows.fetch_value(SQL["is_named"], (plan, member)) for member in members)
    if not all_named or len(set(members)) < len(members):
        raise InvalidInput(f"the members of a step must be different members of plan {plan}")
    raise Conflict(f"another process applies plan {plan}, or has applied it; load it again")


def release_members(rows: Connection, step: str, skipped: str | None) -> None:
    """Release the members of a step that changes nothing, or skip them if a reason is given."""
    rows.execute_update(SQL["release_members"], {"step": step, "skipped": skipped})


def _insert_plan(rows: Connection, plan: StoredPlan) -> None:
    """Insert a plan with its members, and delete the plans that are past their retention."""
    # Each new plan deletes old plans. No other task does.
    long_ago = plan.created_at - _PLAN_RETENTION_S
    for block in ("forget_members", "forget_plans"):
        rows.execute_update(SQL[block], (long_ago,))
    values = {
        "handle": plan.handle,
        "kind": plan.kind,
        "about": encode_json(plan.about),
        "cutoff": plan.cutoff,
        "now": plan.created_at,
        "expires_at": plan.expires_at,
    }
    rows.execute_update(SQL["add_plan"], values)
    rows.execute_updates(
        SQL["add_member"],
        [
            (plan.handle, position, member.id, encode_json(member.revision), member.why)
            for position, member in enumerate(plan.members)
        ],
    )


def _require_state(rows: Connection, handle: str, states: tuple[str, ...]) -> None:
    state = rows.fetch_value(SQL["get_state"], (handle,))
    if state is None:
        raise make_not_found(rows, "plan", handle, SQL["list_names"])
    if state not in states:
        raise Conflict(f"plan {handle} is {state}")


def _read_plan_row(rows: Connection, handle: str, now: float) -> dict[str, Any]:
    row = rows.fetch_row(SQL["get_plan"], (handle,))
    if row is None:
        raise make_not_found(rows, "plan", handle, SQL["list_names"])
    if row["state"] in ("planned", "applying") and row["expires_at"] <= now:
        undo_hint = f"; its changes can be undone as {row['batch']}" if row["batch"] else ""
        raise Conflict(f"plan {handle} has expired after a day; make a new one{undo_hint}")
    return row


def _normalize_json(value: Any) -> Any:
    return json.loads(encode_json(value))


def _parse_member(row: Sequence[Any]) -> Member:
    member_id, revision, why, step, skipped, half = row
    return Member(member_id, json.loads(revision), why, step, skipped, bool(half))


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

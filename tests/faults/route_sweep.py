"""Tries changes of the routes with a fault at many points: before or after, and no chat is lost."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import routes, state
from tests.faults.labs import ChildRun
from tests.faults.points import InjectedFault, TracedCall
from tests.faults.routes import RouteHome, RouteMutation, RouteState
from tests.faults.sweep import DURABLE_CALLS, FaultSweep, describe_run


@dataclass(frozen=True, slots=True)
class RouteTrial:
    """A change of the routes, the home before it, and its calls without a fault."""

    mutation: RouteMutation
    home: Path
    before: RouteState
    after: RouteState
    calls: list[TracedCall]


class RouteSweep(FaultSweep):
    """Tries a change of the routes with a fault, and lets the next message of the chat come in."""

    def rehearse(self, mutation: Any, folder: Path) -> Any:
        """Build the home before it, and run it undisturbed."""
        home = folder / "template"
        routes.build_home(home, mutation.kind)
        undisturbed = routes.copy_home(home, folder / "undisturbed")
        before = routes.read_state(undisturbed)
        with self._labs.borrow_lab() as lab:
            ran, calls = lab.trace_mutation(mutation, undisturbed, folder / "trace.log")
        if ran.said != ("ack", "closed", "end"):
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
        return RouteTrial(mutation, home, before, routes.read_state(undisturbed), calls)

    def _try_point(
        self, trial: Any, fault: InjectedFault, point: TracedCall, folder: Path
    ) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy_home(trial.home, folder / label)
        with self._labs.borrow_lab() as lab:
            ran = lab.run_mutation(
                trial.mutation, home, inject=fault.list_injections(point), log=log
            )
        seen = routes.read_state(home)
        wrong = _find_problems(trial, fault, point, ran, seen) + state.find_damage(home)
        wrong += _heal_and_check(trial, ran, home)
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{describe_run(ran)}, {_classify_state(trial, seen)}", problem


def _classify_state(trial: RouteTrial, seen: RouteState) -> str:
    if seen.authoritative_state == trial.after.authoritative_state:
        return "after"
    return "before" if seen.authoritative_state == trial.before.authoritative_state else "between"


def _find_problems(
    trial: RouteTrial, fault: InjectedFault, point: TracedCall, ran: ChildRun, seen: RouteState
) -> list[str]:
    """Return the problems of the state that a fault has left."""
    mutation = trial.mutation
    truths = (trial.before.authoritative_state, trial.after.authoritative_state)
    files = (trial.before.file, trial.after.file)
    apart = mutation.in_steps or mutation.kind == "older"
    whole = all(
        any(part == truth[at] for truth in truths)
        for at, part in enumerate(seen.authoritative_state)
    )
    # A check leaves routes that it cannot look up for the next message.
    acknowledged = "ack" in ran.said and mutation.method != "repair_routes"
    # Where the log could not be synced, a removal that raised may have been and may come back.
    unsure = point.syscall in DURABLE_CALLS and fault.name == "error once"
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.is_killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        "neither the state before nor the one after": seen.authoritative_state not in truths
        and not apart,
        "routes or rows that never were": apart and not mutation.in_steps and not whole,
        "acknowledged and lost": acknowledged
        and seen.authoritative_state != trial.after.authoritative_state,
        "a mirror that never was": not mutation.in_steps and seen.file not in files,
        "a mirror that would bring a route back": not _has_no_extra_routes(seen) and not unsure,
        "something left over": bool(seen.left_over) and fault.name in ("error once", "disk full"),
    }
    return [what for what, so in judged.items() if so]


def _has_no_extra_routes(seen: RouteState) -> bool:
    """Whether the mirror has no route that the table lacks."""
    return seen.table is None or set(seen.file) <= set(seen.table)


def _heal_and_check(trial: RouteTrial, ran: ChildRun, home: Path) -> list[str]:
    """Start again, let the next message arrive, and return the problems of its session."""
    mutation = trial.mutation
    opened = RouteHome(home, later=True)
    try:
        store = opened.store
        store.repair_routes()
        entry = store.get_or_create_session(routes.build_source(mutation.chat))
        wrong = []
        if entry.session_id not in mutation.lands:
            wrong.append(f"the next message lands in {entry.session_id}")
        if "ack" not in ran.said and entry.session_id == "later" and _must_keep_session(trial):
            wrong.append("the conversation is lost")
        wrong += _append_and_read(opened, entry)
    finally:
        opened.close()
    seen = routes.read_state(home)
    if seen.table is not None and seen.table != seen.file:
        wrong.append("the two copies differ after the next close")
    return wrong + [f"a problem is left: {problem}" for problem in opened.store.problems]


def _must_keep_session(trial: RouteTrial) -> bool:
    """Whether a chat that was not answered must still be where its conversation is."""
    key = routes.build_key(trial.mutation.chat)
    known = trial.before.authoritative_state[1].get(key)
    return known is not None and trial.after.authoritative_state[1].get(key) == known


def _append_and_read(opened: RouteHome, entry: Any) -> list[str]:
    """Append a message to the session, and check that all messages are there."""
    if opened.db is None:
        return []
    before = opened.db.get_messages(entry.session_id)
    fields = opened.store.build_session_fields(entry)
    opened.db.append_message(entry.session_id, "user", "needle again", create=fields)
    read = [row["content"] for row in opened.db.get_messages(entry.session_id)]
    contents = [row["content"] for row in before]
    wrong = [] if read == [*contents, "needle again"] else ["it cannot be gone on with"]
    if entry.session_id not in ("fresh", "later") and not contents:
        wrong.append(f"the history of {entry.session_id} is lost")
    return wrong

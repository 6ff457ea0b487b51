"""Ends the session of a chat with a fault at many points, and checks that each hook is called once.

A hook call that has begun counts as delivered. So if a kill hits the commit that records the begin,
no process makes the call. An error there does not prevent the call, and the next start may repeat
it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import routes, state
from tests.faults.hook_mutations import HookedRouteHome, HookLines, HookMutation, read_hook_log
from tests.faults.points import InjectedFault, TracedCall
from tests.faults.sweep import DURABLE_CALLS, FaultSweep, describe_run


@dataclass(frozen=True, slots=True)
class HookTrial:
    """A change that ends a session, the home before it, and its calls when nothing fails."""

    mutation: HookMutation
    home: Path
    calls: list[TracedCall]


class HookSweep(FaultSweep):
    """Runs a change with a fault, then lets the next start and message deliver pending calls."""

    def rehearse(self, mutation: Any, folder: Path) -> Any:
        """Build the home before it, and run it undisturbed."""
        home = folder / "template"
        routes.build_home(home, mutation.kind)
        undisturbed = routes.copy_home(home, folder / "undisturbed")
        with self._labs.borrow_lab() as lab:
            ran, calls = lab.trace_mutation(mutation, undisturbed, folder / "trace.log")
        whole = ran.said == ("ack", "closed", "end")
        if not whole or read_hook_log(undisturbed) != _list_due_calls(
            mutation, _find_session_id(mutation, undisturbed)
        ):
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
        return HookTrial(mutation, home, calls)

    def _try_point(
        self, trial: Any, fault: InjectedFault, point: TracedCall, folder: Path
    ) -> tuple[str, str]:
        mutation = trial.mutation
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy_home(trial.home, folder / label)
        with self._labs.borrow_lab() as lab:
            ran = lab.run_mutation(mutation, home, inject=fault.list_injections(point), log=log)
        before = read_hook_log(home)
        lines = _restart_and_read_log(mutation, home)
        due = _list_due_calls(mutation, _find_session_id(mutation, home))
        how = _classify_calls(lines, due)
        wrong = {
            "it hung": ran.hung,
            "the fault did not happen": not ran.failed or ran.is_killed != (fault.name == "kill"),
            "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
            f"{lines} is told, of {due}": not _is_allowed(how, fault, point),
            "acknowledged, and not told": "ack" in ran.said and not (before or mutation.by_clock),
            "a start later tells it once more": _restart_and_read_log(mutation, home) != lines,
        }
        problems = [what for what, so in wrong.items() if so] + state.find_damage(home)
        shutil.rmtree(home)
        log.unlink()
        where = f"{mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(problems)}; it said {ran.said}" if problems else ""
        return f"{describe_run(ran)}, {how}", problem


def _restart_and_read_log(mutation: HookMutation, home: Path) -> HookLines:
    """Start again, let a message arrive, and return all hook calls so far."""
    opened = HookedRouteHome(home, later=True)
    try:
        opened.store.deliver_pending_hooks()
        if mutation.by_clock:
            opened.run_expiry_tick()
        else:
            opened.store.get_or_create_session(routes.build_source(mutation.chat))
    finally:
        opened.close()
    return read_hook_log(home)


def _find_session_id(mutation: HookMutation, home: Path) -> str | None:
    opened = HookedRouteHome(home)
    try:
        return opened.store.peek_session_id(routes.build_key(mutation.chat))
    finally:
        opened.close()


def _list_due_calls(mutation: HookMutation, session_id: str | None) -> HookLines:
    """Return the hook calls that are due if the chat is in this session now."""
    if mutation.by_clock:
        return [("finalize", mutation.chat)]
    if session_id in {mutation.chat, None}:
        return []
    return [("finalize", mutation.chat), ("reset", str(session_id))]


def _classify_calls(lines: HookLines, due: HookLines) -> str:
    if lines == due:
        return "each once" if due else "nothing came about"
    if set(lines) == set(due) and lines in _list_allowed_repeats(due):
        return "more than once"
    left_out = Counter(due) - Counter(lines)
    one = len(lines) + 1 == len(due) and sum(left_out.values()) == 1
    return "one counts as told" if one else "otherwise"


def _list_allowed_repeats(due: HookLines) -> list[HookLines]:
    """Return the calls that are allowed if the begin of a call could not be recorded."""
    return [due * 2, due + due[1:], due + due[:1], due[:1] + due]


def _is_allowed(how: str, fault: InjectedFault, point: TracedCall) -> bool:
    if fault.name == "kill":
        begun = how == "one counts as told" and point.syscall in DURABLE_CALLS
        return begun or how in {"each once", "nothing came about"}
    return how in {"each once", "nothing came about", "more than once"}

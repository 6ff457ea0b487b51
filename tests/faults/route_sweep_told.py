"""Ends the session of a chat with a fault at many points: what came about is told, each once.

A hook that began counts as told. So what a kill hits in the very commit that notes that is told by
nobody; an error there keeps nobody from telling, and may let the next start tell it once more.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import routes, state
from tests.faults.points import Call, Fault
from tests.faults.routes_told import Lines, Telling, ToldMutation, told
from tests.faults.strace import lent
from tests.faults.sweep import DURABLE, Sweep, came_to


@dataclass(frozen=True, slots=True)
class ToldTrial:
    """A change that ends a session, the home before it, and its calls when nothing fails."""

    mutation: ToldMutation
    home: Path
    calls: list[Call]


class ToldSweep(Sweep):
    """Tries such a change with a fault, and lets the next start and message tell what is left."""

    def rehearse(self, mutation: Any, folder: Path) -> Any:
        """Build the home before it, and run it undisturbed."""
        home = folder / "template"
        routes.build(home, mutation.kind)
        undisturbed = routes.copy(home, folder / "undisturbed")
        with lent(self._labs) as lab:
            ran, calls = lab.trace(mutation, undisturbed, folder / "trace.log")
        whole = ran.said == ("ack", "closed", "end")
        if not whole or told(undisturbed) != _due(mutation, _session_of(mutation, undisturbed)):
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
        return ToldTrial(mutation, home, calls)

    def _try(self, trial: Any, fault: Fault, point: Call, folder: Path) -> tuple[str, str]:
        mutation = trial.mutation
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy(trial.home, folder / label)
        with lent(self._labs) as lab:
            ran = lab.run(mutation, home, inject=fault.inject(point), log=log)
        before = told(home)
        lines = _start(mutation, home)
        due = _due(mutation, _session_of(mutation, home))
        how = _how(lines, due)
        wrong = {
            "it hung": ran.hung,
            "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
            "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
            f"{lines} is told, of {due}": not _may_be(how, fault, point),
            "acknowledged, and not told": "ack" in ran.said and not (before or mutation.by_clock),
            "a start later tells it once more": _start(mutation, home) != lines,
        }
        problems = [what for what, so in wrong.items() if so] + state.damage(home)
        shutil.rmtree(home)
        log.unlink()
        where = f"{mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(problems)}; it said {ran.said}" if problems else ""
        return f"{came_to(ran)}, {how}", problem


def _start(mutation: ToldMutation, home: Path) -> Lines:
    """Start anew, and let a message come in; return all that was told by then, before too."""
    opened = Telling(home, later=True)
    try:
        opened.store.tell_untold()
        if mutation.by_clock:
            opened.tick()
        else:
            opened.store.get_or_create_session(routes.source_of(mutation.chat))
    finally:
        opened.close()
    return told(home)


def _session_of(mutation: ToldMutation, home: Path) -> str | None:
    opened = Telling(home)
    try:
        return opened.store.peek_session_id(routes.key_of(mutation.chat))
    finally:
        opened.close()


def _due(mutation: ToldMutation, session_id: str | None) -> Lines:
    """Return what has to be told where the chat is in this session by now."""
    if mutation.by_clock:
        return [("finalize", mutation.chat)]
    if session_id in {mutation.chat, None}:
        return []
    return [("finalize", mutation.chat), ("reset", str(session_id))]


def _how(lines: Lines, due: Lines) -> str:
    if lines == due:
        return "each once" if due else "nothing came about"
    if set(lines) == set(due) and lines in _twice(due):
        return "more than once"
    left_out = Counter(due) - Counter(lines)
    one = len(lines) + 1 == len(due) and sum(left_out.values()) == 1
    return "one counts as told" if one else "otherwise"


def _twice(due: Lines) -> list[Lines]:
    """Return what may be told where it could not be noted that some of it was."""
    return [due * 2, due + due[1:], due + due[:1], due[:1] + due]


def _may_be(how: str, fault: Fault, point: Call) -> bool:
    if fault.name == "kill":
        begun = how == "one counts as told" and point.syscall in DURABLE
        return begun or how in {"each once", "nothing came about"}
    return how in {"each once", "nothing came about", "more than once"}

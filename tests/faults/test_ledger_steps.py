"""A fault at every write of a step: it was done and can be undone, or it never was."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from session_core.ledger.steps import resume
from tests.faults import ledger
from tests.faults.ledger import LEDGER, MEMBERS, Opened
from tests.faults.points import FAULTS, choose, commit
from tests.faults.strace import lent
from tests.faults.sweep import DURABLE

pytestmark = pytest.mark.faults


@dataclass(frozen=True)
class Trial:
    """A change with a name, the home before it, what that holds, and the calls that it makes."""

    name: str
    files: tuple
    home: Path
    whole: dict
    calls: list


def _rehearse(labs, name, folder):
    home = folder / "template"
    ledger.build(home, LEDGER[name])
    trial = Trial(name, LEDGER[name].files, home, _whole(LEDGER[name].kind, folder), [])
    undisturbed = ledger.copy(home, folder / "undisturbed")
    with lent(labs[0]) as lab:
        ran, calls = lab.trace(trial, undisturbed, folder / "trace.log")
    assert ran.said == ("ack", "closed", "end"), (ran.said, ran.noise)
    assert _judge(trial, undisturbed, acknowledged=True) == []
    trial.calls.extend(calls)
    return trial


def _whole(kind, folder):
    """Return what there is to keep of each session, before anything was done."""
    ledger.template.build(folder / "whole", kind)
    with ledger.open_home(folder / "whole") as db:
        return {name: list(ledger.keep(db, name)) for name in MEMBERS}


@pytest.mark.parametrize("name", LEDGER)
def test_a_fault_leaves_a_step_done_and_undoable_or_never_begun(labs, tmp_path, name):
    trial = _rehearse(labs, name, tmp_path)
    problems, tried = [], Counter()
    for fault in FAULTS.values():
        points = _points(trial, fault)
        for found in labs[1].map(
            lambda at, how=fault: _try(labs, trial, how, at, tmp_path), points
        ):
            tried[fault.name] += 1
            problems += found
    assert problems == []
    assert set(tried) == set(FAULTS)


def _points(trial, fault):
    """Return the chosen points, and every sync: where one fails, a commit may come back later."""
    points = choose(trial.calls, fault, f"{commit()} {trial.name} {fault.name}")
    syncs = [call for call in trial.calls if call.syscall in DURABLE and call not in points]
    return points + syncs if fault.name == "error once" else points


def _try(labs, trial, fault, point, folder):
    label = f"{fault.name}_{point.place}".replace(" ", "_")
    home = ledger.copy(trial.home, folder / label)
    log = folder / f"{label}.log"
    with lent(labs[0]) as lab:
        ran = lab.run(trial, home, inject=fault.inject(point), log=log)
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
    }
    wrong = [what for what, so in judged.items() if so]
    wrong += _judge(trial, home, acknowledged="ack" in ran.said)
    shutil.rmtree(home)
    where = f"{trial.name}: {fault.name} at {point}"
    return [f"{where}: {one}; it said {ran.said} {ran.noise}" for one in wrong]


def _judge(trial, home, *, acknowledged):
    """Let the next start decide, look, and let it go on to the end."""
    opened = LEDGER[trial.name].opens(home)
    try:
        resume(opened.db, opened.ledger)
        wrong = ledger.wrong_with(opened, trial.whole)
        found = ledger.look(opened)
        if acknowledged and (set(found.gone) != set(MEMBERS) or not found.finished):
            wrong.append("acknowledged and lost")
        ledger.apply(opened)
        wrong += ledger.wrong_with(opened, trial.whole)
        if not ledger.look(opened).finished or len(ledger.look(opened).gone) < len(MEMBERS):
            wrong.append("it cannot be gone on with")
        opened.ledger.empty(0)
        if opened.ledger.bytes_used():
            wrong.append("trash that cannot be emptied")
    finally:
        opened.close()
    return wrong + ledger.damage(home)


def test_every_change_of_the_ledger_is_of_a_home_that_is_small(tmp_path):
    for number, mutation in enumerate(LEDGER.values()):
        ledger.build(tmp_path / str(number), mutation)
        opened = Opened(tmp_path / str(number))
        assert len(opened.ledger.plan(ledger.plan_of(opened)).members) == len(MEMBERS)
        opened.close()

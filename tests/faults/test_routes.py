"""A fault at every write of every change of the routes: before or after, and no chat is lost."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass

import pytest

from session_core.routing.store import SessionStore
from tests.faults import routes, state
from tests.faults.points import FAULTS, choose, commit
from tests.faults.routes import LOOKING, ROUTES, Opened
from tests.faults.strace import lent
from tests.faults.sweep import DURABLE

pytestmark = pytest.mark.faults


@dataclass(frozen=True)
class Trial:
    """A change of the routes, the home before it, and what it does when nothing fails."""

    mutation: routes.RouteMutation
    home: object
    before: routes.Seen
    after: routes.Seen
    calls: list


def _rehearse(labs, mutation, folder):
    home = folder / "template"
    routes.build(home, mutation.kind)
    undisturbed = routes.copy(home, folder / "undisturbed")
    before = routes.look(undisturbed)
    with lent(labs[0]) as lab:
        ran, calls = lab.trace(mutation, undisturbed, folder / "trace.log")
    assert ran.said == ("ack", "closed", "end"), (ran.said, ran.noise)
    return Trial(mutation, home, before, routes.look(undisturbed), calls)


@pytest.mark.parametrize("name", ROUTES)
def test_a_fault_leaves_the_routes_before_or_after_and_the_next_start_heals(labs, tmp_path, name):
    trial = _rehearse(labs, ROUTES[name], tmp_path)
    problems, tried = [], Counter()
    for fault in FAULTS.values():
        seed = f"{commit()} {name} {fault.name}"
        points = choose(trial.calls, fault, seed)
        for found in labs[1].map(
            lambda at, how=fault: _try(labs, trial, how, at, tmp_path), points
        ):
            tried[fault.name] += 1
            problems += found
    assert problems == []
    assert set(tried) == set(FAULTS)


def _try(labs, trial, fault, point, folder):
    label = f"{fault.name}_{point.place}".replace(" ", "_")
    home = routes.copy(trial.home, folder / label)
    log = folder / f"{label}.log"
    with lent(labs[0]) as lab:
        ran = lab.run(trial.mutation, home, inject=fault.inject(point), log=log)
    wrong = [*_judge(trial, fault, point, ran, home), *_heal(trial, ran, home)]
    shutil.rmtree(home)
    where = f"{trial.mutation.name}: {fault.name} at {point}"
    return [f"{where}: {one}; it said {ran.said} {ran.noise}" for one in wrong]


def _judge(trial, fault, point, ran, home):
    """Return what is wrong with what a fault has left."""
    seen = routes.look(home)
    truths = (trial.before.truth, trial.after.truth)
    files = (trial.before.file, trial.after.file)
    apart = trial.mutation.in_steps or trial.mutation.kind == "older"
    whole = all(any(part == truth[at] for truth in truths) for at, part in enumerate(seen.truth))
    # A check leaves for the next message what it cannot look up.
    acknowledged = "ack" in ran.said and trial.mutation.method != "check_against_state"
    # Where the log could not be synced, a removal that raised may have been and may come back.
    unsure = point.syscall in DURABLE and fault.name == "error once"
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        "neither the state before nor the one after": seen.truth not in truths and not apart,
        "routes or rows that never were": apart and not trial.mutation.in_steps and not whole,
        "acknowledged and lost": acknowledged and seen.truth != trial.after.truth,
        "a mirror that never was": not trial.mutation.in_steps and seen.file not in files,
        "a mirror that would bring a route back": not _within(seen) and not unsure,
        "something left over": bool(seen.left_over) and fault.name in ("error once", "disk full"),
    }
    return [what for what, so in judged.items() if so] + state.damage(home)


def _within(seen):
    """Whether the mirror has no route that the table lacks."""
    return seen.table is None or set(seen.file) <= set(seen.table)


def _heal(trial, ran, home):
    """Start anew and let the next message come in; return what is wrong with where it lands."""
    mutation = trial.mutation
    opened = Opened(home, later=True)
    try:
        store, db = opened.store, opened.db
        store.check_against_state()
        entry = store.get_or_create_session(routes.source_of(mutation.chat))
        wrong = []
        if entry.session_id not in mutation.lands:
            wrong.append(f"the next message lands in {entry.session_id}")
        if "ack" not in ran.said and entry.session_id == "later" and _is_kept(trial):
            wrong.append("the conversation is lost")
        if db is not None:
            wrong += _go_on(opened, entry)
    finally:
        opened.close()
    seen = routes.look(home)
    if seen.table is not None and seen.table != seen.file:
        wrong.append("the two copies differ after the next close")
    return wrong + [f"a problem is left: {problem}" for problem in opened.store.problems]


def _is_kept(trial):
    """Whether a chat that was not answered must still be where its conversation is."""
    key = routes.key_of(trial.mutation.chat)
    known = trial.before.truth[1].get(key)
    return known is not None and trial.after.truth[1].get(key) == known


def _go_on(opened, entry):
    """Say something in the session, and read all of it back."""
    before = opened.db.get_messages(entry.session_id)
    fields = opened.store.session_fields(entry)
    opened.db.append_message(entry.session_id, "user", "needle again", create=fields)
    read = [row["content"] for row in opened.db.get_messages(entry.session_id)]
    said = [row["content"] for row in before]
    wrong = [] if read == [*said, "needle again"] else ["it cannot be gone on with"]
    if entry.session_id not in ("fresh", "later") and not said:
        wrong.append(f"the history of {entry.session_id} is lost")
    return wrong


@pytest.mark.parametrize("kind", ["own", "hermes", "older", "file"])
def test_the_home_before_a_change_of_the_routes_is_small(tmp_path, kind):
    routes.build(tmp_path / "home", kind)
    assert state.rows(tmp_path / "home") <= 40
    assert len(routes.look(tmp_path / "home").file) == 4


def test_every_change_of_the_routes_is_swept():
    public = {name for name in dir(SessionStore) if not name.startswith("_")}
    swept = {mutation.method for mutation in ROUTES.values()}
    assert public - LOOKING - swept == set()
    assert [name for name in swept if not hasattr(SessionStore, name)] == []

"""A state machine against the model: random steps, reopening, and killed processes.

Afterwards all observable state must equal that of the model.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from session_core import Revision, SessionFilter, StateDatabase
from session_core.types import AppendManyResult
from tests.contract.engines import ENGINES, Engine, has_column
from tests.contract.model import NOTHING, Message, Model, Session, Step, perform_step

pytestmark = pytest.mark.schemas(16, 30)

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["session_core", "tests.contract.engines", "tests.contract.model"])

NAMES = st.sampled_from([f"s{number}" for number in range(6)])
WAYS = ("ours", "other", "reopened", "killed after", "killed inside")


def run_killed_step(
    name: str, home: str, step: Step, way: str, answer: Connection, *, environment: dict[str, str]
) -> None:
    """Take a step in its own process, which is killed after it, or just before its end."""
    # The fork server may be older than the server of PostgreSQL that the environment names.
    os.environ.update(environment)
    db = ENGINES[name](Path(home))
    if way == "killed after":
        answer.send(perform_step(db, step))
    else:
        with db.transaction():
            perform_step(db, step)
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Machine(RuleBasedStateMachine):
    """Takes the same steps on the database and on the model."""

    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.home = Path(self._folder.name) / "home"
        self.home.mkdir()
        self.db = self.engine(self.home)
        self.other = self.engine(self.home)
        self.model = Model(compacts=has_column(self.db, "compacted"))
        self.revisions: dict[str, Revision] = {}
        self.clock = 0.0
        self.created = 0

    def teardown(self) -> None:
        """Close everything."""
        self._close()
        self._folder.cleanup()

    # -- how a step is taken -----------------------------------------------------------------

    def take(self, way: str, *step: Any) -> None:
        """Take a step on both, in one of the ways, and compare the results."""
        if way.startswith("killed") and "processes" not in self.engine.features:
            way = "other"
        error = self.model.expected_error(step)
        done = self._killed(step, way) if way.startswith("killed") else self._taken(step, way)
        if way == "killed inside":
            return
        if error is not None:
            assert done == error
            return
        assert done is None or isinstance(done, AppendManyResult), done
        self.model.apply_step(step, done.ids if done else None)
        if done:
            before = NOTHING if step[0] == "anew" else self.revisions.get(step[1], NOTHING)
            assert (done.before, done.after) == (before, self.other.get_revision(step[1]))

    def _taken(self, step: Step, way: str) -> Any:
        if way == "reopened":
            self._close()
            self._open()
        return perform_step(self.other if way == "other" else self.db, step)

    def _killed(self, step: Step, way: str) -> Any:
        self._close()
        ours, theirs = PROCESSES.Pipe()
        arguments = (self.engine.name, str(self.home), step, way, theirs)
        process = PROCESSES.Process(
            target=run_killed_step, args=arguments, kwargs={"environment": dict(os.environ)}
        )
        process.start()
        theirs.close()
        done = ours.recv() if way == "killed after" else None
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        process.close()
        ours.close()
        self._open()
        return done

    def _open(self) -> None:
        self.db, self.other = self.engine(self.home), self.engine(self.home)

    def _close(self) -> None:
        self.other.close()
        self.db.close()

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return new messages, later than all before."""
        self.clock += count
        return [
            {
                "role": "assistant" if place % 2 else "user",
                "content": f"text {self.clock} {place}",
                "timestamp": self.clock - count + place,
            }
            for place in range(count)
        ]

    def pick(self, place: int) -> str:
        """Return one of the sessions."""
        return sorted(self.model.sessions)[place % len(self.model.sessions)]

    # -- steps -------------------------------------------------------------------------------

    ways = st.sampled_from([*WAYS[:3] * 3, *WAYS[3:]])
    some = st.integers(0, 20)
    has_sessions = precondition(lambda self: self.model.sessions)

    @rule(name=NAMES, way=ways)
    def create(self, name: str, way: str) -> None:
        """Create a session, or one that is there."""
        self.clock += 1
        self.take(way, "create", name, self.clock)

    @rule(name=NAMES, count=st.integers(1, 4), way=ways)
    def append(self, name: str, count: int, way: str) -> None:
        """Append messages, which may create their session."""
        self.take(way, "append", name, self.rows(count))

    @has_sessions
    @rule(place=some, count=st.integers(0, 3), live=st.booleans(), way=ways)
    def replace(self, place: int, count: int, live: bool, way: str) -> None:
        """Replace all rows or the live ones."""
        self.take(way, "replace", self.pick(place), self.rows(count), live)

    @has_sessions
    @rule(place=some, count=st.integers(1, 3), way=ways)
    def compact(self, place: int, count: int, way: str) -> None:
        """Compact in place."""
        self.take(way, "compact", self.pick(place), self.rows(count))

    @has_sessions
    @rule(place=some, which=some, count=st.integers(0, 2), carry=st.integers(0, 2), way=ways)
    def summarise(self, place: int, which: int, count: int, carry: int, way: str) -> None:
        """Replace some live messages by a summary, and carry others."""
        name = self.pick(place)
        live = [message.id for message in self.model.sessions[name].in_state("live")]
        first = which % (len(live) + 1)
        chosen = live[first : first + 3]
        rest = len(chosen) - carry
        self.take(way, "summarise", name, chosen[:rest], self.rows(count), chosen[rest:])

    @has_sessions
    @rule(place=some, which=some, drop=st.integers(0, 2), way=ways)
    def revive(self, place: int, which: int, drop: int, way: str) -> None:
        """Bring compacted messages back in the place of live ones."""
        session = self.model.sessions[name := self.pick(place)]
        compacted = [message.id for message in session.in_state("compacted")]
        live = [message.id for message in session.in_state("live")]
        first = which % (len(compacted) + 1)
        self.take(way, "revive", name, compacted[first : first + 3], live[:drop])

    @has_sessions
    @rule(place=some, source=some, which=some, way=ways)
    def copy(self, place: int, source: int, which: int, way: str) -> None:
        """Copy messages to another session, or to the same one."""
        name = self.pick(source)
        ids = [message.id for message in self.model.sessions[name].messages]
        first = which % (len(ids) + 1)
        self.take(way, "copy", self.pick(place), name, ids[first : first + 3])

    @has_sessions
    @rule(place=some, count=st.integers(1, 4), way=ways)
    def anew(self, place: int, count: int, way: str) -> None:
        """Delete a session and begin one of the same name."""
        self.take(way, "anew", self.pick(place), self.rows(count))

    @has_sessions
    @rule(place=some, which=some, way=ways)
    def rewind(self, place: int, which: int, way: str) -> None:
        """Rewind to a live message of the user."""
        name = self.pick(place)
        live = [m.id for m in self.model.sessions[name].in_state("live") if m.role == "user"]
        if live:
            self.take(way, "rewind", name, live[which % len(live)])

    @has_sessions
    @rule(place=some, which=some, way=ways)
    def restore(self, place: int, which: int, way: str) -> None:
        """Restore the messages rewound since a message."""
        name = self.pick(place)
        ids = [message.id for message in self.model.sessions[name].messages]
        self.take(way, "restore", name, ids[which % len(ids)] if ids else 0)

    @has_sessions
    @rule(place=some, verb=st.sampled_from(["clear", "reopen", "delete"]), way=ways)
    def plain(self, place: int, verb: str, way: str) -> None:
        """Clear, reopen or delete a session."""
        name = self.pick(place)
        if verb != "reopen" or self.model.find_continuation(name) is None:
            self.take(way, verb, name)

    @has_sessions
    @rule(place=some, reason=st.sampled_from(["cli_close", "idle"]), way=ways)
    def end(self, place: int, reason: str, way: str) -> None:
        """End a session."""
        self.take(way, "end", self.pick(place), reason)

    @has_sessions
    @rule(place=some, reason=st.sampled_from(["cli_close", None]), way=ways)
    def put(self, place: int, reason: str | None, way: str) -> None:
        """Put back how a session had ended."""
        name = self.pick(place)
        if self.model.find_continuation(name) is None:
            self.take(way, "put", name, reason)

    @rule(way=ways)
    def finalize(self, way: str) -> None:
        """End the continuations that never ran."""
        self.take(way, "finalize", None)

    @has_sessions
    @rule(place=some, title=st.sampled_from(["Trip", "Other", None]), way=ways)
    def title(self, place: int, title: str | None, way: str) -> None:
        """Set or clear a title."""
        self.take(way, "title", self.pick(place), title)

    @has_sessions
    @rule(place=some, archived=st.booleans(), way=ways)
    def archive(self, place: int, archived: bool, way: str) -> None:
        """Archive a conversation or bring it back."""
        self.take(way, "archive", self.pick(place), archived)

    @has_sessions
    @rule(place=some, way=ways)
    def continue_(self, place: int, way: str) -> None:
        """Compress a session into a new one."""
        name = self.pick(place)
        if self.model.sessions[name].reason is None:
            self.clock += 1
            self.created += 1
            self.take(way, "continue", name, f"c{self.created}", self.clock)

    # -- observable state --------------------------------------------------------------------

    @invariant()
    def both_instances_show_what_the_model_has(self) -> None:
        """Compare everything that can be observed."""
        expected = expect_state(self.model)
        assert observe_state(self.db) == expected
        assert observe_list(self.other) == expected["listed"]

    @invariant()
    def a_writer_knows_the_revisions_that_a_reader_counts(self) -> None:
        """The caches of a writer match the stored rows."""
        names = sorted(self.model.sessions)
        self.revisions = {name: self.other.get_revision(name) for name in names}
        with self.db.transaction():
            assert {name: self.db.get_revision(name) for name in names} == self.revisions


def observe_state(db: StateDatabase) -> dict[str, Any]:
    everything = sorted(db.find_sessions(SessionFilter(status="all")))
    return {
        "listed": observe_list(db),
        **{name: observe_session(db, name) for name in everything},
    }


def observe_list(db: StateDatabase) -> list[tuple[str, str, int]]:
    return [(line.id, line.root_id, line.messages) for line in db.list_sessions(limit=99).items]


def observe_session(db: StateDatabase, name: str) -> dict[str, Any]:
    row = db.get_session(name)
    assert row is not None
    messages = [
        (m["id"], m["role"], m["content"], m["timestamp"], m["active"], m.get("compacted", 0))
        for m in db.get_messages(name, include_inactive=True)
    ]
    window = db.read_window(name, limit=3)
    fields = ("source", "started_at", "parent_session_id", "end_reason", "title", "archived")
    return {
        "row": tuple(row[field] for field in fields),  # type: ignore[literal-required]
        "ended": row["ended_at"] is not None,
        "counter": row["message_count"],
        "messages": messages,
        "revision": db.get_revision(name)[:4],
        "window": ([m["id"] for m in window.messages], window.more_before, window.more_after),
        "tip": db.get_compression_tip(name),
        "chain": sorted(db.get_compression_lineage(name)),
    }


def expect_state(model: Model) -> dict[str, Any]:
    lines = [
        (max((m.at for m in s.messages), default=s.started_at), name)
        for name, s in model.sessions.items()
        if model.find_continuation(name) is None and not s.archived
    ]
    listed = [
        (
            name,
            [name, *model.list_ancestors(name)][-1],
            len(model.sessions[name].in_state("live")),
        )
        for _, name in sorted(lines, reverse=True)
    ]
    return {
        "listed": listed,
        **{name: expect_session(model, name, s) for name, s in model.sessions.items()},
    }


def expect_session(model: Model, name: str, session: Session) -> dict[str, Any]:
    live = [message.id for message in session.in_state("live")]
    compacted = len(session.in_state("compacted"))
    last = max((message.id for message in session.messages), default=0)
    reason = session.reason
    return {
        "row": (
            session.source,
            session.started_at,
            session.parent,
            reason,
            session.title,
            int(session.archived),
        ),
        "ended": reason is not None,
        "counter": session.counter,
        "messages": [expect_message(message) for message in session.messages],
        "revision": (last, len(live), compacted, session.rewinds),
        "window": (live[-3:], len(live) > 3, False),
        "tip": (model.list_family(name)[len(model.list_ancestors(name)) + 1 :] or [name])[-1],
        "chain": sorted(model.list_family(name)),
    }


def expect_message(message: Message) -> tuple[Any, ...]:
    flags = {"live": (1, 0), "rewound": (0, 0), "compacted": (0, 1)}[message.state]
    return (message.id, message.role, message.content, message.at, *flags)


@pytest.mark.costly
@pytest.mark.requirement("machine:any")
@pytest.mark.timeout(300)
def test_database_matches_model_after_random_steps(engine: Engine) -> None:
    machine = type("MachineOf", (Machine,), {"engine": engine})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=10,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

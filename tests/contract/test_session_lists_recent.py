"""Lists are never stale: they match a full scan after changes by any instance."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session_core import StateDatabase
from tests.contract.engines import Engine, ForeignWriter, roll_back_at_end
from tests.contract.listing import add_session_at, list_session_ids, walk_list


@dataclass
class Model:
    """The last activity and the start of each session."""

    started: dict[str, float] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)

    def recent(self) -> list[tuple[str, float]]:
        """Return every session with its last activity, the newest first."""
        last = {name: max(times, default=self.started[name]) for name, times in self.times.items()}
        return sorted(last.items(), key=lambda entry: (entry[1], entry[0]), reverse=True)


def fill_home(db: StateDatabase, model: Model, count: int) -> None:
    with db.transaction():
        for number in range(count):
            start_session(db, model, f"s{number:03}", float(number % 90))
            if number % 3:
                add_messages(db, model, f"s{number:03}", float(number * 7 % 100))


def start_session(db: StateDatabase, model: Model, session_id: str, at: float) -> None:
    db.create_session(session_id, "cli", started_at=at)
    model.started.setdefault(session_id, at)
    model.times.setdefault(session_id, [])


def add_messages(
    db: StateDatabase, model: Model, session_id: str, at: float, count: int = 1
) -> None:
    message = {"role": "user", "content": "x", "timestamp": at}
    db.append_messages(session_id, [message] * count)
    model.times[session_id].append(at)


def check_list(db: StateDatabase, model: Model, limit: int = 50) -> None:
    lines = walk_list(db, limit=limit)
    assert [(line.id, line.last_active_at) for line in lines] == model.recent()
    page = db.list_sessions(limit=7).items
    assert [(line.id, line.last_active_at) for line in page] == model.recent()[:7]


@dataclass(frozen=True)
class Step:
    """A change of a session, at a time and by an instance."""

    what: str
    place: int
    at: float
    foreign: bool


STEPS = st.builds(
    Step,
    st.sampled_from(["say", "say", "begin", "clear", "delete", "abandon", "look"]),
    st.integers(0, 230),
    st.integers(0, 100).map(float),
    st.booleans(),
)


def apply_step(db: StateDatabase, model: Model, step: Step) -> None:
    session_id = f"s{step.place:03}"
    known = session_id in model.times
    if step.what == "begin":
        start_session(db, model, f"n{step.place}", step.at)
    elif step.what == "say" and known:
        add_messages(db, model, session_id, step.at)
    elif step.what == "clear" and known:
        db.clear_messages(session_id)
        model.times[session_id].clear()
    elif step.what == "delete" and known:
        db.delete_session(session_id)
        del model.times[session_id]
    elif step.what == "abandon" and known:
        write_and_roll_back(db, step)


def write_and_roll_back(db: StateDatabase, step: Step) -> None:
    """Append a message and read the list in a transaction that is rolled back."""
    with roll_back_at_end(db):
        db.append_message(f"s{step.place:03}", "user", "x", timestamp=step.at)
        db.create_session("gone", "cli", started_at=step.at)
        db.list_sessions()


@pytest.mark.costly
@pytest.mark.timeout(600)  # some 300,000 statements on PostgreSQL
@pytest.mark.requirement("lists:stale")
@settings(max_examples=15, deadline=None)
@given(count=st.sampled_from([3, 198, 215]), steps=st.lists(STEPS, min_size=3, max_size=12))
def test_recent_list_matches_full_scan(
    engine: Engine,
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    steps: list[Step],
) -> None:
    home = tmp_path_factory.mktemp("list")
    db, other, model = engine(home), engine(home), Model()
    try:
        fill_home(db, model, count)
        check_list(db, model)
        for step in steps:
            apply_step(
                other if step.foreign else db, model, replace(step, place=step.place % count)
            )
            check_list(db, model)
        check_list(other, model)
    finally:
        other.close()
        db.close()


@pytest.mark.costly
@pytest.mark.parametrize("how", ["clear", "replace"])
def test_recent_list_orders_cleared_session_by_start(
    db: StateDatabase, other: StateDatabase, how: str
) -> None:
    model = Model()
    fill_home(db, model, 215)
    start_session(db, model, "imported", 150.0)
    add_messages(db, model, "imported", -5.0)
    add_messages(db, model, "s001", 99.0)
    check_list(db, model)
    if how == "clear":
        other.clear_messages("imported")
    else:
        other.replace_messages("imported", [])
    model.times["imported"].clear()
    check_list(db, model)


@pytest.mark.costly
def test_recent_list_handles_thousands_of_foreign_messages(
    db: StateDatabase, other: StateDatabase
) -> None:
    model = Model()
    fill_home(db, model, 215)
    check_list(db, model)
    add_messages(other, model, "s001", 200.0, count=5200)
    add_messages(other, model, "s000", 300.0)
    check_list(db, model)


def test_recent_list_shows_changes_inside_transaction(
    db: StateDatabase, other: StateDatabase
) -> None:
    add_session_at(db, "a", 1.0)
    with db.transaction():
        add_session_at(db, "b", 2.0)
        assert list_session_ids(db) == ["b", "a"]
        db.append_message("a", "user", "x", timestamp=3.0)
        assert list_session_ids(db) == ["a", "b"]
        assert list_session_ids(other) == ["a"]
    assert list_session_ids(other) == list_session_ids(db) == ["a", "b"]


@pytest.mark.costly
@pytest.mark.parametrize("inner", [False, True])
def test_recent_list_forgets_rolled_back_changes(db: StateDatabase, inner: bool) -> None:
    model = Model()
    fill_home(db, model, 215)
    oldest = model.recent()[-1][0]
    with db.transaction() if inner else nullcontext():
        with roll_back_at_end(db):
            db.append_message("s214", "user", "x", timestamp=400.0)
            db.list_sessions()
        add_messages(db, model, oldest, 500.0)
        with db.transaction():
            check_list(db, model)


@pytest.mark.requirement("lists:stale")
def test_recent_list_shows_restored_session(
    db: StateDatabase, other: StateDatabase, foreign: ForeignWriter
) -> None:
    add_session_at(db, "old", 50.0, started_at=1.0)
    add_session_at(db, "new", 40.0, started_at=30.0)
    add_session_at(db, "last", 60.0, started_at=35.0)
    (kept,) = db.get_messages("old")
    other.delete_session("old")
    assert list_session_ids(db) == ["last", "new"]
    foreign.insert_row("sessions", id="old", source="cli", started_at=1)
    message = {"session_id": "old", "role": "user", "content": "x", "timestamp": 50}
    foreign.insert_row("messages", id=kept["id"], **message)
    assert list_session_ids(db) == ["last", "old", "new"]


@pytest.mark.requirement("lists:stale")
def test_recent_list_shows_summary_changes_immediately(
    db: StateDatabase, other: StateDatabase
) -> None:
    add_session_at(db, "a", 1.0)
    assert db.list_sessions().items[0].title is None
    other.set_session_title("a", "Trip")
    assert db.list_sessions().items[0].title == "Trip"
    other.end_session("a", "x")
    assert db.list_sessions().items[0].status == "ended"
    other.set_session_archived("a", archived=True)
    assert db.list_sessions().items == []
    other.set_session_archived("a", archived=False)
    other.rewind_to_message("a", db.get_messages("a")[0]["id"])
    assert db.list_sessions().items[0].messages == 0
    other.delete_session("a")
    assert db.list_sessions().items == []

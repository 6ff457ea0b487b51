"""Maintenance while a real gateway in another process holds its routes in memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core.errors import Denied
from tests.interop.hermes import Hermes
from tests.interop.maintained_homes import Made, maintained, maker, named, snapshot
from tests.maintenance.changed_homes import Changing

COUNT = 300

_MAINTAINER = """
import sys
from pathlib import Path
from tests.interop.maintained_homes import maintained
home, at, root, plan = sys.argv[1:]
with maintained(Path(home), float(at), Path(root)) as changed:
    print("ready", flush=True)
    sys.stdin.readline()
    done = changed.maintenance.apply(plan)
    print(done.outcome, done.removed, len(done.skipped), flush=True)
"""


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Make a home once for all tests."""
    return maker(tmp_path_factory.mktemp("made"))


@pytest.fixture(params=("0.17.0", "0.19.0"))
def made(make, request) -> Made:
    """A damaged home with routes only in a file, and one with a table. Both stay closed."""
    found: Made = make(request.param, damaged=True)
    return found


@pytest.fixture
def home(made: Made, tmp_path) -> Path:
    """A copy of the home."""
    return snapshot(made.home, tmp_path / "home")


@pytest.fixture
def changed(made: Made, home: Path, tmp_path) -> Iterator[Changing]:
    """The copy with its maintenance."""
    with maintained(home, made.at, tmp_path / "kept") as found:
        yield found


@pytest.fixture
def live(changed: Changing, made: Made, home: Path) -> Iterator[Hermes]:
    """The running gateway of the home."""
    with gateway(made.version, home) as running:
        yield running


@contextmanager
def gateway(version: str, home: Path) -> Iterator[Hermes]:
    """A process that holds the routes of a home and records itself as a gateway does."""
    with Hermes(version, home, "hermes", "gateway", "run") as running:
        running.job("store_open")
        running.job("gateway_begins")
        yield running


def members(changed: Changing, planned: Any) -> set[str]:
    found = changed.ledger.get_plan(planned.plan).members if planned.plan else ()
    return {named(item) for item in found}


def list_left_sessions(done: Any) -> dict[str, str]:
    return {each.id: each.why for each in done.skipped}


LATELY = {"old_ended_now", "old_for_nothing"}
"""What is old and ended within a week."""

UNENDED = {"chief"}
"""What is old and delegated to somebody who never ended."""


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:beside-hermes")
def test_route_changes_are_refused_while_gateway_lives(
    changed: Changing, made: Made, home: Path
) -> None:
    planned = changed.plan("routes")
    with gateway(made.version, home) as live:
        before = live.job("store_entries")
        with pytest.raises(Denied, match=r"a gateway .*stop it"):
            changed.maintenance.apply(planned.plan)
        again = changed.plan("routes")
        assert (again.outcome, again.plan) == ("nothing", None)
        assert set(again.protected) == {"live"}
        assert live.job("store_entries") == before
    result = changed.apply(planned)
    assert set(list_left_sessions(result).values()) <= {
        "it does not exist any more",
        "its chat was used since",
    }
    if result.skipped:
        changed.plan_and_apply("routes")
    with Hermes(made.version, home) as later:
        assert not set(later.job("store_open")) & set(made.chosen("routes"))
        later.job("arrive", source=_make_chat("talking", "slack"))
        assert not set(later.job("store_open")) & set(made.chosen("routes"))


def _make_chat(name: str, platform: str) -> dict[str, Any]:
    return {"platform": platform, "chat_id": f"chat-{name}", "chat_type": "dm", "user_id": name}


@pytest.mark.requirement("maintenance:beside-hermes")
def test_no_session_reset_while_gateway_runs(changed: Changing, live: Hermes) -> None:
    before = live.job("store_entries")
    session_id = changed.home.session("mine_to_end", 20)
    planned = changed.plan("sessions", "finalize", ids=(session_id,), start_new=True)
    assert any("stop it" in warning for warning in planned.warnings)
    with pytest.raises(Denied, match="a gateway"):
        changed.maintenance.apply(planned.plan)
    assert live.call("get_session", session_id)["ended_at"] is None
    assert live.job("store_entries") == before


@pytest.mark.requirement("maintenance:beside-hermes")
def test_sessions_of_live_chats_are_kept(changed: Changing, made: Made, live: Hermes) -> None:
    entries = live.job("store_entries")
    led = {entry["session_id"] for entry in entries.values()}
    for what, verb in (("sessions", "prune"), ("ghosts", "prune"), ("abandoned", "finalize"),
                       ("orphaned", "finalize"), ("expired", "finalize")):  # fmt: skip
        assert not members(changed, changed.plan(what, verb)) & led, what
    there = [item for item in led if changed.home.db.get_session(item) is not None]
    for verb in ("prune", "finalize"):
        planned = changed.plan("sessions", verb, ids=tuple(there))
        assert (planned.outcome, set(planned.protected)) == ("nothing", {"live"})


@pytest.mark.requirement("maintenance:beside-hermes")
def test_unended_sessions_are_only_finalized(changed: Changing, made: Made, live: Hermes) -> None:
    planned = changed.plan()
    led = {entry["session_id"] for entry in live.job("store_entries").values()}
    dropped = {
        session_id
        for name in ("old_chat", "waiting")  # some versions drop their routes at the start
        if (session_id := made.stated["led"][name]) not in led
        if live.call("get_session", session_id)["ended_at"] is not None
    }
    expected = set(made.chosen("sessions")) - LATELY - UNENDED
    assert members(changed, planned) == expected | dropped
    assert planned.protected["ended lately"] == len(LATELY)
    assert planned.protected["never ended"] == len(UNENDED)
    assert any("has the database open" in warning for warning in planned.warnings)
    result = changed.plan_and_apply("abandoned", "finalize")
    assert (result.outcome, result.skipped) == ("applied", ())
    assert live.call("get_session", "left_long")["end_reason"] == "abandoned"
    again = changed.plan(ids=("left_long",))
    assert (again.outcome, dict(again.protected)) == ("nothing", {"ended lately": 1})


# -- sessions in use -------------------------------------------------------------------------


@pytest.mark.requirement("maintenance:beside-hermes")
def test_session_activated_after_plan_is_skipped(
    changed: Changing, made: Made, live: Hermes
) -> None:
    planned = changed.plan()
    chosen = members(changed, planned)
    live.call("append_message", "old", "user", "one more waltz")
    live.call("reopen_session", "old_titled")
    live.call("create_session", "sprout", "cli", parent_session_id="stem")
    live.job("store_call", method="switch_session", args=[_build_key(made, "silent"), "long_3"])
    woken = {"old", "old_titled", "stem", "long_1"}
    if live.has("try_acquire_compression_lock"):
        live.call("try_acquire_compression_lock", "old_drifted", "theirs", 600)
        woken.add("old_drifted")
    result = changed.apply(planned)
    assert set(list_left_sessions(result)) == woken
    assert result.removed == len(chosen - woken)
    assert live.call("get_session", "sprout")["parent_session_id"] == "stem"
    together = {each for name in woken for each in made.chosen("sessions")[name]}
    assert together <= changed.sessions()
    for session_id in sorted(together):
        assert live.call("get_messages", session_id)


def _build_key(made: Made, name: str) -> str:
    return str(made.stated["chats"][name])


# -- concurrent writes -----------------------------------------------------------------------


@pytest.mark.requirement("maintenance:beside-hermes")
def test_maintenance_next_to_gateway_loses_nothing(
    changed: Changing, made: Made, live: Hermes
) -> None:
    before = live.job("store_entries")
    (talking,) = (e["session_id"] for k, e in before.items() if k == _build_key(made, "talking"))
    ids: list[int] = []
    job = {"session_id": talking, "count": COUNT, "pause": 0.002}
    thread = threading.Thread(target=lambda: ids.extend(live.job("append", **job)))
    thread.start()
    while thread.is_alive():
        results = [changed.plan_and_apply(what) for what in ("sessions", "orphans")]
        for item in reversed(results):
            back = changed.restore(item)
            assert (back.outcome, back.unfit) == ("applied", ())
    thread.join()
    gone = members(changed, changed.plan())
    changed.plan_and_apply("sessions")
    assert len(ids) == COUNT
    stored = [row["id"] for row in changed.home.db.get_messages(talking)]
    assert set(ids) <= set(stored)
    live.job("store_call", method="suspend_session", args=[_build_key(made, "talking")])
    after = live.job("store_entries")
    assert {k: e["session_id"] for k, e in after.items()} == {
        k: e["session_id"] for k, e in before.items()
    }
    assert gone
    assert not gone & changed.sessions()
    assert live.sql("PRAGMA integrity_check") == [["ok"]]


@pytest.mark.requirement("maintenance:beside-hermes")
def test_concurrent_maintainers_apply_every_item_once(
    changed: Changing, made: Made, live: Hermes, home: Path
) -> None:
    before = changed.read_everything()
    planned = changed.plan()
    command = [
        sys.executable,
        "-c",
        _MAINTAINER,
        home,
        made.stated["at"],
        changed.root,
        planned.plan,
    ]
    children = [
        subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert {child.stdout.readline() for child in children if child.stdout} == {"ready\n"}
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    answers = [child.communicate(timeout=60)[0] for child in children]
    assert answers == [f"applied {planned.count} 0\n"] * 2
    assert not changed.sessions() & members(changed, planned)
    batch = changed.ledger.get_plan(planned.plan).batch
    assert changed.maintenance.restore(batch).unfit == ()
    assert changed.read_everything() == before

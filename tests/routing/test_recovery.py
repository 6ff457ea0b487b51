"""Recovery of a lost route: the session that a chat continues, or a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Hooks, SessionDB, SessionSource, SessionStore
from session_core.config import GatewayConfig
from tests.homes import connect, make_own_database
from tests.routing.chats import IDLE, KEY, Clock, begin_session, chat, make_stored_entry, put_row

STARTED = 1_700_000_000.0


def add_session(
    db: SessionDB,
    session_id: str,
    end_reason: str | None = None,
    *,
    has_message: bool = True,
    **fields: Any,
) -> None:
    """Add a session of the chat, as it was when the route was lost."""
    columns: dict[str, Any] = {"source": "telegram", "started_at": STARTED, "session_key": KEY}
    columns |= fields
    db.create_session(session_id, **columns)
    if has_message:
        db.append_message(session_id, "user", "said before")
    if end_reason is not None:
        db.end_session(session_id, end_reason)


def find_arrival_session(store: SessionStore, source: SessionSource | None = None) -> str:
    """Return the session of the next message."""
    return store.get_or_create_session(source or chat()).session_id


# The matrix of end reasons, one test per row


def is_session_continued(store: SessionStore, db: SessionDB, reason: str | None) -> bool:
    """Return True if a session that ended for this reason is continued and reopened."""
    add_session(db, "s1", reason)
    is_continued = find_arrival_session(store) == "s1"
    row = db.get_session("s1")
    assert row is not None
    assert row["end_reason"] == (None if is_continued else reason)
    assert (row["ended_at"] is None) == is_continued
    return is_continued


def is_empty_session_ignored(store: SessionStore, db: SessionDB, reason: str | None) -> bool:
    """Return True if a session without messages is not continued."""
    add_session(db, "s1", reason, has_message=False)
    return find_arrival_session(store) != "s1"


@pytest.mark.requirement("store:recovery")
def test_open_session_is_recovered(store: SessionStore, db: SessionDB) -> None:
    assert is_session_continued(store, db, None)


@pytest.mark.requirement("store:recovery")
def test_session_after_agent_close_is_recovered(store: SessionStore, db: SessionDB) -> None:
    assert is_session_continued(store, db, "agent_close")


@pytest.mark.requirement("store:recovery")
def test_session_after_orphan_reap_is_recovered(store: SessionStore, db: SessionDB) -> None:
    assert is_session_continued(store, db, "ws_orphan_reap")


@pytest.mark.requirement("store:recovery-unlike")
def test_session_superseded_by_resume_is_recovered(store: SessionStore, db: SessionDB) -> None:
    """Newer releases of Hermes use this reason if only the agent was closed."""
    assert is_session_continued(store, db, "superseded_by_resume")


@pytest.mark.requirement("store:recovery-unlike")
def test_session_after_startup_reap_is_recovered(store: SessionStore, db: SessionDB) -> None:
    """Newer releases of Hermes use this reason if only the agent was closed."""
    assert is_session_continued(store, db, "startup_orphan_reap")


@pytest.mark.requirement("store:recovery")
def test_reset_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "session_reset")


@pytest.mark.requirement("store:recovery")
def test_replaced_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "new_session")


@pytest.mark.requirement("store:recovery")
def test_session_closed_by_cli_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "cli_close")


@pytest.mark.requirement("store:recovery")
def test_session_closed_by_tui_shutdown_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "tui_shutdown")


@pytest.mark.requirement("store:recovery")
def test_session_closed_by_tui_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "tui_close")


@pytest.mark.requirement("store:recovery")
def test_idle_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "idle")


@pytest.mark.requirement("store:recovery")
def test_daily_reset_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "daily")


@pytest.mark.requirement("store:recovery")
def test_suspended_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "suspended")


@pytest.mark.requirement("store:recovery")
def test_resume_expired_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "resume_pending_expired")


@pytest.mark.requirement("store:recovery")
def test_switched_session_stays_ended(store: SessionStore, db: SessionDB) -> None:
    assert not is_session_continued(store, db, "session_switch")


@pytest.mark.requirement("store:recovery")
def test_empty_open_session_is_not_recovered(store: SessionStore, db: SessionDB) -> None:
    assert is_empty_session_ignored(store, db, None)


@pytest.mark.requirement("store:recovery")
def test_empty_session_after_agent_close_is_skipped(store: SessionStore, db: SessionDB) -> None:
    assert is_empty_session_ignored(store, db, "agent_close")


@pytest.mark.requirement("store:recovery")
def test_empty_session_after_orphan_reap_is_skipped(store: SessionStore, db: SessionDB) -> None:
    assert is_empty_session_ignored(store, db, "ws_orphan_reap")


def test_recovery_counts_stored_messages(
    store: SessionStore, db: SessionDB, home_path: Any
) -> None:
    add_session(db, "s1", "agent_close")
    with connect(home_path / "state.db") as connection:
        connection.execute("UPDATE sessions SET message_count = 0")
    assert find_arrival_session(store) == "s1"


# Choice among several sessions


@pytest.mark.requirement("store:recovery")
def test_newest_session_is_recovered(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "newest", "agent_close", started_at=STARTED + 2)
    add_session(db, "older", "agent_close", started_at=STARTED)
    assert find_arrival_session(store) == "newest"


@pytest.mark.requirement("store:recovery-reset")
def test_older_session_does_not_undo_reset(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "older", "agent_close", started_at=STARTED)
    add_session(db, "newest", "session_reset", started_at=STARTED + 2)
    assert find_arrival_session(store) not in {"older", "newest"}


def test_empty_session_hides_no_older_session(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "older", "agent_close", started_at=STARTED)
    add_session(db, "newest", has_message=False, started_at=STARTED + 2)
    assert find_arrival_session(store) == "older"


def test_switch_target_is_recovered(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "older", "session_reset", started_at=STARTED)
    add_session(db, "newest", started_at=STARTED + 2)
    assert find_arrival_session(store) == "newest"
    store.switch_session(KEY, "older")
    store.remove(store.load_entries())
    assert find_arrival_session(store) == "older"


def test_session_of_different_platform_is_skipped(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "s1", source="discord")
    assert find_arrival_session(store) != "s1"


@pytest.mark.requirement("store:recovery-unlike")
def test_compressed_session_recovers_to_continuation(store: SessionStore, db: SessionDB) -> None:
    """A process killed in between has stored the continuation without a session key."""
    add_session(db, "parent", "compression")
    db.create_session("tip", "telegram", parent_session_id="parent")
    db.append_message("tip", "user", "a summary")
    assert find_arrival_session(store) == "tip"
    row = db.get_session("tip")
    assert row is not None
    assert (row["session_key"], row["chat_id"]) == (KEY, "42")


@pytest.mark.requirement("store:recovery-unlike")
def test_compressed_session_without_continuation_is_recovered(
    store: SessionStore, db: SessionDB
) -> None:
    add_session(db, "died", "compression")
    assert find_arrival_session(store) == "died"
    row = db.get_session("died")
    assert row is not None
    assert row["end_reason"] is None


def test_empty_compressed_session_is_not_recovered(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "died", "compression", has_message=False)
    assert find_arrival_session(store) != "died"


@pytest.mark.requirement("store:recovery-reset")
@pytest.mark.parametrize("between", ["idle", "cli_close"])
def test_ended_session_hides_no_recoverable_session(
    store: SessionStore, db: SessionDB, between: str
) -> None:
    add_session(db, "lives", started_at=STARTED)
    add_session(db, "between", between, started_at=STARTED + 1)
    add_session(db, "newest", "compression", started_at=STARTED + 2)
    assert find_arrival_session(store) == "lives"


@pytest.mark.requirement("store:recovery-unlike")
def test_session_before_reset_is_not_recovered(store: SessionStore, db: SessionDB) -> None:
    """Hermes skips the reset session and returns to the one before it."""
    add_session(db, "lives", started_at=STARTED)
    add_session(db, "reset", "session_reset", started_at=STARTED + 1)
    assert find_arrival_session(store) not in {"lives", "reset"}


@pytest.mark.requirement("store:recovery-reset")
def test_reset_of_unowned_routed_session_stands(
    store: SessionStore, db: SessionDB, folder: Path
) -> None:
    add_session(db, "older", "agent_close", started_at=STARTED)
    add_session(db, "routed", "session_reset", session_key=None, started_at=STARTED + 1)
    put_row(db, folder, make_stored_entry("routed"))
    assert find_arrival_session(store) not in {"older", "routed"}


def test_session_started_with_reset_session_is_skipped(
    store: SessionStore, db: SessionDB, folder: Path
) -> None:
    add_session(db, "beside", "agent_close", started_at=STARTED + 1)
    add_session(db, "routed", "session_reset", session_key=None, started_at=STARTED + 1)
    put_row(db, folder, make_stored_entry("routed"))
    assert find_arrival_session(store) not in {"beside", "routed"}


@pytest.mark.requirement("store:recovery-reset")
def test_session_started_after_reset_is_recovered(
    store: SessionStore, db: SessionDB, folder: Path
) -> None:
    add_session(db, "newer", "agent_close", started_at=STARTED + 2)
    add_session(db, "routed", "session_reset", session_key=None, started_at=STARTED + 1)
    put_row(db, folder, make_stored_entry("routed"))
    assert find_arrival_session(store) == "newer"


@pytest.mark.requirement("store:recovery-unlike")
@pytest.mark.parametrize("whose", [None, "agent:main:telegram:dm:43"], ids=["nobody", "another"])
def test_routed_session_of_any_owner_is_recovered(
    store: SessionStore, db: SessionDB, folder: Path, whose: str | None
) -> None:
    """The chat was switched there. Hermes finds a session by its session key alone."""
    add_session(db, "routed", "agent_close", session_key=whose)
    put_row(db, folder, make_stored_entry("routed"))
    assert find_arrival_session(store) == "routed"


@pytest.mark.requirement("store:recovery-unlike")
def test_expired_session_after_agent_close_is_reset(make: Any, db: SessionDB, clock: Clock) -> None:
    """A start of Hermes loses the route, and with it the last use of the chat."""
    store = make(db, config=IDLE)
    old = begin_session(store, db)
    db.end_session(old, "agent_close")
    clock.advance(hours=2)
    assert store.repair_routes() == [KEY]
    entry = store.get_or_create_session(chat())
    assert (entry.session_id != old, entry.auto_reset_reason) == (True, "idle")


@pytest.mark.requirement("store:recovery-unlike")
def test_suspended_ended_session_is_reset(store: SessionStore, db: SessionDB) -> None:
    """A start of Hermes loses the route, and with it the suspension."""
    old = begin_session(store, db)
    store.suspend_session(KEY)
    db.end_session(old, "agent_close")
    store.repair_routes()
    entry = store.get_or_create_session(chat())
    assert (entry.session_id != old, entry.auto_reset_reason) == (True, "suspended")


@pytest.mark.requirement("store:recovery-unlike")
def test_shared_routed_session_is_recovered(
    store: SessionStore, db: SessionDB, folder: Path
) -> None:
    add_session(db, "shared", "session_switch")
    put_row(db, folder, make_stored_entry("shared"))
    assert find_arrival_session(store) == "shared"


@pytest.mark.requirement("store:recovery-reset")
def test_compression_hides_no_reset(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "lives", started_at=STARTED)
    add_session(db, "reset", "new_session", started_at=STARTED + 1)
    add_session(db, "newest", "compression", started_at=STARTED + 2)
    assert find_arrival_session(store) == "newest"


def test_reset_continuation_ends_compressed_session(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "lives", started_at=STARTED)
    add_session(db, "parent", "compression", started_at=STARTED + 1)
    add_session(db, "tip", "session_reset", session_key=None, parent_session_id="parent",
        started_at=STARTED + 2)  # fmt: skip
    assert find_arrival_session(store) not in {"lives", "parent", "tip"}


# The same user and chat under another key


@pytest.mark.requirement("store:recovery")
def test_recovery_matches_user_and_chat(store: SessionStore, db: SessionDB) -> None:
    peer = {"user_id": "7", "chat_id": "-100", "chat_type": "group", "thread_id": "5"}
    add_session(db, "s1", "agent_close", session_key="an older key", **peer)
    entry = store.get_or_create_session(chat(-100, user_id="7", chat_type="group", thread_id="5"))
    assert entry.session_id == "s1"
    row = db.get_session("s1")
    assert row is not None
    assert row["session_key"] == entry.session_key


@pytest.mark.requirement("store:recovery")
@pytest.mark.parametrize(
    "other", [{"user_id": "8"}, {"chat_id": "-101"}, {"chat_type": "channel"}, {"thread_id": "6"}]
)
def test_recovery_skips_different_user_or_chat(
    store: SessionStore, db: SessionDB, other: dict[str, str]
) -> None:
    peer = {"user_id": "7", "chat_id": "-100", "chat_type": "group", "thread_id": "5"}
    add_session(db, "s1", "agent_close", session_key="an older key", **(peer | other))
    source = chat(-100, user_id="7", chat_type="group", thread_id="5")
    assert find_arrival_session(store, source) != "s1"


@pytest.mark.requirement("store:recovery")
def test_recovery_treats_null_as_empty_text(store: SessionStore, db: SessionDB) -> None:
    add_session(
        db, "s1", session_key="old", chat_id="42", chat_type="dm", user_id="", thread_id=None
    )
    assert find_arrival_session(store, chat(thread_id="")) == "s1"


def test_home_without_session_keys_skips_recovery(make: Any, older: SessionDB) -> None:
    older.create_session("s1", "telegram", session_key=KEY)
    older.append_message("s1", "user", "said")
    assert find_arrival_session(make(older)) != "s1"


# The rebuilt entry


@pytest.mark.requirement("store:recovery")
def test_recovered_entry_is_built_from_message(store: SessionStore, db: SessionDB) -> None:
    add_session(db, "s1", "agent_close")
    entry = store.get_or_create_session(chat(chat_name="Ann"))
    assert entry.created_at.timestamp() == STARTED
    assert entry.updated_at == store.settings.now()
    assert (entry.display_name, entry.origin) == ("Ann", chat(chat_name="Ann"))
    assert not entry.was_auto_reset


@pytest.mark.parametrize("started_at", [-1e18, 1e18])
def test_out_of_range_start_time_is_harmless(
    store: SessionStore, db: SessionDB, started_at: float
) -> None:
    add_session(db, "s1", started_at=started_at)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id, entry.created_at) == ("s1", store.settings.now())


def test_recovered_session_can_end_again(make: Any, db: SessionDB) -> None:
    hooks = Hooks(group=None, report=lambda *_: None)
    ended: list[str] = []
    hooks.add("on_session_finalize", lambda session_id: ended.append(str(session_id)))
    add_session(db, "s1", "agent_close")
    hooks.call_once("on_session_finalize", session_id="s1", platform="telegram")
    store = make(db, hooks=hooks)
    assert find_arrival_session(store) == "s1"
    store.reset_session(KEY)
    assert ended == ["s1", "s1"]


def test_recovery_calls_no_boundary_hooks(make: Any, db: SessionDB) -> None:
    hooks = Hooks(group=None, report=lambda *_: None)
    hook_calls: list[Any] = []
    for hook in ("on_session_finalize", "on_session_reset"):
        hooks.add(hook, lambda session_id: hook_calls.append(str(session_id)))
    add_session(db, "s1", "agent_close")
    find_arrival_session(make(db, hooks=hooks))
    assert hook_calls == []


@pytest.mark.requirement("store:profiles")
def test_session_of_different_profile_is_skipped(make: Any, db: SessionDB) -> None:
    """User and chat are the same. Only the session key names the profile."""
    store = make(db, config=GatewayConfig(multiplex_profiles=True))
    add_session(db, "theirs", chat_id="42", chat_type="dm")
    source = chat(profile="coder")
    assert store.get_session_key(source) == "agent:coder:telegram:dm:42"
    assert find_arrival_session(store, source) != "theirs"
    row = db.get_session("theirs")
    assert row is not None
    assert row["session_key"] == KEY


@pytest.mark.requirement("store:profiles")
def test_session_of_home_profile_is_recovered(tmp_path: Path) -> None:
    home = tmp_path / "profiles" / "coder"
    make_own_database(home / "state.db")
    with SessionDB(home / "state.db") as db, SessionStore(home / "sessions", db=db) as store:
        add_session(db, "s", chat_id="42", chat_type="dm", session_key="agent:coder:telegram:dm:42")
        assert find_arrival_session(store) == "s"


def test_newest_interrupted_compression_is_recovered(store: SessionStore, db: SessionDB) -> None:
    for number in (1, 2, 3):
        add_session(db, f"s{number}", "compression", started_at=STARTED + number)
    assert find_arrival_session(store) == "s3"

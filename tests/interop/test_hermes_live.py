"""A live Hermes and our library on one home, and a Hermes on a home of our own."""

from __future__ import annotations

import threading

import pytest

from session_core.state.sqlite.session_db import SessionDB
from tests.interop.hermes import Hermes
from tests.interop.twins import rows, shape

COUNT = 400
PAUSE_S = 0.001
"""Nobody appends without a breath; the lock is passed on only by chance."""


@pytest.fixture
def own(tmp_path):
    """A home of our own with a conversation."""
    home = tmp_path / "own"
    with SessionDB(home / "state.db") as db:
        db.create_session("mine", "cli", model="m")
        db.append_message("mine", "user", "the pangolin question, 穿山甲在哪里")
        db.append_message("mine", "assistant", [{"type": "text", "text": "the pangolin answer"}])
        db.set_session_title("mine", "Pangolins")
    return home


@pytest.mark.requirement("interop:beside")
def test_reading_live_hermes_home_changes_nothing(theirs, home):
    before = (shape(home), rows(home))
    with SessionDB(home / "state.db", read_only=True) as db:
        db.list_sessions()
        db.get_messages("cli_work")
        db.search("deploy")
        db.admin.check_integrity()
    assert (shape(home), rows(home)) == before
    theirs.call("append_message", "cli_work", "user", "still here")


@pytest.mark.requirement("interop:beside")
def test_concurrent_appends_with_hermes_lose_nothing(theirs, ours):
    before = len(ours.get_messages("cli_work"))
    their_ids: list[int] = []
    job = {"session_id": "cli_work", "count": COUNT, "pause": PAUSE_S}
    their_turn = threading.Thread(target=lambda: their_ids.extend(theirs.job("append", **job)))
    their_turn.start()
    our_ids = append_messages_meanwhile(ours, their_turn)
    their_turn.join()

    assert len(their_ids) == COUNT
    assert our_ids == sorted(set(our_ids))
    assert their_ids == sorted(set(their_ids))
    assert not set(our_ids) & set(their_ids)
    stored = ours.get_messages("cli_work")
    assert [row["id"] for row in stored][before:] == sorted([*our_ids, *their_ids])
    for read in (ours.get_session("cli_work"), theirs.call("get_session", "cli_work")):
        assert read["message_count"] == before + len(our_ids) + len(their_ids)
    assert theirs.call("get_messages", "cli_work") == stored


def append_messages_meanwhile(ours: SessionDB, thread: threading.Thread) -> list[int]:
    """Append messages until a thread has ended. Each continues from the message before."""
    ids: list[int] = []
    breath = threading.Event()
    while len(ids) <= 20 or thread.is_alive():
        appended = ours.append_message("cli_work", "user", f"ours {len(ids)}")
        assert appended.before.last_id < appended == appended.after.last_id
        ids.append(appended)
        breath.wait(PAUSE_S)
    return ids


def test_hermes_commits_are_reported_once(theirs, ours):
    cursor = ours.read_changes().cursor
    theirs.call("create_session", "fresh", "telegram")
    message_id = theirs.call("append_message", "fresh", "user", "a word for the feed")
    changes = ours.read_changes(cursor, timeout_s=20)
    assert [(event.type, event.session_id) for event in changes.events] == [
        ("session_started", "fresh"),
        ("message", "fresh"),
    ]
    assert changes.events[1].message_id == message_id
    theirs.call("end_session", "fresh", "cli_close")
    ended = ours.read_changes(changes.cursor).events
    assert [(event.type, event.reason) for event in ended] == [("session_ended", "cli_close")]


def test_compaction_copies_are_not_reported_again(theirs, ours):
    if not theirs.has("archive_and_compact"):
        return
    cursor = ours.read_changes().cursor
    kept = theirs.call("get_messages_as_conversation", "cli_work")[-1:]
    summary = {"role": "user", "content": "[CONTEXT COMPACTION] deployed"}
    theirs.call("archive_and_compact", "cli_work", [summary, *kept])
    assert [event.text for event in ours.read_changes(cursor).events] == [summary["content"]]


def test_killed_hermes_loses_no_acknowledged_message(version, theirs, ours):
    acknowledged = theirs.call("append_message", "cli_work", "user", "the last word")
    ours.append_message("cli_work", "user", "after it")
    theirs.kill()
    ours.close()
    with Hermes(version, ours.path.parent) as again:
        contents = [row["content"] for row in again.call("get_messages", "cli_work")]
        assert contents[-2:] == ["the last word", "after it"]
        assert again.sql("SELECT count(*) FROM messages WHERE id = ?", acknowledged) == [[1]]


def test_hermes_continues_own_home(version, own):
    with Hermes(version, own) as theirs:
        theirs.call("append_message", "mine", "user", "a word of theirs about the 穿山甲 pangolin")
        theirs.call("create_session", "made_by_them", "telegram")
        theirs.call("append_message", "made_by_them", "user", "their echidna")
        session_ids = {row["session_id"] for row in theirs.call("search_messages", "pangolin")}
        assert session_ids == {"mine"}
        assert theirs.call("get_session", "mine")["message_count"] == 3
        assert theirs.call("resolve_session_by_title", "Pangolins") == "mine"

    with SessionDB(own / "state.db") as db:
        assert db.kind == "own"
        assert [row["role"] for row in db.get_messages("mine")] == ["user", "assistant", "user"]
        assert find_texts(db, "echidna") == {"made_by_them"}
        assert len(db.search("pangolin", per="message").hits) == 3
        assert len(db.search("穿山甲", per="message").hits) == 2
        db.append_message("made_by_them", "assistant", "our echidna")
        assert len(db.search("echidna", per="message").hits) == 2
        assert db.admin.check_integrity(deep=True) == []


def test_hermes_and_library_share_own_home(version, own):
    with SessionDB(own / "state.db") as db, Hermes(version, own) as theirs:
        for number in range(5):
            db.append_message("mine", "user", f"ours {number} about wallabies")
            theirs.call("append_message", "mine", "assistant", f"theirs {number} about wallabies")
        assert len(db.search("wallabies", per="message").hits) == 10
        assert len(theirs.call("search_messages", "wallabies", limit=50)) == 10
        assert theirs.call("get_messages", "mine") == db.get_messages("mine")
        messages = [row["id"] for row in db.get_messages("mine")]
        db.rewind_to_message("mine", messages[-2])
        assert len(db.search("wallabies", per="message").hits) == 8
        assert len(theirs.call("search_messages", "wallabies", limit=50)) == 8
        assert db.kind == "own"


def find_texts(db: SessionDB, query: str) -> set[str]:
    return {hit.session_id for hit in db.search(query).hits}

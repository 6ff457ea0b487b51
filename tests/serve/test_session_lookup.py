"""Finding a session by id, prefix, key or title."""

from __future__ import annotations

import pytest

from session_core import SessionSource, SessionStore

pytestmark = pytest.mark.anyio


@pytest.fixture(name="key")
def _key(db, home_path):
    """The key of a chat whose session was compressed into a continuation."""
    with SessionStore.open(home_path, db) as store:
        chat = SessionSource(platform="telegram", chat_id="42")
        entry = store.get_or_create_session(chat)
        db.append_message(entry.session_id, "user", "first", create={"source": "telegram"})
        db.end_session(entry.session_id, "compression")
        create = {"source": "telegram", "parent_session_id": entry.session_id}
        db.append_message("tip", "user", "second", create=create)
        return entry.session_key


@pytest.mark.requirement("serving:naming")
@pytest.mark.parametrize(
    ("tool", "more"), [("sessions_read", {}), ("sessions_search", {"query": "second"})]
)
async def test_read_accepts_id_prefix_key_title(call, db, key, tool, more):
    db.set_session_title("tip", "Ferries")
    answers = [await call(tool, session=given, **more) for given in ("tip", "ti", key, "Ferries")]
    assert answers[1:] == answers[:1] * 3


@pytest.mark.requirement("serving:naming")
async def test_wait_accepts_id_prefix_key_title(call, db, key):
    db.set_session_title("tip", "Ferries")
    names = ("tip", "ti", key, "Ferries")
    begun = [await call("events_wait", session=name, timeout_s=0) for name in names]
    db.append_message("other", "user", "not this", create={"source": "cli"})
    db.append_message("tip", "user", "third")
    for item in begun:
        answer = await call("events_wait", cursor=item["cursor"], timeout_s=5)
        assert [event["text"] for event in answer["events"]] == ["third"]


@pytest.mark.requirement("serving:naming")
async def test_exact_id_wins_over_prefix(call, db):
    for name in ("a", "ab", "abc"):
        db.append_message(name, "user", name, create={"source": "cli"})
    assert (await call("sessions_read", session="ab"))["session"]["id"] == "ab"


@pytest.mark.requirement("serving:naming")
async def test_very_long_id_is_listed_and_read(call, db):
    long_id = "x" * 1600
    db.append_message(long_id, "user", "The ledger", create={"source": "cli"})
    listed = await call("sessions_list", detail="detailed")
    (row,) = listed["sessions"]
    assert (row["id"], row["preview"]) == (long_id[:500], "The ledger")
    for session_id in (long_id, row["id"]):
        answer = await call("sessions_read", session=session_id)
        assert [message["text"] for message in answer["messages"]] == ["The ledger"]


@pytest.mark.requirement("serving:naming")
async def test_ambiguous_prefix_names_five_sessions(refused, db):
    for number in range(8):
        db.append_message(f"day{number}", "user", "hi", create={"source": "cli"})
    text = await refused("sessions_read", session="day")
    named = text.partition(": ")[2].partition(";")[0].split(", ")
    assert text.startswith("several sessions begin with 'day': day")
    assert len(set(named)) == 5


@pytest.mark.requirement("serving:naming")
async def test_ambiguous_prefix_suggests_unique_prefix(call, refused, db):
    shared = "a conversation with a long name"
    for user in ("ann", "bob"):
        db.append_message(f"{shared}@shop@{user}", "user", user, create={"source": "cli"})
    text = await refused("sessions_read", session=shared)
    prefix = text.rpartition("such as ")[2].strip("'.")
    assert (await call("sessions_read", session=prefix))["messages"][0]["text"] == "ann"


CHANGING = (
    lambda given: ("sessions_edit", {"sessions": given, "archived": True}),
    lambda given: ("sessions_compress", {"session": given}),
    lambda given: ("sessions_finalize", {"sessions": [given]}),
    lambda given: ("sessions_prune", {"sessions": [given]}),
)


@pytest.mark.requirement("serving:naming")
@pytest.mark.parametrize("naming", CHANGING, ids=lambda naming: naming("")[0])
async def test_changes_accept_id_prefix_key(call, refused, db, key, naming):
    db.append_message("tin", "user", "third", create={"source": "cli"})
    tool, arguments = naming("ti")
    assert "several sessions begin with 'ti'" in await refused(tool, **arguments)
    for given in ("tip", "tin", key):
        tool, arguments = naming(given)
        await call(tool, **arguments)


@pytest.mark.requirement("serving:naming")
@pytest.mark.parametrize("naming", CHANGING[1:], ids=lambda naming: naming("")[0])
async def test_plans_refuse_titles(refused, db, key, naming):
    db.set_session_title("tip", "Ferries")
    tool, arguments = naming("Ferries")
    text = await refused(tool, **arguments)
    assert text.startswith(
        "no session 'Ferries'; a change requires an id, a unique prefix or a session key"
    )


@pytest.mark.requirement("serving:naming")
async def test_edit_accepts_title(call, db, key):
    db.set_session_title("tip", "Ferries")
    edited = await call("sessions_edit", sessions="Ferries", pinned=True)
    assert [row["id"] for row in edited["sessions"]] == ["tip"]

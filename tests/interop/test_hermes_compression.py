"""Hermes reads, routes, recompresses and sees undone our compressions, and the reverse.

A home of schema 16 cannot flag rows: only continuations are possible there.
"""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest

from session_core.compression.types import NotCompressed
from tests.interop import hermes
from tests.interop.trips import KEEP, TITLE, WORDS, Trip
from tests.interop.twins import differences, rows
from tests.peers import HERMES_SCHEMAS

SHAPES = ("in_place", "continuation")
CASES = [
    (v, shape) for v in HERMES_SCHEMAS for shape in SHAPES if (v, shape) != ("0.17.0", SHAPES[0])
]
TOLD = "We stay at quay_17 in Porto, ticket TRIP-4711."


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def compressed(request, built, tmp_path_factory):
    """A conversation that we compressed, for reading tests."""
    version, shape = request.param
    home = hermes.copy(built(version), tmp_path_factory.mktemp("trip") / "home")
    with Trip(version, home) as trip:
        trip.furnish()
        trip.before = {word: trip.hits(text) for word, text in WORDS.items()}
        trip.done = trip.compress(shape)
        yield trip


@pytest.fixture(params=CASES, ids="-".join)
def case(request, built, tmp_path):
    """An uncompressed conversation, and the shape of its compression."""
    version, shape = request.param
    with Trip(version, hermes.copy(built(version), tmp_path / "home")) as trip:
        trip.furnish()
        yield trip, shape


# -- ours, read by theirs ----------------------------------------------------------------------


@pytest.mark.requirement("compression:hermes-reads")
def test_hermes_lists_compressed_conversation_as_tip(compressed):
    (line,) = compressed.lines().values()
    tip = compressed.done.session_id
    assert (line["id"], line["ended_at"]) == (tip, None)
    assert line["message_count"] == len(compressed.db.get_messages(tip))
    assert line["preview"].startswith("plan the pademelon trip")
    listed = {row["id"] for row in compressed.theirs.call("list_sessions_rich", limit=500)}
    assert "the_branched" in listed
    assert "the_delegate" not in listed


@pytest.mark.requirement("compression:hermes-reads")
def test_hermes_finds_tip_and_resumes(compressed):
    ask, old, tip = compressed.theirs.call, compressed.session_id, compressed.done.session_id
    assert ask("get_compression_tip", old) == tip
    assert ask("resolve_resume_session_id", old) == tip
    assert ask("get_compression_tip", "the_branched") == "the_branched"
    chain = list(dict.fromkeys([old, tip]))
    assert ask("_session_lineage_root_to_tip", tip) == chain
    assert compressed.db.get_compression_lineage(tip) == chain
    assert (ask("get_session", old)["end_reason"] == "compression") == (old != tip)


@pytest.mark.requirement("compression:hermes-reads")
def test_hermes_resolves_title_and_continues_numbering(compressed):
    ask, old, tip = compressed.theirs.call, compressed.session_id, compressed.done.session_id
    assert ask("resolve_session_by_title", TITLE) == tip
    assert ask("get_session_title", old) == TITLE
    number = 2 if old == tip else 3
    assert ask("get_session_title", tip) == (TITLE if old == tip else f"{TITLE} #2")
    assert ask("get_next_title_in_lineage", TITLE) == f"{TITLE} #{number}"
    assert compressed.db.get_next_title_in_lineage(TITLE) == f"{TITLE} #{number}"


@pytest.mark.requirement("compression:hermes-reads")
def test_hermes_reads_compressed_conversation_alike(compressed):
    ask, db, tip = compressed.theirs.call, compressed.db, compressed.done.session_id
    answer = ask("get_messages_as_conversation", tip)
    assert answer == db.get_messages_as_conversation(tip)
    assert ask("get_messages", tip) == db.get_messages(tip)
    assert len(answer) == len(db.get_messages(tip)) < 20


@pytest.mark.requirement("compression:hermes-reads")
def test_tool_calls_keep_results_in_hermes(compressed):
    answer = compressed.theirs.call("get_messages_as_conversation", compressed.done.session_id)
    assert _count_call_pairs(answer)


def _count_call_pairs(told):
    """Check that results follow their calls and calls have results, and return their number."""
    open_calls, count = [], 0
    for message in told:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        assert open_calls == []
        open_calls += [call["id"] for call in message.get("tool_calls") or ()]
        count += len(open_calls)
    assert open_calls == []
    return count


@pytest.mark.requirement("compression:hermes-reads")
def test_hermes_accepts_summary_as_native(compressed):
    tip = compressed.done.session_id
    place, text = compressed.theirs.job("summary_in", session_id=tip)
    (summary,) = (
        row["content"]
        for row in compressed.db.get_messages(tip)
        if "CONTEXT SUMMARY" in str(row["content"])
    )
    assert place == 4 - (compressed.db.get_messages(tip)[3]["content"] == summary)
    assert text == summary.split("\n", 1)[1].rpartition("\n\n")[0]


@pytest.mark.requirement("compression:hermes-reads")
def test_compressed_messages_stay_searchable_in_hermes(compressed):
    """Our search finds a carried message once."""
    made = {row["id"] for row in compressed.db.get_messages(compressed.done.session_id)}
    for part in ("range", "parts", "tool", "cjk"):
        found = compressed.hits(WORDS[part])
        was = compressed.before[part]
        assert was
        assert [hit for hit in found if hit in was] == was
        assert {number for _, number in found if (_, number) not in was} <= made
    for part in ("range", "parts", "cjk", "tail"):
        hits = compressed.db.search(f'"{WORDS[part]}"', per="message", status="all").hits
        texts = Counter(hit.snippet for hit in hits if "CONTEXT SUMMARY" not in hit.snippet)
        assert texts
        assert set(texts.values()) == {1}


# -- ours, gone on with by theirs --------------------------------------------------------------


@pytest.mark.requirement("compression:hermes-goes-on")
def test_next_message_lands_in_continuation(case):
    trip, shape = case
    tip = trip.compress(shape).session_id
    before = trip.texts(tip)
    assert trip.arrive()["session_id"] == tip
    trip.theirs.job("say", session_id=tip, texts=["what about the ferry"])
    assert trip.texts(tip) == [*before, "what about the ferry"]
    (line,) = trip.lines().values()
    assert (line["id"], line["message_count"]) == (tip, len(before) + 1)
    row = trip.theirs.call("get_session", tip)
    known = {"session_key": trip.key, "chat_id": "55", "chat_type": "dm", "user_id": "55"}
    assert {name: row[name] for name in known if name in row} == {
        name: value for name, value in known.items() if name in row
    }
    if trip.theirs.has("get_compression_lineage"):
        # It takes a delegate that began before for the continuation.
        trip.theirs.call("delete_session", "the_delegate")
        chain = list(dict.fromkeys([trip.session_id, tip]))
        assert trip.theirs.call("get_compression_lineage", tip) == chain
    if trip.theirs.has("list_gateway_sessions"):
        listed = trip.theirs.call("list_gateway_sessions", platform="telegram")
        assert [one["id"] for one in listed if one["session_key"] == trip.key] == [tip]


@pytest.mark.requirement("compression:hermes-goes-on")
def test_hermes_updates_summary_on_next_compression(case):
    trip, shape = case
    tip = trip.compress(shape).session_id
    _, ours = trip.theirs.job("summary_in", session_id=tip)
    trip.go_on(tip, 12)
    found = trip.theirs.job("condense", session_id=tip, summary=TOLD, keep=4)
    assert found["previous"] == ours
    assert found["turns"]
    assert not any(ours in str(message["content"]) for message in found["turns"])
    assert not any(ours in str(message["content"]) for message in found["messages"])
    assert any(TOLD in str(message["content"]) for message in found["messages"])


@pytest.mark.requirement("compression:hermes-reads")
def test_in_place_search_matches_hermes_compaction(case, tmp_path, built):
    trip, shape = case
    if shape == "continuation":
        return
    trip.compress(shape)
    messages = trip.db.get_messages_as_conversation(trip.session_id)
    home = hermes.copy(built(trip.version), tmp_path / "twin")
    with Trip(trip.version, home) as twin:
        twin.furnish()
        twin.theirs.call("archive_and_compact", twin.session_id, messages)
        for part in ("range", "parts", "tool", "cjk", "tail"):
            assert len(trip.hits(WORDS[part])) == len(twin.hits(WORDS[part])), part
        # Messages before the range stay as they are, and Hermes copies them too.
        assert (len(trip.hits(WORDS["head"])), len(twin.hits(WORDS["head"]))) == (1, 2)


@pytest.mark.requirement("compression:hermes-undo")
def test_undo_restores_everything_in_hermes(case):
    trip, shape = case
    before = _read_all_rows(trip)
    result = trip.compress(shape)
    assert _read_all_rows(trip) != before
    trip.compressor.undo(result.batch)
    assert differences(before["rows"], _read_all_rows(trip)["rows"]) == []
    assert _read_all_rows(trip) == before
    assert trip.db.admin.check_integrity(deep=True) == []
    assert trip.arrive()["session_id"] == trip.session_id


@pytest.mark.requirement("compression:hermes-undo")
def test_in_place_undo_keeps_later_messages(case):
    trip, shape = case
    if shape == "continuation":
        return
    before = trip.texts(trip.session_id)
    result = trip.compress(shape)
    trip.go_on(trip.session_id, 3)
    since = trip.texts(trip.session_id)[-3:]
    trip.compressor.undo(result.batch)
    assert trip.texts(trip.session_id) == [*before, *since]
    row = trip.theirs.call("get_session", trip.session_id)
    assert row["message_count"] == len(before) + 3


@pytest.mark.requirement("compression:hermes-undo")
def test_continued_continuation_is_undone_by_plan(case):
    trip, shape = case
    if shape == "in_place":
        return
    before = _read_all_rows(trip)
    result = trip.compress(shape)
    trip.arrive()
    trip.theirs.job("say", session_id=result.session_id, texts=["since"])
    planned = trip.compressor.undo(result.batch).plan
    assert (planned.sessions, planned.messages) == ((result.session_id,), 1)
    with pytest.raises(NotCompressed, match="within the hour"):
        trip.compressor.apply_undo(planned.plan)
    trip.now += 7200
    trip.compressor.apply_undo(planned.plan)
    after = _read_all_rows(trip)
    for each in (before, after):
        each["route"] = each["route"]["session_id"]  # when it was used last is not undone
        each["rows"].pop("gateway_routing", None)
    assert after == before
    assert trip.arrive()["session_id"] == trip.session_id


def _read_all_rows(trip):
    """Return all rows without update times of routes, and the conversation as Hermes reads it."""
    trip.store.close()
    found = rows(trip.home)
    for row in found.get("gateway_routing", ()):
        del row["updated_at"]
    ask = trip.theirs.call
    file = json.loads((trip.home / "sessions" / "sessions.json").read_text(encoding="utf-8"))
    return {
        "rows": found,
        "route": file[trip.key],
        "lines": trip.lines(),
        "hits": [trip.hits(word) for word in WORDS.values()],
        "conversation": ask("get_messages_as_conversation", trip.session_id),
        "title": ask("resolve_session_by_title", TITLE),
        "next": ask("get_next_title_in_lineage", TITLE),
    }


# -- locks and company -------------------------------------------------------------------------


@pytest.mark.requirement("compression:hermes-locks")
def test_compression_locks_exclude_hermes(case):
    trip, shape = case
    ask, session_id = trip.theirs.call, trip.session_id
    seen = []

    def summarize(request):
        seen.append(ask("try_acquire_compression_lock", session_id, "theirs"))
        seen.append(ask("get_compression_lock_holder", session_id))
        return f"{request.brief.messages} messages about a trip to Porto"

    assert ask("try_acquire_compression_lock", session_id, "theirs")
    with pytest.raises(NotCompressed, match="theirs") as refused:
        trip.compressor.compress(session_id, summarize, shape=shape, keep_last=KEEP)
    assert (refused.value.code, seen) == ("locked", [])
    ask("release_compression_lock", session_id, "theirs")
    trip.compressor.compress(session_id, summarize, shape=shape, keep_last=KEEP)
    assert seen[0] is False
    assert "agent=mcp-sessions" in seen[1]
    assert ask("get_compression_lock_holder", session_id) is None
    assert ask("try_acquire_compression_lock", session_id, "theirs")


@pytest.mark.requirement("compression:hermes-locks")
def test_active_session_refuses_continuation_next_to_hermes(case):
    trip, shape = case
    trip.go_on(trip.session_id, 1)
    before = _read_all_rows(trip)
    if shape == "in_place":
        assert trip.compress("auto").shape == "in_place"
        return
    with pytest.raises(NotCompressed, match="within the hour") as refused:
        trip.compress("continuation")
    assert refused.value.code == "live"
    assert _read_all_rows(trip) == before


@pytest.mark.requirement("compression:hermes-locks")
def test_home_without_flags_refuses_in_place_compression(built, tmp_path):
    with Trip("0.17.0", hermes.copy(built("0.17.0"), tmp_path / "home")) as trip:
        trip.furnish()
        with pytest.raises(NotCompressed, match="older than compression in place"):
            trip.compress("in_place")
        assert trip.compress("auto").shape == "continuation"


@pytest.mark.requirement("compression:hermes-goes-on")
def test_hermes_messages_during_compression_are_kept(case):
    """Hermes appends while we compress in place and undo, six times."""
    trip, shape = case
    if shape == "continuation":
        return
    session_id, before = trip.session_id, trip.texts(trip.session_id)
    said: list[str] = []
    batches: list[str] = []
    for turn in range(6):
        job = {
            "session_id": session_id,
            "numbers": [*range(turn * 8, turn * 8 + 8)],
            "pause": 0.005,
        }
        theirs = threading.Thread(
            target=lambda job=job: said.extend(trip.theirs.job("converse", **job))
        )
        theirs.start()
        known = len(batches)
        while theirs.is_alive() or len(batches) == known:
            batches += _compress_or_undo(trip, len(batches))
        theirs.join()
    answer = trip.theirs.call("get_messages_as_conversation", session_id)
    places = [said.index(text) for text in trip.texts(session_id) if text in said]
    assert places == sorted(set(places))
    assert places[-1] == len(said) - 1
    _count_call_pairs(answer)
    for batch in reversed(batches):
        if trip.ledger.get_batch(batch).undone_at is None:
            trip.compressor.undo(batch)
    assert trip.texts(session_id) == [*before, *said]
    row = trip.theirs.call("get_session", session_id)
    calls = sum(
        len(message.get("tool_calls") or ()) for message in trip.db.get_messages(session_id)
    )
    assert (row["message_count"], row["tool_call_count"]) == (len(before) + len(said), calls)


def _compress_or_undo(trip, number):
    """Compress in place, and undo every third compression at once."""
    try:
        result = trip.compressor.compress(
            trip.session_id, lambda _: "in short: the ferry", shape="in_place", keep_last=2
        )
    except NotCompressed as error:
        if error.code not in ("nothing_to_win", "not_smaller"):
            raise
        return []
    if number % 3 == 2:
        trip.compressor.undo(result.batch)
    return [result.batch]


# -- theirs, compressed again by ours ----------------------------------------------------------


@pytest.mark.requirement("compression:hermes-goes-on")
def test_hermes_compression_is_recompressed_and_undone(case):
    trip, shape = case
    tip = trip.session_id
    if shape == "in_place":
        trip.theirs.job("compact", session_id=tip, summary=TOLD, keep=KEEP)
    else:
        tip = "their_child"
        trip.theirs.job("rotate", session_id=trip.session_id, child=tip, summary=TOLD, keep=KEEP)
        with_route = {"session_id": tip}
        trip.theirs.job("store_set", key=trip.key, fields=with_route)
    trip.go_on(tip, 16, age_s=5400.0)
    before = _read_all_rows(trip)
    planned = trip.compressor.plan(trip.session_id, keep_last=KEEP, shape=shape)
    assert planned.session_id == tip
    assert "quay_17" in planned.brief.digest
    result = trip.compressor.apply(planned.plan)
    answer = trip.theirs.call("get_messages_as_conversation", result.session_id)
    assert answer == trip.db.get_messages_as_conversation(result.session_id)
    marked = [message for message in answer if "[CONTEXT" in str(message["content"])]
    assert len(marked) == 1
    assert "quay_17" in marked[0]["content"]
    assert "TRIP-4711" in marked[0]["content"]
    assert trip.theirs.call("get_compression_tip", trip.session_id) == result.session_id
    assert list(trip.lines()) == [result.session_id]
    assert trip.arrive()["session_id"] == result.session_id
    trip.compressor.undo(result.batch)
    after = _read_all_rows(trip)
    for each in (before, after):
        each["route"] = each["route"]["session_id"]
        each["rows"].pop("gateway_routing", None)
    assert differences(before["rows"], after["rows"]) == []
    assert after == before

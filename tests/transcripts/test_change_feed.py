"""Events of transcripts: each message that is written once, and nothing of history."""

from __future__ import annotations

from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import ClaudeTree, make_line


def list_events(store: TranscriptStore, cursor: str) -> tuple[list[tuple[str, str | None]], str]:
    """Return the kinds and texts of the events since a cursor, and the next cursor."""
    page = store.read_changes(cursor)
    assert not page.gap
    return [(event.type, event.text or event.title) for event in page.events], page.cursor


def test_written_messages_are_events_once(tree: ClaudeTree, store: TranscriptStore):
    tree.write("old", ["of before"])
    index_all(store)
    cursor = store.read_changes().cursor

    tree.write("old", ["appended"])
    events, cursor = list_events(store, cursor)
    assert events == [("message", "appended")]

    tree.write("new", ["begun", "answered"])
    events, cursor = list_events(store, cursor)
    assert events == [
        ("session_started", "begun"),
        ("message", "begun"),
        ("message", "answered"),
    ]
    assert list_events(store, cursor)[0] == []


def test_rewritten_file_repeats_no_event(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "second"])
    index_all(store)
    cursor = store.read_changes().cursor

    path.write_bytes(path.read_bytes().replace(b"first", b"other") + make_line("one", 2, "third"))

    assert list_events(store, cursor)[0] == [("message", "third")]


def test_rebuilt_index_repeats_no_event(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["first"])
    index_all(store)
    cursor = store.read_changes().cursor

    store.rebuild()
    index_all(store)

    assert list_events(store, cursor)[0] == []


def test_event_pages_follow_each_other(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["first"])
    index_all(store)
    cursor = store.read_changes(session="one").cursor
    tree.write("one", [f"message {number}" for number in range(7)])
    tree.write("two", ["elsewhere"])

    texts = []
    for _ in range(4):
        page = store.read_changes(cursor, session="one", limit=3)
        texts += [event.text for event in page.events]
        cursor = page.cursor

    assert texts == [f"message {number}" for number in range(7)]


def test_cursor_of_a_lost_index_is_a_gap(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["first"])
    cursor = store.read_changes().cursor
    (path,) = tree.state.glob("index-*.db")
    store.close()
    path.unlink()

    with tree.open_store() as other:
        assert other.read_changes(cursor).gap

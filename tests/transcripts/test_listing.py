"""Lists of transcripts: pages, filters and positions."""

from __future__ import annotations

from session_core.transcripts import listing
from session_core.transcripts.transcript_store import TranscriptStore
from session_core.types import SessionFilter
from tests.transcripts.trees import START, ClaudeTree, write_two_agents


def test_list_shows_sessions_before_indexing(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["how do we ship", "like this"])
    tree.write("two", ["a longer question", "answer", "thanks"])

    rows = store.list_sessions().items

    assert [(row.id, row.preview) for row in rows] == [
        ("two", "a longer question"),
        ("one", "how do we ship"),
    ]
    assert rows[0].resume == ("claude", "--resume", "two")
    assert (rows[0].project, rows[0].branch) == ("/src/app", "main")
    assert rows[0].started_at == START


def test_session_named_like_option_has_no_resume(tree: ClaudeTree, store: TranscriptStore):
    tree.write("--dangerous", ["how do we ship", "like this"])
    assert [(row.id, row.resume) for row in store.list_sessions().items] == [("--dangerous", None)]


def test_list_pages_cover_every_session_once(tree: ClaudeTree, store: TranscriptStore):
    for number in range(25):
        tree.write(f"session-{number}", ["a question", "an answer"])

    page, ids = store.list_sessions(limit=10), []
    while True:
        ids += [row.id for row in page.items]
        if page.next_cursor is None:
            break
        page = store.list_sessions(limit=10, cursor=page.next_cursor)

    assert sorted(ids) == sorted(f"session-{number}" for number in range(25))


def test_list_filters_by_words_and_folder(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["ship the parser"])
    tree.write("two", ["fix the index"])

    by_words = store.list_sessions(SessionFilter(words="Parser"))
    by_folder = store.list_sessions(SessionFilter(project="/src"))
    elsewhere = store.list_sessions(SessionFilter(project="/wor"))

    assert [row.id for row in by_words.items] == ["one"]
    assert len(by_folder.items) == 2
    assert elsewhere.items == []


def test_list_filters_by_title_and_agent(tree: ClaudeTree, store: TranscriptStore):
    write_two_agents(tree)
    page = store.list_sessions(SessionFilter(exclude_source=("Claude-Code",)))
    assert [row.id for row in page.items] == ["e", "d"]
    assert store.list_sessions(SessionFilter(titled=True)).items == []
    assert len(store.list_sessions(SessionFilter(titled=False)).items) == 5


def test_list_begins_below_any_position(tree: ClaudeTree, store: TranscriptStore):
    write_two_agents(tree)
    whole = store.list_sessions().items
    assert [row.id for row in whole] == ["c", "b", "a", "e", "d"]

    for number, row in enumerate(whole):
        rest = store.list_sessions(below=(row.last_active_at, row.source, row.id)).items
        assert rest == whole[number + 1 :]
    assert store.list_sessions(below=(START, "hermes", "")).items == whole[3:]
    assert store.list_sessions(below=(START + 0.0001, "", "")).items == whole


def test_list_is_not_sorted(tree: ClaudeTree):
    with tree.open_store() as store:
        conditions = listing.build_conditions(SessionFilter(), 0.0)
        for position in (None, (5.0, "claude-code", "one")):
            sql, values = listing.build_list_sql(conditions, "recent", 21, position)
            plan = store._index.read(f"EXPLAIN QUERY PLAN {sql}", values)
            assert ["session_activity" in row[3] for row in plan] == [True]

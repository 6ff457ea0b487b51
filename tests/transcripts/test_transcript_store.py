"""The answers of a transcript store, which equal the present transcripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from session_core.errors import InvalidInput, NotFound
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import (
    append_elsewhere,
    find_hits,
    index_all,
    read_everything,
    read_texts,
)
from tests.transcripts.trees import START, ClaudeTree, make_line, write_two_agents


def test_store_changes_nothing_of_the_agent(tree: ClaudeTree):
    tree.write("one", ["first", "second"])
    before = read_everything(tree.projects)

    with tree.open_store() as store:
        store.list_sessions()
        find_hits(store, "second")
        read_texts(store, "one")
        store.index_pending()

    assert read_everything(tree.projects) == before


def test_message_id_survives_a_rebuild(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["first", "second", "third"])
    (hit,) = find_hits(store, "second")

    store.rebuild()

    assert find_hits(store, "second") == [hit]
    message = store.get_message(*hit)
    assert message is not None
    assert message["content"] == "second"


def test_repeated_lines_are_one_message(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "second"])
    append_elsewhere(path, path.read_bytes())

    assert read_texts(store, "one") == ["first", "second"]
    assert len(find_hits(store, "second", per="message")) == 1


def test_copies_in_forks_are_found_once(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["original thought", "answer"])
    fork = path.with_name("two.jsonl")
    fork.write_bytes(path.read_bytes() + make_line("two", 3, "later"))

    assert find_hits(store, "original", per="message") == [("one", 0)]
    assert find_hits(store, "later") == [("two", len(path.read_bytes()))]

    path.unlink()

    assert find_hits(store, "original", per="message") == [("two", 0)]


def test_forged_id_hides_no_other_text(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["innocent words"])
    line = path.read_bytes().replace(b"innocent words", b"something else")
    path.with_name("two.jsonl").write_bytes(line)

    assert find_hits(store, "something", per="message") == [("two", 0)]
    assert find_hits(store, "innocent", per="message") == [("one", 0)]


def test_subagent_is_a_delegate(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["start a helper"])
    path = tree.projects / "-src-app" / "one" / "subagents" / "agent-a1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(make_line("one", 0, "helping", isSidechain=True, agentId="a1"))

    (child,) = store.list_children("one")

    assert (child.id, child.parent_id, child.link) == ("agent-a1", "one", "delegate")


def test_same_id_in_two_folders_stays_apart(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["in the second"], project="-work-b")
    tree.write("one", ["in the first"], project="-work-a")

    ids = sorted(row.id for row in store.list_sessions().items)
    index_all(store)
    indexed = sorted(row.id for row in store.list_sessions().items)

    assert len(set(indexed)) == 2
    assert read_texts(store, "one") == ["in the first"]
    assert ids[0] == indexed[0] == "one"


def test_session_resolves_by_prefix_and_title(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("abc-1", ["first"])
    tree.write("abd-2", ["second"])
    title = {"type": "custom-title", "customTitle": "My title", "sessionId": "abc-1"}
    append_elsewhere(path, json.dumps(title).encode() + b"\n")

    assert store.resolve_session_id("abc") == "abc-1"
    assert store.resolve_session_id("my TITLE") == "abc-1"
    assert store.resolve_session_id("nothing") is None
    with pytest.raises(InvalidInput, match="several"):
        store.resolve_session_id("ab")


def test_unknown_session_is_an_error(store: TranscriptStore):
    with pytest.raises(NotFound):
        store.read_window("missing")


def test_search_climbs_from_all_to_any(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["migrate the schema", "we chose postgres"])

    assert store.search("schema migrate").matched == "all"
    assert store.search("schem migr").matched == "prefix"
    assert store.search("schema oracle").matched == "any"
    assert store.search("nothing here at all").hits == []


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ('"quick brown"', ["the quick brown fox"]),
        ("quick -fox", ["brown but quick"]),
        ("quic*", ["brown but quick", "the quick brown fox"]),
        ("数据", ["讨论数据库的迁移"]),
        ("库", ["讨论数据库的迁移"]),
        ("数据库的", ["讨论数据库的迁移"]),
        ("数的", []),
        ("snake_case", ["a snake_case name"]),
        ("CAFÉ", ["un cafe"]),
        ("quick AND fox", ["the quick brown fox"]),
    ],
)
def test_search_matches_words_and_phrases(
    tree: ClaudeTree, store: TranscriptStore, query: str, texts: list[str]
):
    everything = ["the quick brown fox", "brown but quick", "讨论数据库的迁移", "a snake_case name"]
    tree.write("one", [*everything, "un cafe"])

    hits = store.search(query, per="message").hits

    assert sorted(hit.snippet for hit in hits) == sorted(texts)


def test_search_filters_by_role_time_and_tool(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["word asked", "word answered"])
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "word.py"}}
    content = {"role": "assistant", "content": [call]}
    append_elsewhere(path, make_line("one", 3, "", message=content))

    assert len(find_hits(store, "word", per="message")) == 3
    assert len(find_hits(store, "word", per="message", roles=["User"])) == 1
    assert len(find_hits(store, "word", per="message", tool="read")) == 1
    assert len(find_hits(store, "word", per="message", since=START + 60)) == 2
    assert len(find_hits(store, "word", per="message", until=START + 60)) == 1
    assert len(find_hits(store, "word", per="message", session="one")) == 3


def test_search_pages_repeat_no_session(tree: ClaudeTree, store: TranscriptStore):
    for number in range(40):
        tree.write(f"session-{number}", ["common word"] * 8)
    index_all(store)

    result, ids = store.search("common", limit=15), []
    while True:
        ids += [hit.session_id for hit in result.hits]
        if result.next_cursor is None:
            break
        result = store.search("common", limit=15, cursor=result.next_cursor)

    assert sorted(ids) == sorted(f"session-{number}" for number in range(40))


def test_roots_of_others_are_not_shown(tree: ClaudeTree, store: TranscriptStore, tmp_path: Path):
    tree.write("one", ["shared word"])
    assert len(find_hits(store, "shared")) == 1
    other = ClaudeTree(tmp_path / "other")
    other.write("two", ["shared word"])

    with TranscriptStore(tree.state, environ={"HOME": str(other.home)}) as second:
        assert find_hits(second, "shared") == [("two", 0)]
        assert [row.id for row in second.list_sessions().items] == ["two"]
    assert find_hits(store, "shared") == [("one", 0)]


def test_two_processes_share_an_index(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["by the first"])
    with tree.open_store() as second:
        assert find_hits(second, "first") == [("one", 0)]
        tree.write("one", ["by the second"])
        assert len(find_hits(store, "second")) == 1
        assert len(find_hits(second, "second")) == 1
        assert read_texts(second, "one") == read_texts(store, "one")


def test_view_has_only_its_stores(tree: ClaudeTree, store: TranscriptStore):
    write_two_agents(tree)
    view = store.select_stores(["qwen"])

    assert [row.id for row in view.list_sessions().items] == ["e", "d"]
    index_all(store)
    assert [row.id for row in view.list_sessions().items] == ["e", "d"]
    assert {hit.session_id for hit in view.search("apples").hits} == {"d", "e"}
    assert view.get_session("a") is None
    assert [part.store for part in view.measure_coverage()] == ["qwen"]


def test_block_looks_at_files_once(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])
    with store.open_block():
        assert read_texts(store, "one") == ["first"]
        append_elsewhere(path, make_line("one", 1, "second"))
        assert read_texts(store, "one") == ["first"]
    assert read_texts(store, "one") == ["first", "second"]


def test_messages_are_found_by_session_and_id(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["apples", "pears"])
    tree.write("two", ["apples too"])
    places = [(hit.session_id, hit.message_id) for hit in store.search("apples").hits]

    messages = store.find_messages([*places, ("one", 7), ("three", 0)])

    assert {place: row["content"] for place, row in messages.items()} == {
        ("one", 0): "apples",
        ("two", 0): "apples too",
    }


def test_forged_id_hides_no_question_hit(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["about pears"])
    line = path.read_bytes().replace(b"about pears", b"sweet apples")
    path.with_name("two.jsonl").write_bytes(line)

    hits = store.search("which of the apples and pears are sweet?").hits

    assert {hit.session_id for hit in hits} == {"one", "two"}


@pytest.mark.parametrize("mode", ["words", "substring"])
def test_hits_have_scores_that_compare(tree: ClaudeTree, store: TranscriptStore, mode: str):
    tree.write("one", ["apples", "apples " + "and pears " * 500])

    hits = store.search("apples", mode=mode, per="message").hits

    assert [hit.message_id == 0 for hit in hits] == [True, False]
    assert 2 > hits[0].score > hits[1].score > 0
    assert len(store.search("apples", mode=mode).hits) == 1


def test_hit_of_user_has_its_reply(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["which port?", "", "and the host?", "port 9090"])

    hits = store.search("port", per="message").hits

    reply = next(hit.message_id for hit in hits if hit.role == "assistant")
    assert {hit.role: hit.reply_id for hit in hits} == {"user": reply, "assistant": None}


def test_question_finds_more_than_its_repetition(tree: ClaudeTree, store: TranscriptStore):
    tree.write("old", ["the metrics exporter", "the exporter listens on 9100"])
    tree.write("new", ["remind me: which port does the exporter listen on? I forgot"])

    result = store.search("which port does the exporter listen on?")

    assert (result.matched, [hit.session_id for hit in result.hits]) == ("any", ["old", "new"])


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("per", ["message", "conversation"])
def test_search_pages_follow_order(tree: ClaudeTree, store: TranscriptStore, order, per):
    for session in ("one", "two", "three"):
        tree.write(session, [f"apples {session}", "pears", "more apples"])
    index_all(store)
    seen: list[tuple[float, str]] = []
    cursor = None
    for _ in range(9):
        page = store.search("apples", order=order, per=per, limit=2, cursor=cursor)
        seen += [(hit.at, hit.session_id) for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
    times = {"message": [0, 0, 0, 120, 120, 120], "conversation": [0] * 3}[per]
    if order == "newest":
        times = times[::-1] if per == "message" else [120] * 3
    assert [at - START for at, _ in seen] == times
    assert len(set(seen)) == len(seen)


def test_question_excludes_words_after_minus(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["apples are sweet"])
    tree.write("two", ["apples and pears are sweet"])

    hits = store.search("which apples are sweet? -pears").hits

    assert [hit.session_id for hit in hits] == ["one"]


def test_search_adds_up_words_of_session(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["the boiler makes noises", "fine", "so what", "call the plumber"])
    tree.write("two", ["the boiler is off", "boilers"])

    result = store.search("boiler plumber noises")

    assert (result.matched, [hit.session_id for hit in result.hits]) == ("conversation", ["one"])

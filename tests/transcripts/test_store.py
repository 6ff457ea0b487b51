"""What a transcript store answers, and that it is what the transcripts say now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from session_core.errors import InvalidInput, NotFound
from session_core.transcripts import indexer, listing, sources
from session_core.transcripts import store as store_module
from session_core.transcripts.store import TranscriptStore
from session_core.types import SessionFilter
from tests.transcripts.conftest import index_all, read_everything
from tests.transcripts.trees import START, ClaudeTree, format_time, make_line

APPEND = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read())"


def append_elsewhere(path: Path, data: bytes) -> None:
    """Append bytes from another process."""
    subprocess.run([sys.executable, "-c", APPEND, str(path)], input=data, check=True)


def find(store: TranscriptStore, query: str, **options: object) -> list[tuple[str, int]]:
    """Return the hits of a search."""
    result = store.search(query, **options)
    return [(hit.session_id, hit.message_id) for hit in result.hits]


def read_texts(store: TranscriptStore, session: str, **options: object) -> list[str]:
    """Return the texts of a window."""
    window = store.read_window(session, **options)
    return [message["content"] for message in window.messages]


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


def test_folders_are_listed_before_indexing(tree: ClaudeTree, store: TranscriptStore):
    write_two_agents(tree)
    assert store.list_folders() == ["/src", "/src/app"]
    assert store.select_stores(["qwen"]).list_folders() == ["/src"]
    index_all(store)
    assert store.list_folders() == ["/src", "/src/app"]
    found = store.list_sessions(SessionFilter(project=("/nowhere", "/src/app")))
    assert [row.id for row in found.items] == ["c", "b", "a"]


def test_appended_line_is_in_next_answer(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])

    for number in range(1, 20):
        append_elsewhere(path, make_line("one", number, f"token{number}x"))
        assert len(find(store, f"token{number}x")) == 1
        assert read_texts(store, "one")[-1] == f"token{number}x"


def test_new_file_is_in_next_answer(tree: ClaudeTree, store: TranscriptStore):
    assert store.list_sessions().items == []

    tree.write("one", ["findable"])

    assert find(store, "findable") == [("one", 0)]
    assert [row.id for row in store.list_sessions().items] == ["one"]


def test_torn_last_line_waits_for_its_end(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])
    line = make_line("one", 1, "halves")
    append_elsewhere(path, line[:40])

    assert find(store, "halves") == []
    assert read_texts(store, "one") == ["first"]

    append_elsewhere(path, line[40:])

    assert len(find(store, "halves")) == 1


def test_truncated_file_loses_its_messages(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "second", "third"])
    assert len(find(store, "third")) == 1

    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))

    assert find(store, "third") == []
    assert read_texts(store, "one") == ["first", "second"]


def test_scrubbed_secret_is_not_found(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "the key is swordfish", "third"])
    assert len(find(store, "swordfish")) == 1

    # The same length, in the middle, and the file grows: its head, tail and size fit.
    path.write_bytes(path.read_bytes().replace(b"swordfish", b"xxxxxxxxx"))
    append_elsewhere(path, make_line("one", 3, "more"))

    assert find(store, "swordfish") == []
    assert find(store, "swordfish", mode="substring") == []
    assert len(find(store, "more")) == 1


def test_scrub_with_same_size_is_noticed(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["the key is swordfish"])
    assert len(find(store, "swordfish")) == 1

    path.write_bytes(path.read_bytes().replace(b"swordfish", b"xxxxxxxxx"))

    assert find(store, "swordfish") == []


def test_long_tail_is_read_to_its_end(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(indexer, "SLICE_BYTES", 1000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 700)
    path = tree.write("one", ["first"])
    assert len(find(store, "first")) == 1

    tree.write("one", [f"message {number}" for number in range(100)])
    assert len(read_texts(store, "one", limit=500)) == 101

    path.write_bytes(path.read_bytes().replace(b"first", b"other"))
    assert len(read_texts(store, "one", limit=500)) == 101
    assert find(store, "other") == [("one", 0)]


def test_replaced_file_is_read_anew(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["old text"])
    assert len(find(store, "old")) == 1

    other = path.with_suffix(".tmp")
    other.write_bytes(make_line("one", 0, "new text"))
    other.replace(path)

    assert find(store, "old") == []
    assert find(store, "new") == [("one", 0)]


def test_deleted_file_is_gone(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["vanishing"])
    tree.write("two", ["staying"])
    assert len(find(store, "vanishing")) == 1

    path.unlink()

    assert find(store, "vanishing") == []
    assert [row.id for row in store.list_sessions().items] == ["two"]
    assert store.get_session("one") is None


def test_moved_folder_keeps_its_sessions(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["kept message"])
    assert len(find(store, "kept")) == 1

    path.parent.rename(path.parent.with_name("-work-other"))

    assert find(store, "kept") == [("one", 0)]
    assert read_texts(store, "one") == ["kept message"]


def test_renamed_file_is_another_session(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["renamed message"])
    assert find(store, "renamed") == [("one", 0)]

    path.rename(path.with_name("two.jsonl"))

    assert find(store, "renamed") == [("two", 0)]
    assert [row.id for row in store.list_sessions().items] == ["two"]


def test_store_changes_nothing_of_the_agent(tree: ClaudeTree):
    tree.write("one", ["first", "second"])
    before = read_everything(tree.projects)

    with tree.open_store() as store:
        store.list_sessions()
        find(store, "second")
        read_texts(store, "one")
        store.work()

    assert read_everything(tree.projects) == before


def test_window_reads_both_directions(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", [f"message {number}" for number in range(10)])
    newest = store.read_window("one", limit=3)
    ids = [message["id"] for message in newest.messages]

    before = store.read_window("one", before=ids[0], limit=2)
    around = store.read_window("one", around=ids[0], limit=4)
    after = store.read_window("one", after=ids[0], limit=9)

    assert [message["content"] for message in newest.messages] == [
        "message 7",
        "message 8",
        "message 9",
    ]
    assert (newest.more_before, newest.more_after) == (True, False)
    assert [message["content"] for message in before.messages] == ["message 5", "message 6"]
    assert [message["content"] for message in around.messages] == [
        *("message 5", "message 6", "message 7", "message 8"),
    ]
    assert [message["content"] for message in after.messages] == ["message 8", "message 9"]
    assert (after.more_before, after.more_after) == (True, False)


@pytest.mark.requirement("transcripts:bounded")
def test_page_of_long_file_needs_no_index(tree, store, monkeypatch):
    monkeypatch.setattr(store_module, "_REFRESH_S", 0.0)
    monkeypatch.setattr(indexer, "SESSION_S", 0.0)
    monkeypatch.setattr(indexer, "_MAX_WAIT_S", 0.0)
    monkeypatch.setattr(indexer, "SLICE_BYTES", 1000)
    texts = [f"message {number} {'x' * 2000}" for number in range(4000)]
    tree.write("long", texts)
    newest = store.read_window("long", limit=3)
    assert store.get_session("long").messages is None  # most of the file is not indexed
    numbers = [row["content"].split()[1] for row in newest.messages]
    assert numbers == ["3997", "3998", "3999"]
    assert newest.more_before
    assert not newest.more_after
    first = newest.messages[0]["id"]
    assert store.get_message("long", first)["content"].startswith("message 3997 ")
    around = store.read_window("long", around=first, limit=4)
    assert [row["content"].split()[1] for row in around.messages] == [
        "3995",
        "3996",
        "3997",
        "3998",
    ]
    before = store.read_window("long", before=first, limit=2)
    assert [row["content"].split()[1] for row in before.messages] == ["3995", "3996"]
    seen, page = [], store.read_window("long", after=0, limit=700)
    while page.messages:
        seen += [row["content"].split()[1] for row in page.messages]
        page = store.read_window("long", after=page.messages[-1]["id"], limit=700)
    assert seen == [str(number) for number in range(1, 4000)]


def test_window_keeps_to_its_roles(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["asked", "answered", "asked again"])

    assert read_texts(store, "one", roles=["user"]) == ["asked", "asked again"]
    assert read_texts(store, "one", roles=["nobody"]) == []


def test_message_id_survives_a_rebuild(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["first", "second", "third"])
    (hit,) = find(store, "second")

    store.rebuild()

    assert find(store, "second") == [hit]
    message = store.get_message(*hit)
    assert message is not None
    assert message["content"] == "second"


def test_repeated_lines_are_one_message(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first", "second"])
    append_elsewhere(path, path.read_bytes())

    assert read_texts(store, "one") == ["first", "second"]
    assert len(find(store, "second", per="message")) == 1


def test_copies_in_forks_are_found_once(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["original thought", "answer"])
    fork = path.with_name("two.jsonl")
    fork.write_bytes(path.read_bytes() + make_line("two", 3, "later"))

    assert find(store, "original", per="message") == [("one", 0)]
    assert find(store, "later") == [("two", len(path.read_bytes()))]

    path.unlink()

    assert find(store, "original", per="message") == [("two", 0)]


def test_forged_id_hides_no_other_text(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["innocent words"])
    line = path.read_bytes().replace(b"innocent words", b"something else")
    path.with_name("two.jsonl").write_bytes(line)

    assert find(store, "something", per="message") == [("two", 0)]
    assert find(store, "innocent", per="message") == [("one", 0)]


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

    assert len(find(store, "word", per="message")) == 3
    assert len(find(store, "word", per="message", roles=["User"])) == 1
    assert len(find(store, "word", per="message", tool="read")) == 1
    assert len(find(store, "word", per="message", since=START + 60)) == 2
    assert len(find(store, "word", per="message", until=START + 60)) == 1
    assert len(find(store, "word", per="message", session="one")) == 3


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


def test_coverage_counts_unknown_records(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])
    append_elsewhere(path, b'{"type": "from-the-future"}\nnot json\n')

    (coverage,) = store.measure_coverage()

    assert coverage.unknown_records == {"from-the-future": 1, "damaged": 1}
    assert (coverage.sessions, coverage.messages, coverage.indexed_share) == (1, 1, 1.0)


def test_links_out_of_a_root_are_counted(tree: ClaudeTree, tmp_path: Path):
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(make_line("secret", 0, "not to be seen"))
    (tree.projects / "-src-app").mkdir()
    (tree.projects / "-src-app" / "link.jsonl").symlink_to(outside)
    (tree.projects / "-linked").symlink_to(tmp_path, target_is_directory=True)

    with tree.open_store() as store:
        assert store.list_sessions().items == []
        assert find(store, "seen") == []
        assert store.measure_coverage()[0].links == 2


def test_roots_of_others_are_not_shown(tree: ClaudeTree, store: TranscriptStore, tmp_path: Path):
    tree.write("one", ["shared word"])
    assert len(find(store, "shared")) == 1
    other = ClaudeTree(tmp_path / "other")
    other.write("two", ["shared word"])

    with TranscriptStore(tree.state, environ={"HOME": str(other.home)}) as second:
        assert find(second, "shared") == [("two", 0)]
        assert [row.id for row in second.list_sessions().items] == ["two"]
    assert find(store, "shared") == [("one", 0)]


@pytest.mark.usefixtures("tree")
def test_pipe_in_a_root_blocks_nothing(tree: ClaudeTree, store: TranscriptStore):
    (tree.projects / "-src-app").mkdir()
    os.mkfifo(tree.projects / "-src-app" / "pipe.jsonl")

    assert store.list_sessions().items == []


def test_two_processes_share_an_index(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["by the first"])
    with tree.open_store() as second:
        assert find(second, "first") == [("one", 0)]
        tree.write("one", ["by the second"])
        assert len(find(store, "second")) == 1
        assert len(find(second, "second")) == 1
        assert read_texts(second, "one") == read_texts(store, "one")


def write_two_agents(tree: ClaudeTree) -> None:
    """Write sessions of equal times in the stores of two agents."""
    for name in "abc":
        tree.write(name, [f"apples in {name}"])
    for name in "de":
        path = tree.home / ".qwen" / "projects" / "-src" / "chats" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = {"uuid": name, "sessionId": name, "timestamp": format_time(START), "type": "user"}
        line |= {"cwd": "/src", "message": {"role": "user", "parts": [{"text": f"apples {name}"}]}}
        path.write_text(json.dumps(line) + "\n")


def test_list_begins_below_any_position(tree: ClaudeTree, store: TranscriptStore):
    write_two_agents(tree)
    whole = store.list_sessions().items
    assert [row.id for row in whole] == ["c", "b", "a", "e", "d"]

    for number, row in enumerate(whole):
        rest = store.list_sessions(below=(row.last_active_at, row.source, row.id)).items
        assert rest == whole[number + 1 :]
    assert store.list_sessions(below=(START, "hermes", "")).items == whole[3:]
    assert store.list_sessions(below=(START + 0.0001, "", "")).items == whole


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

    found = store.find_messages([*places, ("one", 7), ("three", 0)])

    assert {place: row["content"] for place, row in found.items()} == {
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


def test_list_reads_no_history(tree: ClaudeTree):
    tree.write("one", ["first"])
    tree.write("two", ["second"])
    with tree.open_store() as store:
        assert {row.id for row in store.list_sessions().items} == {"one", "two"}
        assert store._index.read("SELECT count(*) FROM sessions") == [(0,)]
        assert store.search("second").hits[0].session_id == "two"


def test_list_is_not_sorted(tree: ClaudeTree):
    with tree.open_store() as store:
        conditions = listing.build_conditions(SessionFilter(), 0.0)
        for position in (None, (5.0, "claude-code", "one")):
            sql, values = listing.build_list_sql(conditions, "recent", 21, position)
            plan = store._index.read(f"EXPLAIN QUERY PLAN {sql}", values)
            assert ["session_activity" in row[3] for row in plan] == [True]

"""Forgetting: nothing of a session is left in the state folder, and it does not come back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from unittest import mock

import pytest
import zstandard

from session_core import _sqlite3
from session_core.errors import Changed, NotFound, StorageError
from session_core.transcripts import list_transcript_stores
from session_core.transcripts.keep.chunks import decompress_chunk
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.keep.conftest import keep_all, read_copy
from tests.transcripts.test_agents import make_home
from tests.transcripts.trees import ClaudeTree

SECRET = "swordfish"


@pytest.fixture
def store(tree: ClaudeTree) -> Iterator[TranscriptStore]:
    """Return a store with a session that holds a secret and one that does not, both kept."""
    tree.write("one", [f"the password is {SECRET}", f"I noted {SECRET}"])
    tree.write("two", ["nothing but work"])
    with tree.open_store() as store:
        store.keep.turn_on()
        update(store)
        yield store


def update(store: TranscriptStore) -> None:
    """Index and keep everything."""
    index_all(store)
    keep_all(store)


def forget(store: TranscriptStore, name: str) -> None:
    """Plan and apply."""
    store.keep.forget(store.keep.plan_forget(name).handle)


def find_frames(data: bytes) -> Iterator[bytes]:
    """Yield the content of each compressed frame in some bytes, also in free pages."""
    for found in re.finditer(re.escape(zstandard.FRAME_HEADER), data):
        with suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[found.start() :])


def find_traces(state: Path, word: str) -> list[str]:
    """Return the places of a state folder that have a word: files, chunks and the vocabulary."""
    traces = []
    for path in (path for path in state.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if any(word.encode() in part for part in (data, *find_frames(data))):
            traces.append(str(path))
    (kept,), (index,) = state.glob("kept-*.db"), state.glob("index-*.db")
    with closing(_sqlite3.connect(f"{kept.as_uri()}?mode=ro", busy_timeout_s=1)) as db:
        for length, data in db.execute("SELECT length, data FROM chunks"):
            if word.encode() in decompress_chunk(data, length):
                traces.append("chunks")
    with closing(_sqlite3.connect(f"{index.as_uri()}?mode=rw", busy_timeout_s=1)) as db:
        db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, words, 'row')")
        terms = [row[0] for row in db.execute("SELECT term FROM temp.terms")]
        traces += [term for term in terms if word in term]
    return traces


@pytest.mark.requirement("transcripts:keep")
def test_forgotten_session_leaves_no_trace(tree: ClaudeTree, store: TranscriptStore):
    assert find_traces(tree.state, SECRET)

    forget(store, "one")
    update(store)

    assert store.search(SECRET).hits == []
    assert [row.id for row in store.list_sessions().items] == ["two"]
    assert [hit.session_id for hit in store.search("work").hits] == ["two"]
    store.close()
    assert find_traces(tree.state, SECRET) == []
    assert SECRET in tree.get_path("one").read_text()


def test_earlier_index_is_forgotten_too(tree: ClaudeTree, store: TranscriptStore):
    earlier = tree.state / "index-1.db"
    earlier.write_text(SECRET)

    forget(store, "one")

    assert not earlier.exists()


def test_forgotten_copy_is_gone_for_good(tree: ClaudeTree, store: TranscriptStore):
    tree.get_path("one").unlink()
    update(store)
    assert [hit.session_id for hit in store.search(SECRET).hits] == ["one"]

    forget(store, "one")
    update(store)

    assert store.get_session("one") is None
    assert find_traces(tree.state, SECRET) == []


def test_forgotten_session_stays_away_when_written(tree: ClaudeTree, store: TranscriptStore):
    forget(store, "one")

    tree.write("one", [f"{SECRET} again"])
    update(store)

    assert store.search(SECRET).hits == []
    assert find_traces(tree.state, SECRET) == []


def test_forgotten_session_is_kept_again(tree: ClaudeTree, store: TranscriptStore):
    forget(store, "one")
    (forgotten,) = store.keep.measure_status().forgotten
    assert (forgotten.store, forgotten.session_id) == ("claude-code", "one")

    store.keep.turn_on(["one"])
    update(store)

    assert [hit.session_id for hit in store.search(SECRET).hits] == ["one"]
    assert store.keep.measure_status().forgotten == []
    assert read_copy(store, "one") == tree.get_path("one").read_bytes()


def test_damaged_exclusions_bring_nothing_back(tree: ClaudeTree, store: TranscriptStore):
    forget(store, "one")
    update(store)
    store.close()
    (kept,) = tree.state.glob("kept-*.db")
    kept.write_bytes(b"garbage" * 2000)
    tree.write("three", [f"{SECRET} again"])

    with tree.open_store() as anew:
        with pytest.raises(StorageError, match="is damaged; restore a backup"):
            anew.index_pending()
        assert anew.search(SECRET).hits == []
        assert [row.id for row in anew.list_sessions().items] == ["two"]
        assert [hit.session_id for hit in anew.search("work").hits] == ["two"]
        assert "is damaged" in str(anew.problem)
        (coverage,) = anew.measure_coverage()
        assert coverage.problem == str(anew.problem)


@pytest.mark.requirement("transcripts:keep")
@pytest.mark.parametrize("content", [b"", b"\0" * 4096])
def test_emptied_exclusions_bring_nothing_back(tree, store, content):
    forget(store, "one")
    store.close()
    (kept,) = tree.state.glob("kept-*.db")
    for path in tree.state.glob("kept-*.db-*"):
        path.unlink()
    kept.write_bytes(content)
    with tree.open_store() as anew:
        with suppress(StorageError):
            index_all(anew)
        assert anew.get_session("one") is None
        assert anew.search(SECRET).hits == []
        assert anew.problem is not None
        assert kept.read_bytes() == content


def test_shared_sidecar_outlives_forgotten_session(tmp_path: Path):
    project = tmp_path / ".gemini/tmp/shop"
    (project / "chats").mkdir(parents=True)
    (project / ".project_root").write_text("/src/shop")
    for name in ("aaaaaaaa", "bbbbbbbb"):
        line = {"id": "m1", "type": "user", "content": f"work of {name}"}
        path = project / f"chats/session-2026-10-09T12-00-{name}.jsonl"
        path.write_text(json.dumps(line) + "\n")
    with TranscriptStore(tmp_path / "state", environ={"HOME": str(tmp_path)}) as store:
        store.keep.turn_on()
        update(store)
        shutil.rmtree(project)
        forget(store, "aaaaaaaa")
        store.rebuild()
        index_all(store)
        assert store.get_session("aaaaaaaa") is None
        assert store.get_session("bbbbbbbb").project == "/src/shop"
        forget(store, "bbbbbbbb")
    assert find_traces(tmp_path / "state", "/src/shop") == []


def test_store_comes_back_without_forgotten_session(store: TranscriptStore):
    forget(store, "one")
    forget(store, "claude-code")
    assert store.list_sessions().items == []
    with pytest.raises(NotFound, match="not one of the forgotten: claude-code, one"):
        store.keep.turn_on(["codex"])

    store.keep.turn_on(["claude-code"])
    update(store)

    assert [row.id for row in store.list_sessions().items] == ["two"]


def test_subagents_are_forgotten_with_their_session(tree: ClaudeTree, store: TranscriptStore):
    folder = tree.get_path("one").with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    agent = folder / "agent-a1.jsonl"
    shutil.copy(tree.get_path("one"), agent)
    update(store)
    plan = store.keep.plan_forget("one")
    assert len(plan.sessions) == 2

    store.keep.forget(plan.handle)
    shutil.copy(agent, folder / "agent-b2.jsonl")
    update(store)

    assert find_traces(tree.state, SECRET) == []
    store.keep.turn_on(["one"])
    update(store)
    assert len(store.list_children("one")) == 2


def test_whole_store_is_forgotten(tmp_path: Path):
    home, state = make_home(tmp_path / "person"), tmp_path / "state"
    with TranscriptStore(state, environ={"HOME": str(home)}) as store:
        store.keep.turn_on()
        update(store)
        total = len(store.list_sessions(limit=100).items)
        plan = store.keep.plan_forget("opencode")
        assert plan.is_whole_store

        store.keep.forget(plan.handle)
        update(store)

        rows = store.list_sessions(limit=100).items
        assert len(rows) == total - len(plan.sessions)
        assert "opencode" not in {row.source for row in rows}
        assert "opencode" not in store.keep.measure_status().stores
        assert {part.store: part.problem for part in store.measure_coverage()}["opencode"] is None
        store.keep.turn_on(["opencode"])
        update(store)
        assert len(store.list_sessions(limit=100).items) == total
        assert "opencode" in store.keep.measure_status().stores


def test_plan_names_copies_of_other_folders(tree: ClaudeTree, store: TranscriptStore):
    other = ClaudeTree(tree.home / "other")
    other.write("zzz", ["barracuda"])
    with TranscriptStore(tree.state, environ={"HOME": str(other.home)}) as elsewhere:
        plan = store.keep.plan_forget("claude-code")
        update(elsewhere)

    with pytest.raises(Changed, match="make a new plan"):
        store.keep.forget(plan.handle)
    plan = store.keep.plan_forget("claude-code")
    assert {row.id for row in plan.sessions} == {"one", "two"}
    assert plan.unlisted == ["zzz"]

    store.keep.forget(plan.handle)

    assert store.keep.measure_status().sessions == 0
    assert find_traces(tree.state, "barracuda") == []


def test_copies_of_other_folders_are_forgotten(tree: ClaudeTree, store: TranscriptStore):
    with TranscriptStore(tree.state, environ={"HOME": str(tree.home / "other")}) as elsewhere:
        index_all(elsewhere)
        plan = elsewhere.keep.plan_forget("claude-code")
        assert (plan.sessions, plan.unlisted) == ([], ["one", "two"])

        elsewhere.keep.forget(plan.handle)

        assert elsewhere.keep.measure_status().sessions == 0


def test_session_of_a_database_is_forgotten(tmp_path: Path):
    home, state = make_home(tmp_path / "person"), tmp_path / "state"
    with TranscriptStore(state, environ={"HOME": str(home)}) as store:
        store.keep.turn_on()
        update(store)
        row = next(row for row in store.list_sessions(limit=100).items if row.source == "openclaw")
        text = store.read_window(row.id).messages[0]["content"]

        forget(store, row.id)
        update(store)

        assert store.get_session(row.id) is None
        assert not {hit.session_id for hit in store.search(text).hits} & {row.id}


def test_plan_of_other_sessions_is_refused(tree: ClaudeTree, store: TranscriptStore):
    plan = store.keep.plan_forget("claude-code")
    tree.write("three", ["new"])

    with pytest.raises(Changed, match="make a new plan"):
        store.keep.forget(plan.handle)
    forget(store, "claude-code")
    with pytest.raises(NotFound, match="does not exist"):
        store.keep.forget(plan.handle + "x")
    with pytest.raises(NotFound):
        store.keep.plan_forget("claude-code")


READER = """
import sys
from session_core.transcripts.transcript_store import TranscriptStore
with TranscriptStore(sys.argv[1], environ={"HOME": sys.argv[2]}) as store:
    store.list_sessions()
    print("open", flush=True)
    sys.stdin.readline()
    print(len(store.search("swordfish").hits), flush=True)
"""


def test_running_process_forgets_too(tree: ClaudeTree, store: TranscriptStore):
    command = [sys.executable, "-c", READER, str(tree.state), str(tree.home)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        forget(store, "one")
        tree.write("one", [f"{SECRET} again"])
        output, _ = process.communicate("\n")

    assert output == "0\n"
    assert find_traces(tree.state, SECRET) == []


def test_kept_store_is_listed_without_folder(tree: ClaudeTree, tmp_path: Path):
    environ = {"HOME": str(tree.home), "MCP_SESSIONS_STATE": str(tmp_path / "states")}
    tree.write("one", ["first"])
    with TranscriptStore(environ=environ) as store:
        store.keep.turn_on()
        update(store)
        shutil.rmtree(tree.home / ".claude")
        assert list_transcript_stores(environ) == ["claude-code"]

        forget(store, "claude-code")

    assert list_transcript_stores(environ) == []


def test_killed_forgetting_beside_another_is_finished(tree: ClaudeTree, store: TranscriptStore):
    killed, clear = tree.open_store(), store._indexer.clear_index

    def forget_meanwhile() -> None:
        clear()
        index_all(killed)
        kill = mock.patch.object(
            killed.keep._forgetter, "finish_removal", side_effect=KeyboardInterrupt
        )
        with kill, suppress(KeyboardInterrupt):
            forget(killed, "two")

    meanwhile = mock.patch.object(store._indexer, "clear_index", forget_meanwhile)
    with closing(killed), meanwhile:
        forget(store, "one")

    update(store)
    assert store.keep._copies.unfinished == 0
    assert find_traces(tree.state, "nothing") == []


def test_open_copy_never_yields_another_session(tree: ClaudeTree, store: TranscriptStore):
    tree.get_path("two").unlink()
    update(store)
    source = store.open_raw_source("two")
    with tree.open_store() as other:
        forget(other, "one")
        forget(other, "two")
        # SQLite gives the new copies the ids of the removed ones.
        tree.write("three", ["another session"])
        tree.write("four", ["another session"])
        update(other)

    with pytest.raises(NotFound):
        b"".join(source.parts)

"""Transcripts that are damaged, huge or made to harm cost bounded work and hide no neighbour."""

from __future__ import annotations

import json
import os

import pytest

from session_core.transcripts import file_feed
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all
from tests.transcripts.trees import START, ClaudeTree, make_line

HOSTILE_LINES = {
    "deep": b'{"type":"user","message":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
    "binary": bytes(range(1, 10)) + b"\xff\xfe\n",
    "null": b"\x00" * 500 + b"\n",
    "surrogate": make_line("one", 50, "x").replace(b'"x"', b'"lone \\ud800 half"'),
    "nul text": make_line("one", 51, "a\x00b"),
    "number": b'{"type":"user","timestamp":1e999,"message":' + b"9" * 5000 + b"}\n",
    "wrong types": b'{"type":["user"],"uuid":{},"message":[[[]]],"timestamp":{"a":1}}\n',
    "bad roles": b'{"type":"user","uuid":"u","message":{"role":7,"content":{"text":[]}}}\n',
    "empty": b"\n\n \n",
    "scalar": b"17\n",
    "huge usage": make_line(
        "one", 53, "y", message={"role": "assistant", "usage": {"output_tokens": 10**30}}
    ),
}


@pytest.mark.parametrize("name", HOSTILE_LINES)
def test_hostile_line_hides_no_neighbour(tree: ClaudeTree, store: TranscriptStore, name: str):
    path = tree.write("one", ["before it"])
    with path.open("ab") as file:
        file.write(HOSTILE_LINES[name] + make_line("one", 2, "after it"))

    window = store.read_window("one")

    texts = [message["content"] for message in window.messages]
    assert texts[0] == "before it"
    assert texts[-1] == "after it"
    assert len(store.search("after it").hits) == 1
    assert store.list_sessions().items[0].id == "one"


def test_long_prefix_is_verified_by_idle_work(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_feed, "MAX_CHECKED_BYTES", 100)
    path = tree.write("one", ["first", "the key is swordfish", "third"])
    index_all(store)
    path.write_bytes(path.read_bytes().replace(b"swordfish", b"xxxxxxxxx"))
    tree.write("one", ["more"])
    os.utime(path, (START, START))  # a file that was written just now is never settled

    assert len(store.search("more").hits) == 1
    index_all(store)

    assert store.search("swordfish").hits == []
    assert store._index.read("SELECT is_unchecked FROM sources") == [(0,)]


def test_cyclic_parents_end(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", [])
    first, second = (
        json.loads(make_line("one", number, f"message {number}")) for number in range(2)
    )
    first["parentUuid"], second["parentUuid"] = second["uuid"], first["uuid"]
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, second)))

    assert len(store.read_window("one").messages) == 2


def test_path_that_is_not_unicode_is_skipped(tree: ClaudeTree, store: TranscriptStore):
    folder = os.fsencode(tree.projects / "-src-app")
    os.mkdir(folder)  # noqa: PTH102 -- bytes
    with open(folder + b"/bad\xff.jsonl", "wb") as file:  # noqa: PTH123 -- bytes
        file.write(make_line("bad", 0, "text"))

    assert store.list_sessions().items == []
    assert store.search("text").hits == []


def test_unwritable_index_answers_from_what_it_has(tree: ClaudeTree, store: TranscriptStore):
    tree.write("one", ["indexed word"])
    index_all(store)
    with tree.open_store() as other, other._index.open_transaction():
        store._index._writer.execute("PRAGMA busy_timeout=10")
        tree.write("one", ["later word"])
        hits = store.search("word", per="message").hits
        problem = store.problem

    assert [hit.snippet for hit in hits] == ["indexed word"]
    assert "being written" in str(problem)
    assert len(store.search("word", per="message").hits) == 2
    assert store.problem is None

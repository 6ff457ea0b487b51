"""Searches over a home and two agents: every match in one page, also during writes."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.thorough import take_share
from tests.transcripts.trees import START, ClaudeTree, format_time, make_line

pytestmark = pytest.mark.anyio

WORDS = ("apple", "pear", "plum", "cherry", "grape", "melon", "fig", "quince")
LIMITS = {"message": 47, "conversation": 5}
QUESTION = "what about apple quince melon"
MATCHES = 210
"""More matches in each store than one block has."""


def make_texts(dice: random.Random, count: int) -> list[str]:
    """Return texts of which most have the first word."""
    return [
        " ".join(["apple", *dice.choices(WORDS, k=dice.randrange(1, 30))][dice.randrange(2) :])
        for _ in range(count)
    ]


def pick_times(dice: random.Random, count: int) -> list[float]:
    """Return times of which many are equal and some are out of order."""
    times = sorted(START + dice.randrange(0, count // 3) for _ in range(count))
    for _ in range(count // 20):
        times[dice.randrange(count)] = START + dice.randrange(0, count // 3)
    return times


class Stores:
    """A home, Claude Code and Codex with random messages."""

    def __init__(self, db, seed: int) -> None:
        self.db = db
        self.dice = random.Random(seed)
        self.tree = ClaudeTree(Path.home())
        self.folder = Path.home() / ".codex/sessions/2026/10/09"
        self.folder.mkdir(parents=True)
        self.count = 0

    def fill(self, count: int) -> None:
        """Write the first messages of all stores."""
        for store in (self.add_home, self.add_claude, self.add_codex):
            texts, times = make_texts(self.dice, count), pick_times(self.dice, count)
            for text, at in zip(texts, times, strict=True):
                number = self.dice.randrange(12)
                store(number, text, at)
                self.count += "apple" in text.split()

    def add_home(self, number: int, text: str, at: float) -> None:
        """Append a message to a session of the home."""
        role = "user" if self.dice.randrange(2) else "assistant"
        create = {"source": "cli", "started_at": START}
        self.db.append_message(f"home{number}", role, text, timestamp=at, create=create)

    def add_claude(self, number: int, text: str, at: float) -> None:
        """Append a line to a session of Claude Code."""
        path = self.tree.get_path(f"claude{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        count = path.read_bytes().count(b"\n") if path.exists() else 0
        with path.open("ab") as file:
            file.write(make_line(path.stem, count, text, timestamp=format_time(at)))

    def add_codex(self, number: int, text: str, at: float) -> None:
        """Append a line to a rollout of Codex."""
        session = f"019a0000-0000-7000-8000-{number:012}"
        path = self.folder / f"rollout-2026-10-09T12-00-00-{session}.jsonl"
        content = [{"type": "input_text", "text": text}]
        message = {"type": "message", "role": "user", "content": content}
        lines = [("response_item", message)]
        if not path.exists():
            meta = {"id": session, "cwd": "/src/shop", "originator": "codex"}
            lines.insert(0, ("session_meta", meta))
        with path.open("a") as file:
            for kind, payload in lines:
                line = {"timestamp": format_time(at), "type": kind, "payload": payload}
                file.write(json.dumps(line) + "\n")

    def append(self, now: float) -> None:
        """Append a new message with the word to a session of each store."""
        for store in (self.add_home, self.add_claude, self.add_codex):
            store(self.dice.randrange(12), "apple written meanwhile", now)


@pytest.fixture(name="stores")
def _stores(db, request) -> Stores:
    stores = Stores(db, getattr(request, "param", 0))
    stores.fill(MATCHES)
    return stores


async def read_hits(call, limit, write=None, **arguments):
    """Return the hits of all pages, by store, session and message."""
    page = await call("sessions_search", limit=limit, **arguments)
    hits, lengths = list(page["hits"]), []
    while page["next_cursor"] is not None:
        lengths.append(len(page["next_cursor"]))
        if write is not None:
            write()
        page = await call("sessions_search", cursor=page["next_cursor"])
        hits += page["hits"]
    return [(hit["store"], hit["session_id"], hit["message_id"]) for hit in hits], lengths


def list_searches(*queries: str) -> list[dict[str, str]]:
    """Return each query in each order, for messages and for conversations."""
    return [
        {"query": query, "order": order, "per": per}
        for query in queries
        for order in ("relevance", "newest", "oldest")
        for per in ("message", "conversation")
    ]


@pytest.mark.requirement("stores:pages")
@pytest.mark.parametrize("client", ["auto"], indirect=True)
@pytest.mark.parametrize("search", take_share(list_searches("apple", QUESTION, "app"), 5))
async def test_pages_have_each_hit_once(stores, call, search):
    mode = "substring" if search["query"] == "app" else "words"
    whole, _ = await read_hits(call, 100, **search, mode=mode)
    paged, lengths = await read_hits(call, LIMITS[search["per"]], **search, mode=mode)
    assert len(set(paged)) == len(paged)
    assert set(paged) == set(whole)
    if search["order"] != "relevance":  # the age of a message counts from the first page
        assert paged == whole
    # The pages after the best hits of a question have more to remember.
    assert max(lengths, default=0) <= (145 if search["query"] == QUESTION else 120)
    if search["query"] == "apple":
        assert len(paged) == (stores.count if search["per"] == "message" else 36)


@pytest.mark.requirement("stores:pages")
@pytest.mark.parametrize("client", ["auto"], indirect=True)
@pytest.mark.parametrize("search", take_share(list_searches("apple", QUESTION), 4))
async def test_pages_ignore_what_comes_meanwhile(stores, call, search):
    def write() -> None:
        time.sleep(0.002)  # a message of the same millisecond may belong to the first page
        stores.append(time.time())

    whole, _ = await read_hits(call, 100, **search)
    paged, _ = await read_hits(call, LIMITS[search["per"]], write, **search)
    assert len(set(paged)) == len(paged)
    assert set(paged) == set(whole)


@pytest.mark.requirement("stores:lists")
@pytest.mark.parametrize("client", ["auto"], indirect=True)
async def test_list_pages_have_each_session_once(stores, call):
    await call("sessions_search", query="apple")  # indexes all, which changes counts
    for order in ("recent", "started", "size", "cost", "tokens"):
        whole = (await call("sessions_list", order=order, limit=100))["sessions"]
        page = await call("sessions_list", order=order, limit=5)
        paged = list(page["sessions"])
        while page["next_cursor"] is not None:
            assert len(page["next_cursor"]) <= 120
            stores.append(START + 1)  # an old message moves no session
            page = await call("sessions_list", cursor=page["next_cursor"])
            paged += page["sessions"]
        ids = [(row["store"], row["id"]) for row in paged]
        assert len(ids) == len(set(ids)) == 36, order
        if order in ("recent", "started"):
            assert ids == [(row["store"], row["id"]) for row in whole], order

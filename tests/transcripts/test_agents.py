"""A home folder with the stores of every agent: one list, one search, each message readable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from session_core import _sqlite3
from session_core.state.content import extract_plain_text
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import index_all, read_everything
from tests.transcripts.formats.reading import FIXTURES

CODEX_ID = "019a4000-0000-7000-8000-000000000001"
FILES = {
    "claude_code/session.jsonl": ".claude/projects/-home-ada-garden/11111111.jsonl",
    "claude_code/fork.jsonl": ".claude/projects/-home-ada-garden/22222222.jsonl",
    "codex/paginated.jsonl": f".codex/sessions/2026/11/03/rollout-2026-11-03T08-00-00-{CODEX_ID}"
    ".jsonl",
    "gemini/session.jsonl": ".gemini/tmp/garden/chats/session-2026-11-03T08-00-12345678.jsonl",
    "gemini/session.json": ".gemini/tmp/garden/chats/session-2025-11-03T08-00-87654321.json",
    "antigravity/transcript.jsonl": (
        ".gemini/antigravity/brain/c1/.system_generated/logs/transcript.jsonl"
    ),
    "qwen/session.jsonl": ".qwen/projects/-home-ada-garden/chats/33333333.jsonl",
    "copilot/events.jsonl": ".copilot/session-state/44444444/events.jsonl",
    "openclaw/session.jsonl": ".openclaw/agents/main/sessions/55555555.jsonl",
}
DATABASES = {
    "openclaw/agent.sql": ".openclaw/agents/main/agent/openclaw-agent.sqlite",
    "opencode/version2.sql": ".local/share/opencode/opencode.db",
}
STORES = {
    *("antigravity", "claude-code", "codex", "copilot"),
    *("gemini", "openclaw", "opencode", "qwen"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder with a store of each agent."""
    return make_home(tmp_path / "person")


def make_home(home: Path) -> Path:
    """Fill a home folder with a store of each agent."""
    for name, place in FILES.items():
        path = home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((FIXTURES / name).read_bytes())
    for name, place in DATABASES.items():
        path = home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(_sqlite3.connect(f"{path.as_uri()}?mode=rwc", busy_timeout_s=1)) as connection:
            connection.executescript((FIXTURES / name).read_text("utf-8"))
    return home


@pytest.fixture
def store(home: Path, tmp_path: Path) -> Iterator[TranscriptStore]:
    """Return a store over that home, indexed."""
    with TranscriptStore(tmp_path / "state", environ={"HOME": str(home)}) as store:
        index_all(store)
        yield store


def test_every_agent_is_listed(store: TranscriptStore):
    rows = store.list_sessions(limit=100).items
    coverage = store.measure_coverage()

    assert {row.source for row in rows} == STORES
    assert {item.store for item in coverage} == STORES
    assert {item.indexed_share for item in coverage} == {1.0}


def test_every_message_is_readable_and_found(store: TranscriptStore):
    for row in store.list_sessions(limit=100).items:
        window = store.read_window(row.id, limit=1000, view="full")
        assert len(window.messages) == row.messages
        for message in window.messages:
            assert store.get_message(row.id, message["id"]) == message
            text = extract_plain_text(message["content"])
            if text.isascii() and len(text.split()) > 2:
                words = f'"{text.split()[0]}"'
                hits = store.search(words, session=row.id, per="message", limit=500).hits
                copies = store.search(words, per="message", limit=500).hits
                ids = {hit.message_id for hit in (*hits, *copies)}
                assert message["id"] in ids or not words.strip('"').isalnum()


def test_stores_limit_what_is_served(home: Path, tmp_path: Path, store: TranscriptStore):
    environ = {"HOME": str(home)}
    with TranscriptStore(tmp_path / "state", stores=["codex"], environ=environ) as one:
        assert {row.source for row in one.list_sessions(limit=100).items} == {"codex"}
        assert {hit.source for hit in one.search("the", per="message").hits} <= {"codex"}


def test_nothing_of_any_agent_is_changed(home: Path, store: TranscriptStore):
    before = read_everything(home)

    store.list_sessions()
    store.search("roses")
    index_all(store)

    assert read_everything(home) == before


def test_cold_rollout_keeps_ids_and_messages(home: Path, store: TranscriptStore):
    path = home / FILES["codex/paginated.jsonl"]
    before = store.read_window(CODEX_ID, limit=500, view="full")

    cold = path.with_name(path.name + ".zst")
    cold.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    path.unlink()
    index_all(store)

    assert store.read_window(CODEX_ID, limit=500, view="full") == before

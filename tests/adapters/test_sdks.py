"""The adapters in the real SDKs, each in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.sdk_homes import name_home, name_homes
from tests.peers import ROOT, peer_python
from tests.postgres_server import get_address

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


EXTRAS = ("openai", "claude", "pydantic-ai", "adk")
KILLS = 20
"""A tenth of those of `python -m tests.adapters`."""


KINDS = ("files", "postgres")
OPERATIONS = {"files": 1000, "postgres": 200}


def find_homes(kind: str, tmp_path: Path) -> str:
    """Return the folder of the homes of a script, or their base on a PostgreSQL server."""
    return str(tmp_path) if kind == "files" else name_homes(get_address(), tmp_path.name)


def run_in_sdk(extra: str, kind: str, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the script of an SDK in an environment with that extra, and return its output."""
    name, homes = f"sdk_{extra.replace('-', '_')}", find_homes(kind, tmp_path)
    return run_script(extra, name, homes, str(tmp_path), *arguments)


def run_kills(extra: str, home: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill writers of an adapter, and return the killed writers and the stored texts."""
    return run_script(extra, "kill_writers", extra, home, str(kills), str(seed))


def run_script(extra: str, name: str, *arguments: str) -> dict[str, Any]:
    """Run a script in the environment of an SDK, and return the JSON that it prints."""
    script = ROOT / "tests" / "adapters" / f"{name}.py"
    command = [str(peer_python(f"sdk-{extra}")), str(script), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    results: dict[str, Any] = json.loads(process.stdout)
    return results


@pytest.mark.requirement("adapters:openai")
@pytest.mark.parametrize("kind", KINDS)
def test_openai_items_equal_those_of_sqlite_session(kind, tmp_path):
    results = run_in_sdk("openai", kind, tmp_path)
    assert results["ours"] == results["peer"]
    assert results["ours"]["is_session"] is True
    assert len(results["ours"]["items"]) == 8


@pytest.mark.requirement("adapters:claude")
@pytest.mark.parametrize("kind", KINDS)
def test_claude_store_meets_conformance_suite(kind, tmp_path):
    results = run_in_sdk("claude", kind, tmp_path)
    assert results == {
        "homes": 15,
        "unwritten main": None,
        "unwritten list": [],
        "loaded": True,
        "sdk list": ["5a9d0c1e-3f6b-4c67-9d1a-000000000001"],
        "sdk messages": 6,
        "rows": [["The ledger", "claude-agent-sdk", "/shop"]],
        "hits": 8,
        "compressed": True,
        "deleted": [None, None],
        "restored": [True, 3, ["subagents/agent-1"]],
    }


@pytest.mark.requirement("adapters:pydantic-ai")
@pytest.mark.parametrize("kind", KINDS)
def test_pydantic_store_equals_store_in_memory(kind, tmp_path):
    results = run_in_sdk("pydantic-ai", kind, tmp_path, str(OPERATIONS[kind]))
    counts = results.pop("random")
    assert sum(counts.values()) == OPERATIONS[kind]
    assert min(counts.values()) > OPERATIONS[kind] / 50
    assert results == {
        "foreign": "session 'tg' belongs to telegram, not to pydantic-ai; use another id",
        "wins": [1],
        "messages": 2,
        "hits": 3,
        "missing": None,
        "forked": 1,
        "restored": True,
    }


@pytest.mark.requirement("adapters:adk")
@pytest.mark.parametrize("kind", KINDS)
def test_adk_service_equals_sqlite_service(kind, tmp_path):
    results = run_in_sdk("adk", kind, tmp_path, str(OPERATIONS[kind]))
    counts = results.pop("random")
    assert sum(counts.values()) == OPERATIONS[kind]
    assert min(counts.values()) > OPERATIONS[kind] / 50
    assert results == {
        "texts": [1, 1, 1],
        "refused": "unknown arguments: db_path",
        "factory": True,
        "events": 6,
        "hits": True,
        "missing": None,
        "restored": True,
        "again": True,
    }


@pytest.mark.requirement("adapters:kills")
@pytest.mark.parametrize(
    ("kind", "extra"), [*(("files", extra) for extra in EXTRAS), ("postgres", "claude")]
)
def test_killed_writers_lose_nothing(kind, extra, tmp_path):
    home = name_home(find_homes(kind, tmp_path), "killed")
    results = run_kills(extra, home, KILLS, seed=7)
    assert results["kills"] == KILLS
    assert results["acknowledged"] >= KILLS
    assert results["integrity"] == []

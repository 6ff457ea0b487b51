"""The adapters in the real SDKs, each in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.peers import ROOT, peer_python

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


def run_in_sdk(extra: str, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the script of an SDK in an environment with that extra; return what it prints."""
    python = peer_python(f"sdk-{extra}")
    script = ROOT / "tests" / "adapters" / f"sdk_{extra.replace('-', '_')}.py"
    command = [str(python), str(script), str(tmp_path), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    results: dict[str, Any] = json.loads(process.stdout)
    return results


@pytest.mark.requirement("adapters:openai")
def test_openai_items_equal_those_of_sqlite_session(tmp_path):
    results = run_in_sdk("openai", tmp_path)
    assert results["ours"] == results["peer"]
    assert results["ours"]["is_session"] is True
    assert len(results["ours"]["items"]) == 8


@pytest.mark.requirement("adapters:claude")
def test_claude_store_meets_conformance_suite(tmp_path):
    results = run_in_sdk("claude", tmp_path)
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
def test_pydantic_store_equals_store_in_memory(tmp_path):
    results = run_in_sdk("pydantic-ai", tmp_path, "1000")
    counts = results.pop("random")
    assert sum(counts.values()) == 1000
    assert min(counts.values()) > 20
    assert results == {
        "wins": [1],
        "messages": 2,
        "hits": 3,
        "missing": None,
        "forked": 1,
        "restored": True,
    }


@pytest.mark.requirement("adapters:adk")
def test_adk_service_equals_sqlite_service(tmp_path):
    results = run_in_sdk("adk", tmp_path, "1000")
    counts = results.pop("random")
    assert sum(counts.values()) == 1000
    assert min(counts.values()) > 20
    assert results == {
        "factory": True,
        "events": 6,
        "hits": True,
        "missing": None,
        "restored": True,
        "again": True,
    }

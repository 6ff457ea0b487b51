"""The first minutes of a user who has transcripts and follows the README, with real clients.

By hand, since the clients are some hundred megabytes: README.md in `tests/` has the command.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers import ROOT
from tests.transcripts.real_clients.model_endpoint import ModelEndpoint, run_model_endpoint
from tests.transcripts.real_clients.runner import ClientRunner, find_program, format_prompt

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

DECISION = "We decided that the rain gauge reports in tenths of a millimetre."
QUESTION = "what did we decide about the rain gauge"

OPTIONS = ("-p", "--dangerously-skip-permissions")
_DAY = re.compile(rb"\b20\d\d-\d\d-\d\d(?=T\d\d:)")


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Install the clients before any test hides the folder of the user."""
    for name in ("claude", "codex"):
        find_program(name)


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with run_model_endpoint() as running:
        yield running


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)  # noqa: S607 -- any git
    return folder


@pytest.fixture
def run_step(tmp_path: Path, clone: Path) -> Callable[[str, str], str]:
    """Run a step of the user in a shell, in the clone; print its duration and its screen."""
    home = tmp_path / "user"
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    def run(title: str, line: str) -> str:
        began_at = time.monotonic()
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],  # noqa: S607 -- any shell
            env=environment,
            cwd=clone,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        print(f"== {title}: {time.monotonic() - began_at:.1f} s\n{result.stdout}{result.stderr}")
        assert result.returncode == 0
        return result.stdout

    return run


def write_transcripts(claude: ClientRunner, codex: ClientRunner) -> None:
    """Let both clients write a session, which then lies a week back."""
    claude.run(*OPTIONS, text="Which unit?\n" + format_prompt(DECISION))
    config = (
        'model = "model"\nmodel_provider = "loopback"\n[model_providers.loopback]\n'
        f'name = "loopback"\nbase_url = "{codex.url}/v1"\nenv_key = "OPENAI_API_KEY"\n'
        'wire_api = "responses"\n'
    )
    codex.write_file(".codex/config.toml", config)
    prompt = "Tides?\n" + format_prompt("They rise.")
    codex.run("exec", "--skip-git-repo-check", "--json", "-", text=prompt)
    last_week = dt.datetime.now(dt.timezone.utc).date() - dt.timedelta(days=7)
    for path in claude.home.rglob("*.jsonl"):
        path.write_bytes(_DAY.sub(last_week.isoformat().encode(), path.read_bytes()))
    for place in claude.home.iterdir():
        if place.name not in (".claude", ".codex"):
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def read_tool_results(endpoint: ModelEndpoint) -> str:
    """Return the results of tools that the client sent to the model."""
    blocks: list[Any] = []
    for _, request in endpoint.requests:
        for message in request.get("messages", []):
            content = message["content"]
            if isinstance(content, list):
                blocks += [block for block in content if block.get("type") == "tool_result"]
    return json.dumps(blocks)


def test_newcomer_asks_about_last_week(tmp_path, clone, run_step, endpoint):
    home, project = tmp_path / "user", tmp_path / "work" / "weather"
    path = os.pathsep.join([str(clone / ".venv" / "bin"), os.environ["PATH"]])
    variables = {"ANTHROPIC_BASE_URL": endpoint.url, "ANTHROPIC_API_KEY": "none", "PATH": path}
    claude = ClientRunner("claude", home, project, endpoint.url, variables)
    codex = ClientRunner("codex", home, project, endpoint.url, {"OPENAI_API_KEY": "none"})
    write_transcripts(claude, codex)

    began_at = time.monotonic()
    readme = (clone / "README.md").read_text(encoding="utf-8")
    install, *_ = re.findall(r"^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    screen = run_step("first command of the README", install)
    assert "claude-code" in screen
    assert "codex" in screen
    screen = run_step("stores", "script -qec .venv/bin/mcp-sessions /dev/null")
    assert "claude-code  1 session" in screen
    run_step("install", ".venv/bin/mcp-sessions install claude-code --yes")
    asked = {"query": QUESTION, "since": "14d"}
    step = time.monotonic()
    claude.run(
        *OPTIONS, text=format_prompt(("mcp__sessions__sessions_search", asked), "In tenths.")
    )
    print(f"== question: {time.monotonic() - step:.1f} s")
    print(f"== all: {time.monotonic() - began_at:.1f} s")
    assert DECISION in read_tool_results(endpoint)

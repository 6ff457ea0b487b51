"""Transcripts that real clients write with a scripted model on loopback.

They run by hand, since each client has some hundred megabytes. `tests/README.md` has the command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core.transcripts.formats import claude_code, codex, copilot, gemini, opencode, qwen
from tests.transcripts.formats.reading import list_unknown_types
from tests.transcripts.real_clients.model_endpoint import ModelEndpoint, run_model_endpoint
from tests.transcripts.real_clients.runner import ClientRunner, find_program, format_prompt
from tests.transcripts.real_clients.script import SUMMARY
from tests.transcripts.real_clients.stores import StoredSession, read_stores

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

SHELLS = {
    "claude": ("Bash", "command", {"description": "run"}),
    "codex": ("exec_command", "cmd", {}),
    "copilot": ("bash", "command", {"description": "run", "mode": "sync"}),
    "gemini": ("run_shell_command", "command", {"description": "run"}),
    "opencode": ("bash", "command", {"description": "run"}),
    "qwen": ("run_shell_command", "command", {"description": "run", "is_background": False}),
}
"""The tool of each client that runs a command, and its arguments."""

Shell = Callable[[str, str], tuple[str, dict[str, object]]]


@pytest.fixture(scope="session", autouse=True)
def programs() -> None:
    """Install the clients before any test hides the folder of the user."""
    for name in SHELLS:
        find_program(name)


@pytest.fixture
def endpoint() -> Iterator[ModelEndpoint]:
    with run_model_endpoint() as running:
        yield running


@pytest.fixture
def run(tmp_path: Path, endpoint: ModelEndpoint) -> Callable[..., ClientRunner]:
    """Return a runner of a client, whose home folder is empty."""

    def make(name: str, **environment: str) -> ClientRunner:
        home, project = tmp_path / "user", tmp_path / "work" / "the project"
        return ClientRunner(name, home, project, endpoint.url, environment)

    return make


def call_shell(name: str, command: str) -> tuple[str, dict[str, object]]:
    tool, argument, more = SHELLS[name]
    return tool, {argument: command, **more}


def find_root(sessions: dict[str, StoredSession]) -> StoredSession:
    """Return the session that is neither a fork nor a subagent."""
    (root,) = (session for session in sessions.values() if "link" not in session.facts)
    return root


def find_linked(sessions: dict[str, StoredSession], link: str) -> StoredSession:
    found = [session for session in sessions.values() if session.facts.get("link") == link]
    return found[0]


def check_first_run(session: StoredSession, client: ClientRunner) -> None:
    """Check the first run of each client against its prompts."""
    prompts = [message.text for message in session.messages if message.is_prompt]
    assert prompts[0].startswith("!think the plan")
    assert "Everything is listed." in session.list_texts("assistant")
    assert "the plan" in "".join(message.reasoning for message in session.messages)
    calls = [call for message in session.messages for call in message.tool_calls]
    assert (calls[0].name, "note.txt" in calls[0].arguments) == (SHELLS[client.name][0], True)
    (result, *_) = (m for m in session.messages if m.role == "tool")
    assert (result.tool_call_id, result.tool_name) == (calls[0].id, calls[0].name)
    assert "note.txt" in result.text
    assert session.facts["folder"] == str(client.project)
    assert session.facts["model"]
    assert session.facts["usage"].output_tokens >= 57


def check_compaction(session: StoredSession) -> None:
    """Check that a summary was added, and that nothing before it was lost."""
    assert any(record.is_compaction for record in session.records)
    (summary, *_) = (message for message in session.messages if message.is_summary)
    assert "a note was written" in summary.text
    assert "Everything is listed." in session.list_texts("assistant")


def check_all_known(sessions: dict[str, StoredSession]) -> None:
    unknown = [list_unknown_types(session.records) for session in sessions.values()]
    assert not any(unknown)


def first_prompt(name: str) -> str:
    listing = call_shell(name, "echo hello > note.txt; ls")
    return "!think the plan\n" + format_prompt(listing, "Everything is listed.")


def child_prompt(name: str) -> str:
    return format_prompt(call_shell(name, "echo in the child"), "The child is done.")


def failing_prompt(name: str) -> str:
    return format_prompt(call_shell(name, "exit 3"), "It failed.")


def check_failure(session: StoredSession) -> None:
    assert any(message.role == "tool" and message.is_error for message in session.messages)
    assert "It failed." in session.list_texts("assistant")


def test_claude_code_writes_known_transcripts(run, endpoint):
    client = run("claude", ANTHROPIC_BASE_URL=endpoint.url, ANTHROPIC_API_KEY="none")
    options = ("-p", "--dangerously-skip-permissions", "--output-format", "json")
    started = json.loads(client.run(*options, text=first_prompt("claude")))["session_id"]
    resume = (*options, "--resume", started)
    task = {"description": "Look around", "subagent_type": "general-purpose"}
    task["prompt"] = child_prompt("claude")
    client.run(*resume, text=format_prompt(("Task", task), "The parent is done."))
    client.run(*resume, text="/compact")
    client.run(*resume, text=failing_prompt("claude"))
    client.run(*resume, "--fork-session", text=format_prompt("In the fork."))

    sessions = read_stores(claude_code.FORMATS, client.home)
    session, child = sessions[started], find_linked(sessions, "delegate")
    check_first_run(session, client)
    check_compaction(session)
    check_failure(session)
    assert "The child is done." in child.list_texts("assistant")
    assert (child.facts["parent_id"], child.facts["title"]) == (started, "Look around")
    (fork,) = (s for name, s in sessions.items() if name not in (started, child.session_id))
    keys = {message.key for message in session.messages}
    own = [m.text for m in fork.messages if m.key not in keys and m.role == "assistant"]
    assert own == ["In the fork."]
    assert session.facts["usage"].cost_usd > 0
    check_all_known(sessions)


CODEX_CONFIG = """
model = "model"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.loopback]
name = "loopback"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
[analytics]
enabled = false
"""


def test_codex_writes_known_rollouts(run, endpoint):
    client = run("codex", OPENAI_API_KEY="none")
    client.write_file(".codex/config.toml", CODEX_CONFIG.format(url=endpoint.url))
    options = ("--skip-git-repo-check", "--json")
    printed = client.run("exec", *options, text=first_prompt("codex"))
    thread = json.loads(printed.splitlines()[0])["thread_id"]
    spawn = ("multi_agent_v1.spawn_agent", {"message": child_prompt("codex"), "fork_context": True})
    pause = call_shell("codex", "sleep 3")
    client.run("exec", "resume", thread, *options, "-", text=format_prompt(spawn, pause, "Parent."))
    client.run("exec", "resume", thread, *options, "-", text=failing_prompt("codex"))
    small = ("-c", "model_auto_compact_token_limit=500")
    client.run("exec", "resume", thread, *options, *small, "-", text=format_prompt("Compacted."))
    client.run("exec", "fork", thread, *options, "-", text=format_prompt("In the fork."))
    client.run("archive", find_linked(read_stores(codex.FORMATS, client.home), "branch").session_id)

    sessions = read_stores(codex.FORMATS, client.home)
    session, fork = sessions[thread], find_linked(sessions, "branch")
    child = find_linked(sessions, "delegate")
    check_first_run(session, client)
    check_compaction(session)
    check_failure(session)
    assert "Compacted." in session.list_texts("assistant")
    assert child.facts["parent_id"] == thread
    assert child.list_texts("assistant")[-1] == "The child is done."
    assert fork.list_texts("assistant") == ["In the fork."]
    assert (fork.facts["parent_id"], fork.facts["archived"]) == (thread, True)
    check_all_known(sessions)


def write_opencode_config(client: ClientRunner, window: int) -> None:
    model = {"name": "Model", "cost": {"input": 1, "output": 2}}
    model["limit"] = {"context": window, "output": 500}  # type: ignore[assignment]
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loopback",
        "options": {"baseURL": f"{client.url}/v1", "apiKey": "none"},
        "models": {"model": model},
    }
    config = {"autoupdate": False, "share": "disabled", "provider": {"loopback": provider}}
    config |= {"model": "loopback/model", "small_model": "loopback/model"}
    client.write_file(".config/opencode/opencode.json", json.dumps(config))


def test_opencode_writes_known_rows(run):
    client = run("opencode")
    write_opencode_config(client, 100_000)
    options = ("run", "--format", "json")
    printed = client.run(*options, text=first_prompt("opencode"))
    started = json.loads(printed.splitlines()[0])["sessionID"]
    task = {"description": "Look around", "subagent_type": "general"}
    task["prompt"] = child_prompt("opencode")
    failing = call_shell("opencode", "exit 3")
    resume = (*options, "--session", started)
    client.run(*resume, text=format_prompt(("task", task), failing, "It failed."))
    client.run(*resume, "--fork", text=format_prompt("In the fork."))
    write_opencode_config(client, 1_500)
    client.run(*resume, text=format_prompt("Before the compaction."))

    sessions = read_stores(opencode.FORMATS, client.home)
    session, child = sessions[started], find_linked(sessions, "delegate")
    check_first_run(session, client)
    check_failure(session)
    check_compaction(session)
    assert child.list_texts("assistant")[-1] == "The child is done."
    assert child.facts["parent_id"] == started
    (fork,) = (s for name, s in sessions.items() if name not in (started, child.session_id))
    keys = {message.key for message in session.messages}
    own = [m.text for m in fork.messages if m.key not in keys and m.role == "assistant"]
    assert own == ["In the fork."]
    assert session.facts["usage"].cost_usd > 0
    check_all_known(sessions)


def write_gemini_settings(client: ClientRunner, **model: float) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "model": model,
    }
    client.write_file(".gemini/settings.json", json.dumps(settings))


def test_gemini_writes_known_recordings(run, endpoint):
    client = run("gemini", GEMINI_API_KEY="none", GOOGLE_GEMINI_BASE_URL=endpoint.url)
    write_gemini_settings(client)
    options = ("--skip-trust", "--yolo", "-m", "gemini-2.5-pro")
    client.run(*options, "-p", first_prompt("gemini"))
    resume = (*options, "--resume", "latest", "-p")
    task = {"agent_name": "generalist", "prompt": child_prompt("gemini")}
    failing = ("read_file", {"file_path": "missing.txt"})
    client.run(*resume, format_prompt(("invoke_agent", task), failing, "It failed."))
    write_gemini_settings(client, compressionThreshold=0.0001)
    client.run(*resume, format_prompt("After the compaction."))

    sessions = read_stores(gemini.FORMATS, client.home)
    session, child = find_root(sessions), find_linked(sessions, "delegate")
    check_first_run(session, client)
    check_failure(session)
    check_compaction(session)
    assert "After the compaction." in session.list_texts("assistant")
    assert "The child is done." in child.list_texts("assistant")
    assert child.facts["parent_id"] == session.session_id
    assert re.fullmatch(r"[0-9a-f-]{36}", session.facts["resume_id"])
    check_all_known(sessions)


def test_qwen_code_writes_known_recordings(run, endpoint):
    client = run("qwen", OPENAI_API_KEY="none", OPENAI_BASE_URL=f"{endpoint.url}/v1")
    settings = {"security": {"auth": {"selectedType": "openai"}}, "model": {"name": "model"}}
    settings["privacy"] = {"usageStatisticsEnabled": False}
    client.write_file(".qwen/settings.json", json.dumps(settings))
    client.run("--yolo", "-p", first_prompt("qwen"))
    task = {"description": "Look around", "subagent_type": "general-purpose"}
    task["prompt"] = child_prompt("qwen")
    failing = call_shell("qwen", "exit 3")
    resume = ("--yolo", "--continue")
    client.run(*resume, "-p", format_prompt(("agent", task), failing, "It failed."))
    client.run(*resume, "-p", "/compress")
    client.run(*resume, "--fork-session", "-p", format_prompt("In the fork."))

    sessions = read_stores(qwen.FORMATS, client.home)
    session, fork = find_root(sessions), find_linked(sessions, "branch")
    child = find_linked(sessions, "delegate")
    check_first_run(session, client)
    check_failure(session)
    check_compaction(session)
    assert "The child is done." in child.list_texts("assistant")
    assert (child.facts["parent_id"], child.facts["title"]) == (session.session_id, "Look around")
    keys = {message.key for message in session.messages}
    own = [m.text for m in fork.messages if m.key not in keys and m.role == "assistant"]
    assert own == ["In the fork."]
    assert fork.facts["parent_id"] == session.session_id
    check_all_known(sessions)


def test_copilot_writes_known_events(run, endpoint):
    client = run(
        "copilot",
        COPILOT_PROVIDER_BASE_URL=f"{endpoint.url}/v1",
        COPILOT_PROVIDER_API_KEY="none",
        COPILOT_MODEL="gpt-4.1",
    )
    client.run("--allow-all-tools", "-p", first_prompt("copilot"))
    (started,) = read_stores(copilot.FORMATS, client.home)
    resume = ("--allow-all-tools", f"--resume={started}", "-p")
    task = {"agent_type": "general-purpose", "description": "Look around", "name": "looker"}
    task |= {"prompt": child_prompt("copilot"), "mode": "sync"}
    failing = call_shell("copilot", "exit 3")
    client.run(*resume, format_prompt(("task", task), failing, "It failed."))
    client.run(*resume, "/compact")

    sessions = read_stores(copilot.FORMATS, client.home)
    session = sessions[started]
    check_first_run(session, client)
    check_failure(session)
    check_compaction(session)
    assert "The child is done." in session.list_texts("assistant")
    assert SUMMARY in "".join(session.list_texts("system"))
    check_all_known(sessions)

"""A home with the CJK index, changed by the real command while another process writes to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from tests.cjk import INDEX, add_cjk_index, compile_tokenizer
from tests.cli.fork_server import CommandResult, ForkServer, build_environment
from tests.cli.homes import PastClock
from tests.homes import connect, make_hermes_database
from tests.interop.twins import shape
from tests.wire.conftest import start_raw_process

LOAD = "--load-extension"
OLD = 12

Run = Callable[..., CommandResult]


@pytest.fixture(params=(22, 30))
def home(request, tmp_path: Path) -> Path:
    """A Hermes home with old and new sessions, the index, and the extension of its tokenizer."""
    home = tmp_path / "home"
    clock = PastClock()
    make_hermes_database(home / "state.db", request.param)
    with SessionDB(home / "state.db", clock=clock) as db:
        for number in range(OLD):
            clock.days = 120 + number
            add_session(db, f"old_{number}", 40)
            db.end_session(f"old_{number}", "idle")
        clock.days = 60
        db.create_session("ghost", "tui")
        db.end_session("ghost", "tui_close")
        clock.days = 40
        add_session(db, "forgotten", 2)
        clock.days = 1
        add_session(db, "long", 60)
    add_cjk_index(home / "state.db")
    compile_tokenizer(home)
    return home


def add_session(db: SessionDB, name: str, messages: int) -> None:
    db.create_session(name, "cli")
    for number in range(messages):
        text = f"{name} looks at the chamois {number}, 羚羊 " + "and thinks it over again " * 20
        db.append_message(name, "assistant" if number % 2 else "user", text)


@pytest.fixture
def run(home: Path, forks: ForkServer) -> Run:
    """Run a command on the home as a script does, and return its result."""
    user = os.environ["HOME"]

    def run(*words: str, code: int | None = 0) -> CommandResult:
        result = forks.run(["--home", str(home), *words], build_environment(user), user)
        assert code is None or result.code == code, result.err + result.out
        return result

    return run


@pytest.fixture
def writer(home: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """Start a process that appends all the time. The returned call ends it and returns a report."""
    library = home / "lib" / "libfts5_cjk.so"
    command = [sys.executable, "-m", "tests.interop.cjk_writer", home / "state.db", library]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def end() -> dict[str, float]:
            output, _ = process.communicate(timeout=60)
            data: dict[str, float] = json.loads(output)
            return data

        yield end
        process.kill()


def rows(home: Path, table: str) -> list[Any]:
    """Return the rows of a table except those of the writer."""
    key = "id" if table == "sessions" else "session_id"
    with connect(home / "state.db", "ro") as connection:
        sql = f"SELECT * FROM {table} WHERE {key} <> 'live' ORDER BY id"  # noqa: S608 -- fixed names
        return connection.execute(sql).fetchall()


def indexed(home: Path) -> set[int]:
    """Return the messages in the CJK index, which any connection may read."""
    with connect(home / "state.db", "ro") as connection:
        return {row[0] for row in connection.execute(f"SELECT id FROM {INDEX}_docsize")}  # noqa: S608


def assert_nothing_lost(seen: dict[str, float]) -> None:
    assert seen["appended"] > 0
    assert {seen["stored"], seen["indexed"], seen["indexed_cjk"]} == {seen["appended"]}


@pytest.mark.requirement("homes:cjk-index")
def test_changes_without_extension_are_refused(home, run, writer, tmp_path):
    before, home_shape = (rows(home, "sessions"), rows(home, "messages")), shape(home)
    exported = tmp_path / "long.jsonl"
    run("export", "long", "--out", str(exported))
    exported.write_text(exported.read_text().replace('"long"', '"again"'))
    for words in (
        ("prune", "--yes"),
        ("prune", "all", "--plan-only"),
        ("prune", "--session", "old_0", "--yes"),
        ("compress", "long", "--yes"),
        ("import", str(exported), "--yes"),
    ):
        refused = run(*words, code=1)
        text = " ".join(refused.err.split())
        assert f"{INDEX}, which needs the tokenizer cjk_unicode61" in text
        assert LOAD in text
        assert "make the change in Hermes" in text
    assert (rows(home, "sessions"), rows(home, "messages")) == before
    assert json.loads(run("restore", "--json").out)["batches"] == []
    assert_nothing_lost(writer())
    assert shape(home) == home_shape


@pytest.mark.requirement("homes:cjk-index")
def test_verbs_without_index_work_without_extension(home, run, writer):
    home_shape = shape(home)
    assert "chamois" in run("search", "chamois").out
    assert "羚羊" in run("show", "long").out
    assert json.loads(run("list", "--json").out)["sessions"]
    run("edit", "long", "--title", "The cliff", "--yes")
    run("finalize", "abandoned", "--yes")
    run("prune", "ghosts", "--yes")
    run("prune", "index", "--yes")
    batches = json.loads(run("restore", "--json").out)["batches"]
    assert len(batches) == 3
    for batch in batches:
        run("restore", batch["batch"], "--yes")
    assert_nothing_lost(writer())
    assert shape(home) == home_shape


@pytest.mark.requirement("homes:cjk-index")
def test_doctor_and_stats_name_cjk_index(run):
    stats = json.loads(run("stats", "--json").out)
    (finding,) = [each for each in stats["findings"] if each["code"] == "blocked_index"]
    assert INDEX in finding["what"]
    assert "cjk_unicode61" in finding["what"]
    assert "unreadable" not in {each["code"] for each in stats["findings"]}
    checks = json.loads(run("doctor", "--json").out)["checks"]
    (check,) = [each for each in checks if each.get("code") == "blocked_index"]
    assert INDEX in check["says"]
    assert LOAD in check["next"]


@pytest.mark.requirement("homes:cjk-index")
def test_changes_with_extension_lose_nothing(home, run, writer, tmp_path):
    before, home_shape = (rows(home, "sessions"), rows(home, "messages")), shape(home)
    in_index = indexed(home)
    pruned = json.loads(run("prune", LOAD, "--yes", "--json").out)
    assert pruned["removed"] == OLD
    assert indexed(home).isdisjoint(row[0] for row in before[1] if row[1].startswith("old_"))
    compressed = json.loads(
        run("compress", "long", "--keep-last", "8", LOAD, "--yes", "--json").out
    )
    assert compressed["tokens_after"] < compressed["tokens_before"]
    for batch in (compressed["batch"], pruned["batch"]):
        refused = run("restore", batch, "--yes", code=1)
        assert "cjk_unicode61" in refused.err
        run("restore", batch, LOAD, "--yes")
    assert (rows(home, "sessions"), rows(home, "messages")) == before
    assert in_index <= indexed(home)

    exported = tmp_path / "old.jsonl"
    run("export", "old_3", "--out", str(exported))
    run("prune", "--session", "old_3", LOAD, "--yes")
    run("import", str(exported), LOAD, "--yes")
    assert rows(home, "messages") == before[1]
    run("prune", "index", LOAD, "--yes")
    assert_nothing_lost(writer())
    assert shape(home) == home_shape


@pytest.mark.requirement("homes:cjk-index")
def test_suggested_commands_repeat_extension_option(run):
    planned = run("prune", LOAD, "--plan-only").out
    assert planned.rstrip().endswith(LOAD)
    output = run(*planned.split("\n")[-2].split()[1:][2:], "--yes").out
    assert "restore" in output
    assert output.rstrip().endswith(LOAD)


@pytest.mark.requirement("homes:cjk-index")
@pytest.mark.parametrize("spoil", ["file", "folder"])
def test_world_writable_extension_is_not_loaded(home, run, spoil):
    library = home / "lib" / "libfts5_cjk.so"
    (library if spoil == "file" else library.parent).chmod(0o777)
    before = rows(home, "sessions")
    refused = run("prune", LOAD, "--yes", code=1)
    assert "can be written by other users" in " ".join(refused.err.split())
    assert rows(home, "sessions") == before


@pytest.mark.requirement("homes:cjk-index")
def test_extension_of_other_system_is_not_loaded(home, run):
    (home / "lib" / "libfts5_cjk.so").write_bytes(b"\x7fELF")
    refused = run("prune", LOAD, "--yes", code=1)
    assert "cannot be loaded" in " ".join(refused.err.split())


@pytest.mark.requirement("homes:cjk-index")
def test_server_loads_extension_on_request(home, writer):
    with start_raw_process(home, "--confirm=never") as server:
        server.begin()
        answer = prune(server)
        assert answer["isError"]
        assert LOAD in answer["content"][0]["text"]
        assert "blocked_index" in findings(server)
        server.end()
    with start_raw_process(home, "--confirm=never", LOAD) as server:
        server.begin()
        assert "blocked_index" not in findings(server)
        plan = prune(server)["structuredContent"]["plan"]
        assert prune(server, plan=plan)["structuredContent"]["removed"] == OLD
        server.end()
    assert_nothing_lost(writer())


def prune(server: Any, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = server.ask("tools/call", name="sessions_prune", arguments=arguments)
    return result["result"]


def findings(server: Any) -> set[str]:
    answer = server.ask("tools/call", name="sessions_stats", arguments={})["result"]
    return {finding["code"] for finding in answer["structuredContent"]["findings"]}

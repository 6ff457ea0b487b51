"""Commands on a home of the real Hermes: they read the same data, and Hermes continues to work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fork_server import CommandResult, ForkServer, build_environment
from tests.homes import connect
from tests.interop.hermes import Hermes
from tests.interop.maintained_homes import KINDS, REMOVING_KINDS, maker, snapshot

VERSION = "0.19.0"


class Verbs:
    """Runs commands on one home as a script does."""

    def __init__(self, forks: ForkServer, home: Path) -> None:
        self._forks = forks
        self.home = home

    def run(self, *arguments: str) -> CommandResult:
        """Run a command."""
        user = os.environ["HOME"]
        return self._forks.run(
            ["--home", str(self.home), *arguments], build_environment(user), user
        )

    def answer(self, *arguments: str) -> dict[str, Any]:
        """Run a command that succeeds, and return its JSON."""
        result = self.run(*arguments, "--json")
        assert result.code == 0, result.err
        data: dict[str, Any] = json.loads(result.out)
        return data

    def theirs(self) -> dict[str, dict[str, Any]]:
        """Return every session as Hermes reads it, after its integrity check."""
        with Hermes(VERSION, self.home) as hermes:
            assert hermes.sql("PRAGMA integrity_check") == [["ok"]]
            assert hermes.call("list_sessions_rich", limit=1000)
            ids = [row[0] for row in hermes.sql("SELECT id FROM sessions")]
            rows: dict[str, dict[str, Any]] = hermes.each("get_session", ids)
        return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return maker(tmp_path_factory.mktemp("made"))(VERSION, damaged=False)


@pytest.fixture
def verbs(made, forks, tmp_path):
    return Verbs(forks, snapshot(made.home, tmp_path / "home"))


def list_gone(made, kind):
    """Return the sessions that a kind removes."""
    kinds = REMOVING_KINDS if kind == "all" else {kind}.intersection(REMOVING_KINDS)
    return {item for one in kinds for ids in made.chosen(one).values() for item in ids}


@pytest.mark.requirement("verbs:hermes")
@pytest.mark.parametrize("kind", KINDS)
def test_verb_removes_stated_sessions_and_restores(made, verbs, kind):
    before = verbs.theirs()
    planned = verbs.answer(KINDS[kind], kind, "--plan-only")
    if kind != "all":
        assert planned["count"] == len(made.chosen(kind))
    answer = verbs.answer(KINDS[kind], "--plan", planned["plan"], "--yes")
    assert (answer["outcome"], answer["skipped"], answer["remaining"]) == ("applied", [], 0)
    after = verbs.theirs()
    assert before.keys() - after.keys() == list_gone(made, kind)
    assert verbs.answer("restore", answer["batch"], "--yes")["outcome"] == "applied"
    assert verbs.theirs() == before


@pytest.mark.requirement("verbs:hermes")
def test_hermes_reads_edits_and_finalized_session(verbs):
    session = next(
        name for name, row in verbs.theirs().items() if row["ended_at"] is None and not row["title"]
    )
    edited = verbs.answer("edit", session, "--title", "Named by a verb", "--archive", "--yes")
    row = verbs.theirs()[session]
    assert (row["title"], row["archived"]) == ("Named by a verb", 1)
    verbs.answer("restore", edited["batch"], "--yes")
    assert verbs.theirs()[session]["title"] is None


@pytest.mark.requirement("verbs:hermes")
def test_hermes_reads_compression_and_undo(verbs):
    with Hermes(VERSION, verbs.home) as hermes:
        hermes.call("create_session", "long_one", "cli")
        for number in range(80):
            text = f"ticket ABC-{number}: port {8000 + number}. " + "well, " * 200
            hermes.call("append_message", "long_one", "user", text)
            hermes.call("append_message", "long_one", "assistant", "noted")
        before = hermes.call("get_messages", "long_one")
    answer = verbs.answer("compress", "long_one", "--keep-last", "9", "--yes")
    with Hermes(VERSION, verbs.home) as hermes:
        now = hermes.call("get_messages", answer["session_id"])
    assert len(now) < len(before)
    verbs.answer("restore", answer["batch"], "--yes")
    with Hermes(VERSION, verbs.home) as hermes:
        assert hermes.call("get_messages", "long_one") == before


@pytest.mark.requirement("verbs:hermes")
def test_hermes_reads_home_after_vacuum(made, verbs):
    before = verbs.theirs()
    with connect(verbs.home / "state.db") as connection:  # so that a rewrite frees something
        connection.execute("CREATE TABLE filler AS SELECT zeroblob(4000000) AS data")
        connection.execute("DROP TABLE filler")
    merged = verbs.answer("prune", "index", "--yes")
    assert merged["bytes"]["returned_to_disk"] > 3_000_000
    answer = verbs.answer("prune", "ghosts", "--yes")
    emptied = verbs.answer("trash", "empty", "--older-than", "0", "--yes")
    assert emptied["removed"] == 1
    assert before.keys() - verbs.theirs().keys() == list_gone(made, "ghosts")
    assert verbs.run("restore", answer["batch"]).code == 4
    assert [line["what"] for line in verbs.answer("log")["lines"]] == [
        "prune trash",
        "prune ghosts",
        "prune index",
    ]


def test_read_verbs_match_hermes(verbs, tmp_path):
    with Hermes(VERSION, verbs.home) as hermes:
        theirs = {row[0] for row in hermes.sql("SELECT id FROM sessions")}
        listed = verbs.answer("list", "--status", "all", "--limit", "1000")["sessions"]
        assert listed
        assert {item["id"] for item in listed} <= theirs
        for each in listed[:20]:
            answer = hermes.call("get_messages", each["id"])
            shown = verbs.answer("show", each["id"], "--limit", "1000")["messages"]
            assert [one["id"] for one in shown] == [one["id"] for one in answer]
    assert verbs.answer("stats")["sessions"]["total"] == len(theirs)
    written = verbs.answer("export", "--out", str(tmp_path / "all.jsonl"))
    lines = (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()
    assert written["sessions"] == len(lines)
    assert {json.loads(line)["id"] for line in lines} == theirs


def test_routes_verb_matches_hermes(made, verbs):
    with Hermes(VERSION, verbs.home) as hermes:
        rows = hermes.sql("SELECT session_key, entry_json FROM gateway_routing")
    stored = {key: json.loads(entry)["session_id"] for key, entry in rows if key[0] != "_"}
    shown = verbs.answer("routes", "--limit", "1000")["routes"]
    assert stored
    assert stored.items() <= {item["session_key"]: item["session_id"] for item in shown}.items()


def test_doctor_accepts_hermes_home(verbs):
    result = verbs.run("doctor", "--json")
    checks = json.loads(result.out)["checks"]
    assert [check for check in checks if check["state"] == "failure"] == []
    assert {"home", "sessions", "gateway"} <= {each["about"] for each in checks}


def test_hermes_messages_are_found_immediately(verbs):
    with Hermes(VERSION, verbs.home) as hermes:
        hermes.call("create_session", "said_now", "cli")
        hermes.call("append_message", "said_now", "user", "the heliotrope ledger is signed")
        hits = verbs.answer("search", "heliotrope", "ledger")["hits"]
    assert [hit["session_id"] for hit in hits] == ["said_now"]

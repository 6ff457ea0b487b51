"""The verb log: lines of the audit log."""

from __future__ import annotations

import pytest

from tests.cli.homes import FRESH_SESSION_ID, build_home


@pytest.mark.requirement("verbs:trash")
def test_log_shows_author_and_change(answer, run):
    answer("prune", "ghosts", "--yes")
    answer("edit", FRESH_SESSION_ID, "--pin", "--yes")
    first, second = answer("log")["lines"]
    assert (first["what"], first["who"]) == ("edit", "mcp-sessions (terminal)")
    assert (second["what"], second["counts"]["removed"]) == ("prune ghosts", 25)
    assert len(answer("log", "--limit", "1")["lines"]) == 1
    assert "removed 25" in run("log").out


@pytest.mark.requirement("verbs:trash")
def test_log_names_store_of_each_change(answer, run, home):
    build_home(home / "profiles" / "work", ghosts=2)
    answer("prune", "ghosts", "--yes")
    answer("prune", "ghosts", "--yes", "--store", "hermes:work")
    for verb, key in (
        (("restore",), "batches"),
        (("trash", "list"), "batches"),
        (("log",), "lines"),
    ):
        found = answer(*verb, "--all-profiles")[key]
        assert {item["store"] for item in found} == {"hermes", "hermes:work"}
        assert "work" in run(*verb, "--all-profiles").out

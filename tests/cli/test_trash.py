"""The verb trash: list and empty."""

from __future__ import annotations

import pytest


@pytest.mark.requirement("verbs:trash")
def test_trash_empty_deletes_batches(person, answer, run):
    result = answer("prune", "ghosts", "--yes")
    (batch,) = answer("trash", "list")["batches"]
    assert batch["batch"] == result["batch"]
    assert batch["bytes"] > 0
    assert "Nothing to do." in run("trash", "empty").out
    with person("trash", "empty", "--older-than", "0") as seen:
        seen.until("Permanently delete 1 batch? [y/N]")
        assert "this has no undo" in " ".join(seen.screen.split())
        seen.type("y\n")
        assert seen.end() == 0
    assert answer("trash", "list")["batches"] == []
    assert run("restore", result["batch"]).code == 4


def test_trash_empty_takes_single_batch(answer, run):
    kept = answer("prune", "ghosts", "--yes")["batch"]
    emptied = answer("prune", "--yes")["batch"]
    shown = run("trash", "empty", emptied, "--yes").out
    assert "Permanently delete 1 batch" in shown
    assert "has no undo" in " ".join(shown.split())
    assert [batch["batch"] for batch in answer("trash", "list")["batches"]] == [kept]
    assert run("restore", kept, "--yes").code == 0
    restored = answer("trash", "list")["batches"][0]
    assert (restored["batch"], restored["bytes"], restored["undone"]) == (kept, 0, True)
    assert "was restored" in " ".join(run("trash", "empty", kept).out.split())
    assert run("trash", "empty", "b-nothing").code == 3
    assert run("trash", "empty", kept, "--older-than", "0").code == 2

"""The verbs that plan, change and undo: the examples of their help, and no write for a look."""

from __future__ import annotations

import shlex

import pytest


@pytest.mark.requirement("verbs:trash")
def test_reading_verbs_write_no_file(run, home, tmp_path):
    def files():  # a reader of a log is recorded in its shared memory
        paths = (path for path in home.rglob("*") if path.suffix != ".db-shm")
        return {path: path.stat().st_mtime_ns for path in paths}

    before = files()
    for verb in (("restore",), ("trash", "list"), ("log",)):
        assert run(*verb).code == 0
    assert files() == before
    assert not list((tmp_path / "user").iterdir())


@pytest.mark.requirement("verbs:help")
@pytest.mark.parametrize(
    "verb", ["prune", "finalize", "compress", "edit", "restore", "trash list", "trash empty", "log"]
)
def test_help_examples_are_parsed(run, verb, tmp_path):
    (tmp_path / "user" / "mine.md").write_text("Ports were decided.")
    examples = run(*verb.split(), "--help").out.partition("examples:")[2]
    lines = [line.strip() for line in examples.splitlines() if "mcp-sessions " in line]
    assert lines
    assert max(map(len, examples.splitlines())) < 80
    for line in lines:
        words = line.partition("mcp-sessions ")[2].partition("   ")[0].partition(" <")[0]
        result = run(*shlex.split(words))
        # No person is there to agree, and the named plan and batch do not exist.
        assert result.code in (0, 5) or (result.code == 3 and "23456789" in line), (
            line,
            result.err,
        )

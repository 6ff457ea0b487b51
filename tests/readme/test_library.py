"""The examples of the README and of the library page run as printed."""

from __future__ import annotations

import os
import re
from importlib import metadata

import pytest

from session_core.hooks import GROUP
from tests.cli.fork_server import get_fork_server
from tests.readme.parts import README, ROOT, STRICT

SAID = "\n".join(
    path.read_text(encoding="utf-8") for path in (README, ROOT / "session_core" / "README.md")
)

PRINTS = {
    "An agent of thirty lines": [
        "hello! (2 messages so far)",
        "again! (4 messages so far)",
        "over: telegram new_session",
        "Session reset",
        "hello! (2 messages so far)",
    ],
    "Lifecycle": ["back in the first session: True", "interrupted: []"],
    "Compression with undo": ["UndoResult(session_id='long', restored="],
    "Maintenance: check, plan, apply, restore": [
        "old_sessions 1",
        "-> prune sessions",
        "('old', ",
        "removed 1 skipped ()",
        "back 1 where is the ferry?",
    ],
}
"""The expected output of the example below each heading, in order."""


def _find_blocks(language):
    """Return the code blocks of a language by heading."""
    sections = re.split(r"^## (.+)$", SAID, flags=re.MULTILINE)[1:]
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return {
        f"{heading} {number}" if number else heading: block
        for heading, section in zip(sections[::2], sections[1::2], strict=True)
        for number, block in enumerate(fence.findall(section))
    }


def _run_example(code, folder):
    result = get_fork_server().run([], os.environ, folder, script=STRICT + code)
    assert (result.code, result.err) == (0, "")
    return result.out


def test_every_readme_example_is_covered():
    assert set(_find_blocks("python")) == set(PRINTS)


@pytest.mark.requirement("project:library")
@pytest.mark.parametrize("heading", PRINTS)
def test_readme_example_runs_twice(tmp_path, heading):
    example = _run_example(_find_blocks("python")[heading], tmp_path)
    place = 0
    for expected in PRINTS[heading]:
        place = example.index(expected, place) + len(expected)
    _run_example(_find_blocks("python")[heading], tmp_path)


@pytest.mark.requirement("project:library")
@pytest.mark.parametrize("heading", [heading for heading in PRINTS if "thirty" in heading])
def test_thirty_line_example_has_thirty_lines(heading):
    lines = _find_blocks("python")[heading].splitlines()
    assert len([line for line in lines if line.strip()]) <= 30


def test_plugin_example_uses_entry_point_group():
    (block,) = _find_blocks("toml").values()
    assert len(block.splitlines()) == 4
    assert f"entry-points.{GROUP}." in block


@pytest.mark.requirement("project:library")
def test_install_commands_name_existing_extras():
    to_try, to_test = _find_blocks("sh").values()
    assert to_try.strip().endswith(".venv/bin/mcp-sessions demo")
    assert metadata.entry_points(group="console_scripts", name="mcp-sessions")
    assert "--editable '.[dev]'" in to_test
    assert to_test.strip().endswith("-m pytest -n 2")
    needed = metadata.requires("mcp-sessions") or []
    assert any(re.match(r"pytest\b(?!-).*extra == .dev", one) for one in needed)

"""What the README says of the code is what the code says, and what it points to is there."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.readme import parts, picture
from tests.readme.parts import README, ROOT

SAID = README.read_text(encoding="utf-8")
PROMISES = (ROOT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
AGAIN = "run `python -m tests.readme`, and look at what it changed"


@pytest.mark.requirement("project:readme")
def test_the_tables_are_what_the_code_says():
    assert parts.render_page(SAID) == SAID, AGAIN


@pytest.mark.requirement("project:readme")
def test_readme_has_the_table_of_tools():
    assert parts.list_part_names(SAID) == {"tools"}


def test_readme_fits_on_two_screens():
    assert len(SAID.splitlines()) <= 100


@pytest.mark.requirement("project:readme")
def test_a_table_that_was_changed_by_hand_is_noticed():
    assert parts.render_page(SAID.replace("| `sessions_list` |", "| `sessions_lists` |")) == SAID


@pytest.mark.requirement("project:readme")
def test_the_picture_is_what_the_command_prints():
    assert picture.PICTURE_PATH.read_text(encoding="utf-8") == picture.draw_picture(), AGAIN
    assert f"]({picture.PICTURE_PATH.relative_to(ROOT).as_posix()})" in SAID
    assert picture.COMMAND in SAID


LINKS = sorted(set(re.findall(r"\]\(([^)#:]+)\)", SAID)))


@pytest.mark.requirement("project:readme")
@pytest.mark.parametrize("link", LINKS)
def test_what_is_linked_is_there(link):
    assert (ROOT / link).exists()


def _promised():
    """Return the file and name of each test on the page of promises."""
    return re.findall(r"`(tests/\S+\.py)::(test_\w+)`", PROMISES)


@pytest.mark.requirement("project:readme")
@pytest.mark.parametrize(("file", "name"), _promised(), ids=lambda each: each)
def test_a_promise_names_a_test_that_is_there(file, name):
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.requirement("project:readme")
def test_each_promise_has_a_test():
    lines = PROMISES.splitlines()
    rows = [line for line in lines if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) >= 8
    assert [row for row in rows if "::test_" not in row] == []


def test_the_command_that_writes_them_changes_nothing_that_is_right(tmp_path):
    before = README.read_bytes(), picture.PICTURE_PATH.read_bytes()
    subprocess.run([sys.executable, "-m", "tests.readme"], cwd=ROOT, check=True)
    assert (README.read_bytes(), picture.PICTURE_PATH.read_bytes()) == before

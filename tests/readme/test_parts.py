"""The README matches the code, and its links lead to existing files."""

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
def test_generated_parts_match_code():
    assert parts.render_page(SAID) == SAID, AGAIN


@pytest.mark.requirement("project:readme")
def test_readme_has_the_table_of_tools():
    assert parts.list_part_names(SAID) == {"tools"}


def test_readme_fits_on_two_screens():
    assert len(SAID.splitlines()) <= 100


@pytest.mark.requirement("project:readme")
def test_manual_change_of_part_is_detected():
    assert parts.render_page(SAID.replace("| `sessions_list` |", "| `sessions_lists` |")) == SAID


@pytest.mark.requirement("project:readme")
def test_picture_matches_command_output():
    assert picture.PICTURE_PATH.read_text(encoding="utf-8") == picture.draw_picture(), AGAIN
    assert f"]({picture.PICTURE_PATH.relative_to(ROOT).as_posix()})" in SAID
    assert picture.COMMAND in SAID


LINKS = sorted(set(re.findall(r"\]\(([^)#:]+)\)", SAID)))


@pytest.mark.requirement("project:readme")
@pytest.mark.parametrize("link", LINKS)
def test_links_lead_to_existing_files(link):
    assert (ROOT / link).exists()


def _read_promises():
    """Return the file and name of each test on the page of promises."""
    return re.findall(r"`(tests/\S+\.py)::(test_\w+)`", PROMISES)


@pytest.mark.requirement("project:readme")
@pytest.mark.parametrize(("file", "name"), _read_promises(), ids=lambda each: each)
def test_promise_names_existing_tests(file, name):
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.requirement("project:readme")
def test_every_promise_has_test():
    lines = PROMISES.splitlines()
    rows = [line for line in lines if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) >= 8
    assert [row for row in rows if "::test_" not in row] == []


def test_writing_current_parts_changes_no_file(tmp_path):
    before = README.read_bytes(), picture.PICTURE_PATH.read_bytes()
    subprocess.run([sys.executable, "-m", "tests.readme"], cwd=ROOT, check=True)
    assert (README.read_bytes(), picture.PICTURE_PATH.read_bytes()) == before

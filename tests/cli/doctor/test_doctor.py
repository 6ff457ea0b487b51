"""The verb `doctor`: exit codes, screens and interrupts."""

from __future__ import annotations

import re

import pytest

from tests.cli.command_user import (
    CTRL_C,
    STYLE,
    WIDTHS,
    find_processes,
    find_wide_lines,
    strip_style,
)
from tests.cli.doctor.conftest import NO_TOKEN, read_tree, write_client_configuration, write_program


@pytest.mark.requirement("terminal:doctor")
def test_doctor_advises_on_missing_home(look, user):
    code, found = look()
    assert code == 3
    assert (found["sessions"][0]["state"], found["clients"][0]["state"]) == ("warning",) * 2
    assert "start the agent once" in found["sessions"][0]["next"]
    assert found["clients"][0]["next"] == "mcp-sessions install"
    (shaken,) = found["handshake"]
    assert (shaken["state"], shaken["tools"]) == ("ok", 11)
    assert shaken["seconds"] > 0
    assert read_tree(user) == {}


@pytest.mark.requirement("terminal:doctor")
def test_failed_check_has_next_step(look, sick, user):
    write_client_configuration(user, "cursor", "/nowhere/mcp-sessions", "serve")
    (user / ".claude.json").write_text('{"mcpServers": {')
    code, found = look("--home", str(sick), **NO_TOKEN)
    assert code == 1
    wrong = [item for some in found.values() for item in some if item["state"] != "ok"]
    assert {"sessions", "claude-code", "handshake", "state folder"} <= {
        each["about"] for each in wrong
    }
    assert [each for each in wrong if not each.get("next")] == []


def test_interrupted_doctor_leaves_no_process(screen, user):
    write_client_configuration(user, "cursor", *write_program(user, "hangs", "sleep 987"))
    with screen("--timeout", "60") as seen:
        seen.until("other clients")
        seen.type(CTRL_C)
        assert seen.end() == 130
    assert find_processes(str(user)) == []


def test_unknown_store_exits_as_unknown_id(run, user):
    result = run("--store", "work")
    assert (result.code, result.out) == (3, "")


@pytest.mark.parametrize("width", WIDTHS)
def test_doctor_lines_fit_terminal(screen, sick, user, width):
    write_client_configuration(user, "cursor", "/nowhere/mcp-sessions", "serve")
    with screen("--home", str(sick), columns=width) as seen:
        assert seen.end() == 1
    assert find_wide_lines(seen.seen, width) == []
    assert STYLE.search(seen.seen)
    text = strip_style(seen.seen)
    assert "\x1b" not in text
    assert re.search(r"^✔ ok +home ", text, re.MULTILINE)
    assert re.search(r"^✘ failure +handshake ", text, re.MULTILINE)
    assert re.search(
        r"^! warning +sessions .*\n( .*\n)* +-> mcp-sessions prune ghosts", text, re.MULTILINE
    )
    assert text.rstrip().endswith("warnings.")


def test_doctor_has_no_style_in_pipe(run):
    result = run()
    assert (result.code, result.err) == (3, "")  # there is no home
    assert "\x1b" not in result.out


def test_doctor_help_has_examples(run):
    assert "mcp-sessions doctor --json" in run("--help").out.partition("examples:")[2]

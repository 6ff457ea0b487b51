"""The verb `import`: preview, confirmation, undo, and files that change."""

from __future__ import annotations

import json
import shlex

import pytest
from rich.cells import cell_len

from session_core import SessionDB
from tests.cli.command_user import CTRL_C, CommandUser, strip_style


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    return CommandUser(forks, tmp_path, tmp_path / "home")


@pytest.fixture(name="file")
def _file(person):
    """A file of five lines: three sessions, one with an unknown parent, and two invalid lines."""
    said = [{"id": at, "role": "user", "content": f"said {at}", "timestamp": 5.0} for at in (1, 2)]
    lines = [
        {"id": "one", "source": "cli", "started_at": 1.0, "title": "The plan", "messages": said},
        {"id": "two", "source": "cli", "started_at": 2.0, "messages": []},
        {"id": "kept", "source": "cli", "started_at": 2.0, "messages": []},
        {"id": "far", "source": "cli", "started_at": 2.0, "parent_session_id": "tip"},
    ]
    path = person.folder / "some.jsonl"
    path.write_text("\n".join([*map(json.dumps, lines), "no json"]) + "\n")
    return path


@pytest.fixture(name="there")
def _there(person):
    """A user with a home of two sessions and a file to import."""
    there = CommandUser(person.forks, person.folder, person.folder / "there")
    with SessionDB(there.home / "state.db") as db:
        for name in ("kept", "tip"):
            db.append_message(name, "user", "hello", create={"source": "cli"})
    return there


def list_sessions(home):
    with SessionDB(home / "state.db", read_only=True) as db:
        return {each.id for each in db.admin.list_inventory()}


@pytest.mark.requirement("reports:carrying")
@pytest.mark.parametrize("columns", [60, 80, 140])
def test_import_asks_after_preview(there, file, columns):
    with there.at(columns, "import", file.name) as terminal:
        output = strip_style(terminal.until("[y/N]"))
        terminal.type("n\n")
        code = terminal.end()
    assert code == 5
    assert [line for line in output.splitlines() if cell_len(line) > columns] == []
    text = " ".join(output.split())
    for words in ("3 sessions with 2 messages", "The plan", "line 5", "it exists already"):
        assert words in text
    assert "the session exists and is not part of this file" in text
    assert list_sessions(there.home) == {"kept", "tip"}


@pytest.mark.requirement("reports:carrying")
def test_import_is_undone_by_the_printed_command(there, file):
    with there.at(80, "import", file.name) as terminal:
        terminal.until("[y/N]")
        terminal.type("y\n")
        code, seen = terminal.end(), terminal.seen
    assert code == 6  # a line of the file is broken
    assert list_sessions(there.home) == {"kept", "tip", "one", "two", "far"}
    undo = _parse_restore_command(seen)
    assert "import" in there.run("restore").out
    with there.at(80, *undo) as terminal:
        shown = " ".join(strip_style(terminal.until("[y/N]")).split())
        terminal.type("y\n")
        code, seen = terminal.end(), terminal.seen
    assert "Undo an import by removing 3 conversations" in shown
    assert "Can be undone for 30 days" in shown
    assert (code, list_sessions(there.home)) == (0, {"kept", "tip"})
    assert "Done: 3 removed." in strip_style(seen)
    result = there.run(*_parse_restore_command(seen), "--yes")
    assert (result.code, list_sessions(there.home)) == (0, {"kept", "tip", "one", "two", "far"})


def test_undo_of_import_reports_what_stays(there, file):
    batch = json.loads(there.run("import", file.name, "--yes", "--json").out)["batch"]
    with SessionDB(there.home / "state.db") as db:
        db.append_message("one", "user", "and then")
    shown = " ".join(there.run("restore", batch, "--plan-only").out.split())
    assert "removing 2 conversations" in shown
    assert "1 it was used since the import" in shown
    result = there.run("restore", batch, "--yes", "--json")
    answer = json.loads(result.out)
    assert (result.code, answer["restored"], answer["protected"][0]["count"]) == (0, 2, 1)
    assert list_sessions(there.home) == {"kept", "tip", "one"}
    nothing = " ".join(there.run("restore", batch).out.split())
    assert "Nothing to do." in nothing
    assert "used since the import and stay: one" in nothing


def test_import_names_the_chat_state_it_drops(there):
    chat = {"session_key": "agent:main:telegram:dm:7", "handoff_state": "pending"}
    said = {"id": "a", "source": "telegram", "started_at": 1.0, **chat}
    (there.folder / "chat.jsonl").write_text(json.dumps(said))
    words = "Routes, chats and hand-offs are not imported; left out: "
    names = "session_key (1), handoff_state (1)."
    look = " ".join(there.run("import", "chat.jsonl", "--plan-only").out.split())
    assert words + names in look
    text = " ".join(there.run("import", "chat.jsonl", "--yes").out.split())
    assert words + names in text
    assert "agent:main" not in look + text


def _parse_restore_command(seen):
    """Return the arguments of the printed undo command."""
    (line,) = (line for line in strip_style(seen).splitlines() if " restore b-" in line)
    return shlex.split(line)[1:]


@pytest.mark.requirement("reports:carrying")
def test_import_without_terminal_needs_yes(there, file):
    result = there.run("import", file.name)
    assert (result.code, list_sessions(there.home)) == (5, {"kept", "tip"})
    assert (
        "there is no terminal to ask at; pass --yes to confirm; nothing was changed" in result.err
    )
    result = there.run("import", file.name, "--yes", "--json")
    answer = json.loads(result.out)
    assert (result.code, answer["outcome"], answer["messages"]) == (6, "applied", 2)
    assert set(answer["ids"]) == {"one", "two", "far"}


def test_import_of_unreadable_file_fails(there):
    (there.folder / "garbage.jsonl").write_text("garbage\n")
    result = there.run("import", "garbage.jsonl", "--yes")
    assert (result.code, list_sessions(there.home)) == (1, {"kept", "tip"})


def test_import_plan_only_changes_no_data(there, file):
    result = there.run("import", file.name, "--plan-only", "--json")
    answer = json.loads(result.out)
    assert (result.code, answer["outcome"]) == (0, "planned")
    assert [item["id"] for item in answer["items"]] == ["one", "two", "far"]
    assert (answer["sessions"], answer["ids"]) == (0, [])
    assert list_sessions(there.home) == {"kept", "tip"}


def test_import_limit_sets_preview_length(there, file):
    shown = there.run("import", file.name, "--dry-run", "--limit", "1").out
    assert "one" in shown
    assert "and 2 more; raise --limit to show them" in shown
    assert list_sessions(there.home) == {"kept", "tip"}


@pytest.mark.requirement("reports:carrying")
def test_import_refuses_file_changed_since_preview(there, file):
    with there.at(80, "import", file.name) as terminal:
        terminal.until("[y/N]")
        file.write_text(file.read_text() + "\n")
        terminal.type("y\n")
        code, seen = terminal.end(), terminal.seen
    assert (code, list_sessions(there.home)) == (4, {"kept", "tip"})
    assert "changed after it was read" in " ".join(seen.split())


@pytest.mark.requirement("reports:carrying")
def test_ctrl_c_at_question_imports_no_session(there, file):
    with there.at(80, "import", file.name) as terminal:
        terminal.until("[y/N]")
        terminal.type(CTRL_C)
        code, seen = terminal.end(), terminal.seen
    assert (code, "Stopped; nothing was changed." in seen) == (130, True)
    assert list_sessions(there.home) == {"kept", "tip"}


def test_import_creates_home(person, file):
    result = person.run("import", file.name, "--yes", "--home", str(person.folder / "new"))
    assert result.code == 6
    assert list_sessions(person.folder / "new") == {"one", "two", "kept", "far"}

"""The verb `export`: the written files, and an equal import."""

from __future__ import annotations

import json

import pytest

from mcp_serve.cli import sample_home
from session_core import SessionDB
from tests.cli.command_user import CommandUser
from tests.maintenance.transfer_homes import differences, rows


@pytest.fixture(name="home", scope="module")
def _home(tmp_path_factory):
    """A home with a lineage, archived and compressed sessions."""
    home = tmp_path_factory.mktemp("home")
    clock = sample_home.SampleClock()
    with SessionDB(home / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
        db.append_message("root", "user", "the first part", create={"source": "cron"})
        db.archive_and_compact("root", [{"role": "user", "content": "a summary"}])
        db.end_session("root", "compression")
        db.create_session("tip", "cron", parent_session_id="root")
        db.append_message("tip", "user", "and \x1b]0;x\x07 on \u202e")
        db.append_message("kept", "user", "in the archive", create={"source": "cron"})
        db.set_session_archived("kept", archived=True)
    return home


@pytest.fixture(name="person")
def _person(forks, tmp_path, home):
    return CommandUser(forks, tmp_path, home)


def parse_session_ids(text):
    return [json.loads(line)["id"] for line in text.splitlines()]


def export_sessions(person, *arguments):
    result = person.run("export", *arguments)
    assert (result.code, result.err) == (0, "")
    return parse_session_ids(result.out)


@pytest.mark.requirement("reports:carrying")
def test_exported_sessions_import_equal(person, home):
    assert person.run("export", "--out", "all.jsonl").code == 0
    other = person.folder / "other"
    result = person.run("import", "all.jsonl", "--yes", "--home", str(other))
    assert (result.code, result.err) == (0, "")
    assert differences(rows(home / "state.db"), rows(other / "state.db")) == []


@pytest.mark.requirement("reports:carrying")
def test_export_without_filter_takes_every_session(person):
    everything = export_sessions(person)
    assert {"root", "tip", "kept", sample_home.LONG_SESSION_ID} <= set(everything)
    assert export_sessions(person, "tip") == ["root", "tip"]
    assert export_sessions(person, "--source", "cron") == ["kept", "root", "tip"]
    assert export_sessions(person, "--source", "cron", "--status", "archived") == ["kept"]
    assert export_sessions(person, "tip", "kept", "--source", "telegram") == []
    assert export_sessions(person, "--title", "Schema change", "--min-messages", "9") == [
        sample_home.LONG_SESSION_ID
    ]
    assert export_sessions(person, "--older-than", "9000") == []


def test_markdown_export_includes_compressed_messages(person):
    result = person.run("export", "tip", "--format", "md")
    assert "the first part" in result.out
    assert "· compacted" in result.out


def test_folder_export_writes_file_per_conversation(person):
    result = person.run("export", "--source", "cron", "--format", "md", "--out", "new/notes/")
    assert result.code == 0
    folder = person.folder / "new" / "notes"
    assert {path.name for path in folder.iterdir()} == {"root.md", "kept.md"}
    again = person.run("export", "--source", "cron", "--format", "md", "--out", "new/notes")
    assert (again.code, again.err.count("was not overwritten")) == (6, 2)


def test_export_keeps_existing_file(person):
    (person.folder / "mine").write_text("mine")
    result = person.run("export", "--out", "mine")
    assert (result.code, (person.folder / "mine").read_text()) == (1, "mine")


def test_export_reports_result_as_json(person):
    result = person.run("export", "tip", "--out", "tip.jsonl", "--json")
    size = (person.folder / "tip.jsonl").stat().st_size
    assert json.loads(result.out) == {
        "sessions": 2,
        "messages": 3,
        "bytes": size,
        "gone": [],
        "changed": [],
        "there": [],
    }


def test_export_at_terminal_needs_out(person):
    code, seen = person.sees(80, "export", "tip")
    assert code == 2
    assert "name a file with --out" in seen
    code, seen = person.sees(80, "export", "tip", "--out", "tip.jsonl")
    assert code == 0
    assert "Wrote 2 sessions" in seen


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("export", "nobody"), 3, "`mcp-sessions list`"),
        (("export", "--since", "soon"), 2, "such as '7d'"),
        (("export", "--title", "x" * 3000), 2, "--title must have at most"),
        (("export", "--json"), 2, "--out"),
        (("export", "tip", "--raw"), 2, "--raw is for sessions of other agents"),
        (("export", "tip", "--raw", "--format", "md"), 2, "--format"),
        (("export", "--out", ""), 2, "must not be empty"),
        (("export", "--format", "pdf"), 2, "--format"),
        (("export", "--out", "nowhere/file"), 1, "nowhere"),
        (("import", "nothing.jsonl"), 2, "file not found: nothing.jsonl"),
        (("import",), 2, "FILE"),
        (("import", "x", "--all-profiles"), 2, "file not found: x"),
    ],
)
def test_error_is_reported_by_line_and_code(person, arguments, code, says):
    result = person.run(*arguments)
    assert result.code == code
    assert says in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("option", ["--source", "--project"])
def test_export_of_unknown_value_writes_nothing(person, option):
    result = person.run("export", option, "nowhere", "--out", "none.jsonl")
    assert (result.code, "nowhere" in result.err) == (2, True)
    assert not (person.folder / "none.jsonl").exists()

"""Exports of whole sessions as JSON Lines and Markdown, however long they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.maintenance.transfer.exporter import ExportRequest, ExportResult
from session_core.types import SessionFilter
from tests.homes import connect
from tests.maintenance.transfer_homes import Place, place

CALLS = [{"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}]
PARTS = [
    {"type": "text", "text": "what is on it"},
    {"type": "image_url", "image_url": {"url": "x"}},
]


@pytest.fixture(params=["own", 22], ids=str)
def home(home_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A home with a conversation of two sessions, its delegate, and another session."""
    with place(home_path, request.param) as made:
        db = made.db
        db.create_session("root", "cli", cwd="/srv/app", started_at=1.7e9)
        db.append_message("root", "user", PARTS, timestamp=1.7e9)
        db.append_message("root", "assistant", "", tool_calls=CALLS, timestamp=1.7e9 + 1)
        db.append_message("root", "tool", "x" * 3000, tool_call_id="c", tool_name="read")
        db.append_message("root", "user", "taken back")
        db.append_message("root", "assistant", "# Done\n```\n# a comment\n```")
        db.rewind_to_message("root", 4)
        db.archive_and_compact("root", [{"role": "user", "content": "a summary"}])
        db.end_session("root", "compression")
        db.create_session("helper", "cli", parent_session_id="root",
                          model_config={"_delegate_from": "root"})  # fmt: skip
        db.append_message("helper", "user", "help")
        db.create_session("tip", "cli", parent_session_id="root")
        db.set_session_title("tip", "The `plan`")
        db.append_message("tip", "user", "on we go")
        db.create_session("other", "telegram")
        db.append_message("other", "user", "elsewhere")
        yield made


def export_lines(home: Place, *sessions: str, **more: Any) -> list[dict[str, Any]]:
    parts: list[bytes] = []
    home.exporting.write_sessions(parts.append, ExportRequest(sessions or None, **more))
    return [json.loads(line) for line in b"".join(parts).splitlines()]


def export_markdown(home: Place, *sessions: str) -> str:
    parts: list[bytes] = []
    home.exporting.write_sessions(
        parts.append, ExportRequest(sessions or None, form="markdown", whole=False)
    )
    return b"".join(parts).decode()


@pytest.mark.requirement("maintenance:export")
@pytest.mark.parametrize("session", ["root", "tip"])
def test_export_writes_root_then_delegates(home: Place, session: str):
    assert [line["id"] for line in export_lines(home, session)] == ["root", "helper", "tip"]


def test_export_without_whole_writes_single_session(home: Place):
    assert [line["id"] for line in export_lines(home, "tip", whole=False)] == ["tip"]


def test_export_without_ids_writes_all(home: Place):
    assert {line["id"] for line in export_lines(home)} == {"root", "helper", "tip", "other"}


def test_export_ignores_duplicate_ids(home: Place):
    assert [line["id"] for line in export_lines(home, "other", "other")] == ["other"]


@pytest.mark.requirement("maintenance:export")
def test_line_has_all_columns_and_flags(home: Place):
    root = export_lines(home, "root")[0]
    assert root.keys() >= home.db.get_session("root").keys()
    assert [(item["role"], item["active"], item["compacted"]) for item in root["messages"]] == [
        ("user", 0, 1),
        ("assistant", 0, 1),
        ("tool", 0, 1),
        ("user", 0, 0),
        ("assistant", 0, 0),
        ("user", 1, 0),
    ]
    assert root["messages"][0]["content"] == PARTS
    assert root["messages"][1]["tool_calls"] == CALLS
    assert list(root)[-1] == "messages"


def test_export_includes_usage_excludes_locks(home: Place):
    home.db.update_token_counts("other", input_tokens=10, model="m", api_call_count=1)
    home.db.try_acquire_compression_lock("other", "somebody")
    carried = export_lines(home, "other")[0]["mcp_sessions"]
    assert [item["table"] for item in carried["tables"]] == ["session_model_usage"]


@pytest.mark.requirement("maintenance:export")
def test_long_session_is_written_in_parts(home: Place):
    home.db.append_messages("other", [{"role": "user", "content": "y" * 1000}] * 5000)
    sizes: list[int] = []
    result = home.exporting.write_sessions(
        lambda part: sizes.append(len(part)), ExportRequest(["other"])
    )
    assert (result.sessions, result.messages, result.bytes) == (1, 5001, sum(sizes))
    assert max(sizes) < 2_500_000 < sum(sizes)


def test_export_ignores_concurrent_append(home: Place):
    def write(part: bytes) -> None:
        if part.startswith(b'{"id"'):
            home.db.append_message("other", "user", "later")
        parts.append(part)

    parts: list[bytes] = []
    result = home.exporting.write_sessions(write, ExportRequest(["other"]))
    assert (result.messages, result.changed) == (1, ())
    assert b"later" not in b"".join(parts)


@pytest.mark.requirement("maintenance:export")
def test_export_reports_concurrent_rewind(home: Place):
    (said,) = home.db.get_messages("other")

    def write(part: bytes) -> None:
        if part.startswith(b'{"id":"other"'):
            home.db.rewind_to_message("other", said["id"])

    assert home.exporting.write_sessions(write, ExportRequest(["other"])).changed == ("other",)


def test_export_reports_concurrent_deletion(home: Place):
    def write(part: bytes) -> None:
        if part.startswith(b'{"id":"root"'):
            home.db.delete_session("tip")

    assert home.exporting.write_sessions(write, ExportRequest(["root"])).gone == ("tip",)


@pytest.mark.requirement("maintenance:export")
def test_export_file_is_complete_and_private(home: Place, tmp_path: Path):
    path = tmp_path / "out.jsonl"
    result = home.exporting.write_file(path)
    assert path.stat().st_size == result.bytes
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(Conflict, match="exists already"):
        home.exporting.write_file(path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".export")] == []


def test_export_keeps_file_created_concurrently(
    home: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, look = tmp_path / "out.jsonl", home.db.rows.read_session_images

    def looking(session_id: str) -> Any:
        path.write_text("mine")
        return look(session_id)

    monkeypatch.setattr(home.db.rows, "read_session_images", looking)
    with pytest.raises(Conflict, match="exists already"):
        home.exporting.write_file(path)
    assert path.read_text() == "mine"


def test_export_line_is_strict_json(home: Place):
    with connect(home.path) as connection:
        connection.execute("UPDATE messages SET timestamp = 9e999 WHERE session_id = 'other'")
    parts: list[bytes] = []
    home.exporting.write_sessions(parts.append, ExportRequest(["other"]))
    data = json.loads(b"".join(parts), parse_constant=pytest.fail)
    assert data["messages"][0]["timestamp"] == {"$real": "inf"}


def test_unknown_session_and_form_raise(home: Place, tmp_path: Path):
    with pytest.raises(NotFound):
        home.exporting.write_file(tmp_path / "out", ExportRequest(["none"]))
    with pytest.raises(InvalidInput, match="form must be one of"):
        home.exporting.write_file(tmp_path / "out", ExportRequest(form="html"))  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_export_is_in_audit_log(home: Place):
    export_lines(home, "other")
    (line,) = home.ledger.list_audit_entries().items
    assert (line.what, line.client) == ("export", "test")
    assert (line.counts["sessions"], line.counts["messages"]) == (1, 1)


@pytest.mark.requirement("maintenance:export")
def test_markdown_shows_role_text_and_time(home: Place):
    text = export_markdown(home, "root")
    assert text.startswith("# root\n\n- session: root\n- source: cli\n- project: /srv/app\n")
    assert "\n## user · 2023-11-14 22:13:20 UTC · compacted\n\nwhat is on it\n[image]\n" in text
    assert "- calls `read(a=1)`" in text
    assert "· taken back\n\ntaken back\n" in text
    assert text.rstrip().endswith("a summary")


def test_markdown_shortens_long_tool_result(home: Place):
    text = export_markdown(home, "root")
    assert "## tool read · " in text
    assert "3,000 characters" in text
    assert "x" * 1000 not in text


def test_markdown_escapes_headings_outside_code(home: Place):
    assert "\\# Done\n```\n# a comment\n```" in export_markdown(home, "root")


def test_markdown_renders_broken_rows(home: Place):
    with connect(home.path) as connection:
        connection.execute("UPDATE sessions SET started_at = 'soon' WHERE id = 'other'")
        connection.execute(
            "UPDATE messages SET content = CAST(x'ff41' AS TEXT), timestamp = 1e300"
            " WHERE session_id = 'other'"
        )
    text = export_markdown(home, "other")
    assert "\ufffdA" in text
    assert "at an unknown time" in text


# -- which of them, and a folder with one file each ----------------------------------------


@pytest.mark.requirement("maintenance:export-choice")
def test_filter_selects_conversations_by_tip(home: Place):
    assert [
        line["id"] for line in export_lines(home, where=SessionFilter(source=("telegram",)))
    ] == ["other"]
    titled = export_lines(home, where=SessionFilter(title_like="plan"))
    assert [item["id"] for item in titled] == ["root", "helper", "tip"]


@pytest.mark.requirement("maintenance:export-choice")
def test_filter_applies_to_named_sessions(home: Place):
    where = SessionFilter(source=("telegram",))
    assert [line["id"] for line in export_lines(home, "tip", "other", where=where)] == ["other"]


@pytest.mark.requirement("maintenance:export-choice")
def test_archived_sessions_are_exported_without_filter(home: Place):
    home.db.set_session_archived("other", archived=True)
    assert "other" in {line["id"] for line in export_lines(home)}
    assert "other" not in {line["id"] for line in export_lines(home, where=SessionFilter())}
    everything = export_lines(home, where=SessionFilter(status="all"))
    assert everything == export_lines(home)


@pytest.mark.requirement("maintenance:export-choice")
def test_folder_export_writes_file_per_conversation(home: Place, tmp_path: Path):
    folder = tmp_path / "notes"
    folder.mkdir()
    reports: list[tuple[int, int]] = []
    result = home.exporting.write_folder(
        folder, ExportRequest(progress=lambda *at: reports.append(at))
    )
    assert {path.name for path in folder.iterdir()} == {"root.jsonl", "other.jsonl"}
    lines = (folder / "root.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["root", "helper", "tip"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert (result.sessions, result.there, reports) == (4, (), [(at, 4) for at in range(4)])


@pytest.mark.requirement("maintenance:export-choice")
def test_folder_export_keeps_existing_files(home: Place, tmp_path: Path):
    (tmp_path / "root.md").write_text("mine")
    (tmp_path / "other.md").symlink_to(tmp_path / "nowhere")
    result = home.exporting.write_folder(tmp_path, ExportRequest(form="markdown"))
    assert result == ExportResult(0, 0, 0, there=("root.md", "other.md"))
    assert (tmp_path / "root.md").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.requirement("maintenance:export-choice")
@pytest.mark.parametrize("name", ["../up", "a/b", "tele:1", "x" * 300, "日" * 99, "..", "a\x00"])
def test_folder_export_uses_safe_names(home: Place, tmp_path: Path, name: str):
    folder = tmp_path / "folder"
    folder.mkdir()
    home.db.append_message(name, "user", "hello", create={"source": "cli"})
    home.exporting.write_folder(folder, ExportRequest([name]))
    (made,) = folder.iterdir()
    assert json.loads(made.read_text("utf-8"))["id"] == name
    assert [path for path in tmp_path.iterdir() if path.name == "up.jsonl"] == []


def test_folder_export_skips_deleted_conversation(home: Place, tmp_path: Path):
    def delete(result: int, _total: int) -> None:
        if result == 0:
            home.db.delete_session("other")

    result = home.exporting.write_folder(
        tmp_path, ExportRequest(["root", "other"], progress=delete)
    )
    assert result.gone == ("other",)
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["root.jsonl"]

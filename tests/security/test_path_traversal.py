"""Path traversal: arguments name rows or records, never files. Links lead nowhere."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from mcp import MCPError

from tests.thorough import take_share

pytestmark = pytest.mark.anyio

OUTSIDE = "what stands outside of the home"

NAMES = (
    "../outside.txt",
    "../../outside.txt",
    "..",
    ".",
    "/etc/passwd",
    "%2e%2e%2foutside.txt",
    "..%2foutside.txt",
    "..\\outside.txt",
    "C:\\Windows\\win.ini",
    "\\\\host\\share",
    "outside.txt\x00.jsonl",
    "file:///etc/passwd",
    "~/outside.txt",
    "$HOME/outside.txt",
    "*",
    "?",
    "[a-z]*",
    "s1/../s1",
    "CON",
    "a" * 400,
)
EVERY = pytest.mark.parametrize("name", take_share(NAMES, 3), ids=range(len(NAMES)))


@pytest.fixture(autouse=True)
def _outside(db, home_path, tmp_path):
    db.append_message("s1", "user", "hello", create={"source": "cli", "cwd": "/srv/shop"})
    db.append_message("s2", "user", "hello", create={"source": "cli"})
    for folder in (tmp_path, tmp_path / "user", home_path):
        (folder / "outside.txt").write_text(OUTSIDE)


def list_files(tmp_path):
    """Return the existing files except the auxiliary files of SQLite."""
    result = (path for path in tmp_path.rglob("*") if path.is_file())
    return {path for path in result if not path.name.endswith(("-wal", "-shm"))}


@pytest.mark.requirement("security:paths")
@EVERY
async def test_path_arguments_open_no_file(client, refused, tmp_path, name):
    before = list_files(tmp_path)
    for tool, arguments in (
        ("sessions_read", {"session": name}),
        ("sessions_search", {"query": "hello", "session": name}),
        ("events_wait", {"session": name, "timeout_s": 0}),
        ("sessions_list", {"store": name[:200]}),
        ("sessions_stats", {"store": name[:200]}),
        ("sessions_list", {"cursor": name}),
        ("sessions_edit", {"sessions": [name], "title": "x"}),
        ("sessions_finalize", {"sessions": [name]}),
        ("sessions_finalize", {"plan": name[:100]}),
        ("sessions_compress", {"session": name}),
        ("sessions_compress", {"plan": name[:100], "summary": "x"}),
        ("sessions_prune", {"sessions": [name]}),
        ("sessions_prune", {"plan": name[:100]}),
        ("sessions_restore", {"batch": name[:100]}),
        ("sessions_restore", {"plan": name[:100]}),
    ):
        text = await refused(tool, **arguments)
        assert OUTSIDE not in text
        assert "defect" not in text, (tool, arguments)
    new = {path for path in list_files(tmp_path) - before if path.suffix != ".db"}
    assert {path.name for path in new} <= {"home.json"}


@pytest.mark.requirement("security:paths")
@EVERY
async def test_path_is_refused_as_address(client, name):
    for address in (
        f"session://{name}",
        f"session://{quote(name, safe='')}",
        f"session://{quote(name, safe='')}/messages",
        f"session://s1/messages?store={quote(name, safe='')}",
        f"route://{quote(name, safe='')}",
        f"file://{name}",
    ):
        with pytest.raises(MCPError) as caught:
            await client.read_resource(address)
        assert OUTSIDE not in caught.value.error.message
        assert caught.value.error.code == -32602, address


@EVERY
async def test_project_filter_opens_no_folder(call, name):
    listed = await call("sessions_list", project=name)
    assert listed["sessions"] == []
    assert OUTSIDE not in json.dumps(await call("sessions_prune", project=name, older_than_days=0))


@EVERY
async def test_path_title_creates_no_file(call, tmp_path, home_path, name):
    before = list_files(tmp_path)
    edited = await call("sessions_edit", sessions="s1", title=name[:100])
    assert edited["sessions"][0]["title"] == name[:100].replace("\x00", "")
    kept = home_path / ".mcp-sessions"
    assert [path for path in list_files(tmp_path) - before if kept not in path.parents] == []


@pytest.fixture(name="linked_file")
def _linked(home_path, tmp_path):
    """A link among the session files, named like one whose session is gone."""
    folder = home_path / "sessions"
    folder.mkdir()
    link = folder / "20250101_000000_abcdef.jsonl"
    link.symlink_to(tmp_path / "outside.txt")
    (folder / "20250102_000000_abcdef.jsonl").write_text('{"role": "user"}\n')
    return link


@pytest.mark.requirement("security:paths")
async def test_link_among_files_is_left_alone(call, linked_file, tmp_path):
    planned = await call("sessions_prune", what="orphans", older_than_days=0)
    assert linked_file.name not in json.dumps(planned)
    answer = await call("sessions_prune", plan=planned["plan"])
    assert (answer["outcome"], answer["removed"]) == ("applied", 1)
    assert linked_file.is_symlink()
    assert (tmp_path / "outside.txt").read_text() == OUTSIDE
    await call("sessions_restore", batch=answer["batch"])
    assert (tmp_path / "outside.txt").read_text() == OUTSIDE


async def test_swapped_link_is_not_followed(call, linked_file, tmp_path):
    planned = await call("sessions_prune", what="orphans", older_than_days=0)
    swapped = linked_file.with_name("20250102_000000_abcdef.jsonl")
    swapped.unlink()
    swapped.symlink_to(tmp_path / "outside.txt")
    answer = await call("sessions_prune", plan=planned["plan"])
    assert answer["removed"] == 0
    assert swapped.is_symlink()
    assert (tmp_path / "outside.txt").read_text() == OUTSIDE


@pytest.mark.requirement("security:paths")
async def test_restore_writes_through_no_link(call, linked_file, tmp_path):
    planned = await call("sessions_prune", what="orphans", older_than_days=0)
    answer = await call("sessions_prune", plan=planned["plan"])
    back = linked_file.with_name("20250102_000000_abcdef.jsonl")
    back.symlink_to(tmp_path / "outside.txt")
    restored = await call("sessions_restore", batch=answer["batch"])
    assert restored["outcome"] in ("applied", "partial")
    assert (tmp_path / "outside.txt").read_text() == OUTSIDE


async def test_linked_folder_loses_no_files(call, home_path, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outside_file = elsewhere / "20250101_000000_abcdef.jsonl"
    outside_file.write_text(OUTSIDE)
    (home_path / "profiles").mkdir()
    (home_path / "profiles" / "evil").symlink_to(elsewhere)
    planned = await call("sessions_prune", what="orphans", older_than_days=0)
    assert planned["outcome"] == "nothing"
    assert outside_file.read_text() == OUTSIDE

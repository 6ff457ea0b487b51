"""The lines of an export: read piece by piece."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.maintenance.carried import Place
from tests.maintenance.import_lines import make_line, make_long_line, write_lines


def test_invalid_utf8_is_broken_line(fresh: Place, file: Path):
    file.write_bytes(b'{"id": "\xff"}\n' + json.dumps(make_line("a")).encode())
    result = fresh.importing.import_file(file)
    assert [(line.line, "not UTF-8" in line.why) for line in result.broken] == [(1, True)]
    assert result.sessions == 1


def test_windows_file_is_imported(fresh: Place, file: Path):
    text = json.dumps(make_line("a")) + "\r\n\r\n" + json.dumps(make_line("b")) + "\r\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert fresh.importing.import_file(file).sessions == 2


def test_long_broken_line_imports_nothing(fresh: Place, file: Path):
    broken = json.loads(make_long_line(file).read_text())
    broken["messages"][-1]["token_count"] = 2**64
    result = fresh.importing.import_file(write_lines(file, broken))
    assert "exceeds 64 bits" in result.broken[0].why
    assert fresh.db.message_count() == 0
    assert fresh.db.get_session("long") is None


@pytest.mark.parametrize("place", range(12))
def test_number_across_chunks_is_read_whole(fresh: Place, file: Path, place: int):
    head = '{"id":"s","source":"cli","system_prompt":"'
    pad = "x" * ((1 << 16) - len(head) - len('","started_at":') - place)
    file.write_text(head + pad + '","started_at":1234567890.5}')
    fresh.importing.import_file(file)
    row = fresh.db.get_session("s")
    assert row is not None
    assert row["started_at"] == 1234567890.5

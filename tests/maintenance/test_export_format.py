"""The lines of an export: read piece by piece, and each stored value exactly as it was."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from session_core.errors import InvalidInput
from session_core.maintenance.transfer import export_format
from session_core.types import RawText, RowImages
from tests.maintenance.import_lines import make_line, make_long_line, write_lines
from tests.maintenance.transfer_homes import Place


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


@pytest.mark.parametrize(
    ("column", "stored", "exported"),
    [
        ("content", "plain", "plain"),
        ("content", '\x00json:[{"type": "text"}]', [{"type": "text"}]),
        ("content", '\x00json:[ {"type":"text"} ]', '\x00json:[ {"type":"text"} ]'),
        ("content", "[1]", "[1]"),
        ("tool_calls", '[{"id": "c"}]', [{"id": "c"}]),
        ("tool_calls", '[{"id":"c"}]', '[{"id":"c"}]'),
        ("tool_calls", "[{", "[{"),
        ("title", b"\x00\xff", {"$bytes": "AP8="}),
        ("title", RawText(b"half \xed\xa0\xbd"), {"$raw": "aGFsZiDtoL0="}),
        ("cost", float("inf"), {"$real": "inf"}),
        ("cost", 0.5, 0.5),
        ("title", None, None),
    ],
)
def test_stored_value_survives_export(column: str, stored: Any, exported: Any):
    assert export_format.encode_value(column, stored) == exported
    read = json.loads(export_format.encode_json(exported))
    assert export_format.decode_value(column, read) == stored


@pytest.mark.parametrize("value", [{"$bytes": "?"}, {"$raw": "x"}, {"$real": "many"}])
def test_invalid_exact_value_is_refused(value: Any):
    with pytest.raises(InvalidInput, match="has an invalid value"):
        export_format.decode_value("title", value)


def test_rows_of_other_table_survive_export():
    image = RowImages("jobs", ("id", "data"), ((1, b"x"), (2, None)), shared=True)
    exported = json.loads(export_format.encode_json(export_format.encode_table(image)))
    assert export_format.decode_images({"tables": [exported]}) == [image]
    exported["columns"] = ["id", "id"]
    with pytest.raises(InvalidInput, match="do not fit their columns"):
        export_format.decode_images({"tables": [exported]})


def test_digest_covers_only_its_line():
    digests = []
    for rest in (b"", b"{}\n"):
        line = export_format.JsonLine(io.BytesIO(b'{"a": [1, 2], "b": [3]}\n' + rest), "a")
        assert list(line.iter_members()) == [("a", 1), ("a", 2), ("b", [3])]
        digests.append(line.digest)
    assert digests[0] == digests[1]

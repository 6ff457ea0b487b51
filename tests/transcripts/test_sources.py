"""Sources: lines of any length, compressed files, and offsets in them."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
import zstandard

from session_core.transcripts import sources
from session_core.transcripts.sources import LineReader, open_source
from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.trees import ClaudeTree, make_line


def test_long_line_is_cut_and_streamed(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 10_000)
    path = tree.write("one", ["before it"])
    with path.open("ab") as file:
        file.write(make_line("one", 1, "x" * 5_000_000) + make_line("one", 2, "after it"))

    window = store.read_window("one")

    assert [message["content"] for message in window.messages] == ["before it", "after it"]
    (coverage,) = store.measure_coverage()
    assert sum(coverage.unknown_records.values()) == 1


def test_torn_long_line_is_scanned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr(sources, "HEAD_BYTES", 5000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 1000)
    path = tmp_path / "file"
    path.write_bytes(b"a" * 50_000)
    with open_source(str(path)) as source:
        reader = LineReader(source, 0, 0, 50_000)
        assert reader.read_lines() == []
        scanned = reader.scanned
    with path.open("ab") as file:
        file.write(b"b\nshort\n")

    with open_source(str(path)) as source:
        reader = LineReader(source, 0, 0, 50_008, scanned)
        lines = reader.read_lines() + reader.read_lines()

    assert scanned is not None
    assert scanned.end == 50_000
    assert reader.checksum == zlib.crc32(path.read_bytes())
    assert [(line.offset, line.length, line.is_cut) for line in lines] == [
        (0, 50_002, True),
        (50_002, 6, False),
    ]


def test_long_line_is_read_in_several_parts(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 100_000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(sources, "MAX_SCAN_BYTES", 200_000)
    path = tree.write("one", ["before it"])
    with path.open("ab") as file:
        file.write(make_line("one", 1, "x" * 5_000_000) + make_line("one", 2, "after it"))

    parts = 1
    while store.index_pending(0):
        parts += 1

    assert parts > 20
    messages = store.read_window("one").messages
    assert [message["content"] for message in messages] == ["before it", "after it"]
    checksum = store._index.read("SELECT checksum, offset FROM sources")
    assert checksum == [(zlib.crc32(path.read_bytes()), path.stat().st_size)]


def test_replaced_long_line_is_read_anew(
    tree: ClaudeTree, store: TranscriptStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 100_000)
    path = tree.write("one", [])
    path.write_bytes(b'{"torn":"' + b"x" * 3_000_000)
    while store.index_pending(0):
        pass
    lines = [make_line("one", number, f"word{number} " * 1000) for number in range(500)]
    path.write_bytes(b"".join(lines))

    assert len(store.read_window("one", limit=1000).messages) == 500


def test_lines_are_the_same_in_any_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = b"".join(b"%d" % number * (number % 50) + b"\n" for number in range(500))
    path = tmp_path / "file"
    path.write_bytes(data + b"torn")
    for block in (1, 7, 100, 10**6):
        monkeypatch.setattr(sources, "BLOCK_BYTES", block)
        with open_source(str(path)) as source:
            reader = LineReader(source, 0, 0, len(data) + 4)
            lines = []
            while more := reader.read_lines():
                lines += more
        assert b"".join(line.data + b"\n" for line in lines) == data
        assert reader.offset == len(data)


def test_compressed_file_reads_at_offsets(tmp_path: Path):
    lines = [b"line %d\n" % number for number in range(100_000)]
    path = tmp_path / "file.zst"
    frames = (b"".join(lines[:50_000]), b"".join(lines[50_000:]))
    path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(frame) for frame in frames))

    with open_source(str(path), is_zstd=True) as source:
        reader, count = LineReader(source, 0, 0, None), 0
        while more := reader.read_lines():
            count += len(more)
        place = len(b"".join(lines[:777]))
        assert source.read(place, 9) == b"line 777\n"

    assert count == len(lines)


def test_zip_bomb_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "_FREE_BYTES", 1_000_000)
    monkeypatch.setattr(sources, "_MAX_RATIO", 10)
    path = tmp_path / "bomb.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"\n" * 50_000_000))

    with open_source(str(path), is_zstd=True) as source:
        reader = LineReader(source, 0, 0, None)
        while reader.read_lines():
            pass

    assert reader.offset <= 1_000_000 + 10 * path.stat().st_size


def test_damaged_compressed_file_ends_quietly(tmp_path: Path):
    path = tmp_path / "file.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"a\n" * 100_000)[:-5] + b"junk!")

    with open_source(str(path), is_zstd=True) as source:
        assert source.read(0, 10) in (b"a\na\na\na\na\n", b"")

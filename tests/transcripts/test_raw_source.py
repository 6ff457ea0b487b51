"""The bytes of sessions as their agents wrote them, of every format, also from kept copies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard

from session_core.transcripts.transcript_store import TranscriptStore
from session_core.types import SessionFilter
from tests.transcripts.conftest import index_all
from tests.transcripts.formats.reading import FIXTURES
from tests.transcripts.test_agents import CODEX_ID, DATABASES, FILES, make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder with a store of each agent."""
    return make_home(tmp_path / "person")


def open_store(home: Path) -> TranscriptStore:
    """Return a store over a home, indexed."""
    store = TranscriptStore(home / "state", environ={"HOME": str(home)})
    index_all(store)
    return store


def read_all(store: TranscriptStore) -> dict[tuple[str, str], tuple[str, bytes]]:
    """Return suffix and bytes of every session."""
    rows = store.list_sessions(SessionFilter(status="all"), limit=100).items
    found = {}
    for row in rows:
        source = store.open_raw_source(row.id)
        found[row.source, row.id] = (source.suffix, b"".join(source.parts))
    return found


@pytest.mark.requirement("transcripts:raw")
def test_raw_files_are_byte_identical(home):
    with open_store(home) as store:
        raw = {data for suffix, data in read_all(store).values() if suffix != ".rows.jsonl"}
    assert raw == {(home / place).read_bytes() for place in FILES.values()}


@pytest.mark.requirement("transcripts:raw")
@pytest.mark.parametrize("name", FILES)
def test_raw_format_is_byte_identical(tmp_path, name):
    path = tmp_path / "person" / FILES[name]
    path.parent.mkdir(parents=True)
    torn = b"" if name.endswith(".json") else b'{"torn": '
    path.write_bytes((FIXTURES / name).read_bytes() + torn)
    with open_store(tmp_path / "person") as store:
        ((_, data),) = read_all(store).values()
    assert data == path.read_bytes()


@pytest.mark.requirement("transcripts:raw")
def test_raw_compressed_file_stays_compressed(home):
    path = home / FILES["codex/paginated.jsonl"]
    packed = zstandard.ZstdCompressor().compress(path.read_bytes())
    path.with_name(path.name + ".zst").write_bytes(packed)
    path.unlink()
    with open_store(home) as store:
        assert read_all(store)["codex", CODEX_ID] == (".jsonl.zst", packed)


@pytest.mark.requirement("transcripts:raw")
@pytest.mark.parametrize("store_name", ["openclaw", "opencode"])
def test_raw_rows_are_canonical_json(home, store_name):
    with open_store(home) as store:
        found = read_all(store)
    texts = [
        data
        for (name, _), (suffix, data) in found.items()
        if (name, suffix) == (store_name, ".rows.jsonl")
    ]
    lines = [json.loads(line) for data in texts for line in data.splitlines()]
    assert any("columns" in line for line in lines)
    assert any("row" in line for line in lines)
    for data in texts:
        for line in data.splitlines():
            again = json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
            assert again.encode() == line


@pytest.mark.requirement("transcripts:raw")
def test_raw_of_kept_sources_is_identical(home):
    with open_store(home) as store:
        before = read_all(store)
        store.keep.turn_on()
        while store.keep.scan_and_copy():
            pass
        for place in (*FILES.values(), *DATABASES.values()):
            (home / place).unlink()
        index_all(store)
        assert read_all(store).items() >= before.items()


@pytest.mark.parametrize("name", ["a." + "b" * 230, "c.\x1b[31mred", "plain"])
def test_raw_suffix_has_no_part_of_the_id(tree, name):
    tree.write(name, ["a question"])
    with tree.open_store() as store:
        index_all(store)

        assert store.open_raw_source(name).suffix == ".jsonl"

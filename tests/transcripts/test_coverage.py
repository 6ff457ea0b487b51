"""How much of each store is indexed, and problems of its records and folders."""

from __future__ import annotations

from pathlib import Path

from session_core.transcripts.transcript_store import TranscriptStore
from tests.transcripts.conftest import (
    append_elsewhere,
    find_hits,
)
from tests.transcripts.trees import ClaudeTree, make_line


def test_coverage_counts_unknown_records(tree: ClaudeTree, store: TranscriptStore):
    path = tree.write("one", ["first"])
    append_elsewhere(path, b'{"type": "from-the-future"}\nnot json\n')

    (coverage,) = store.measure_coverage()

    assert coverage.unknown_records == {"from-the-future": 1, "damaged": 1}
    assert (coverage.sessions, coverage.messages, coverage.indexed_share) == (1, 1, 1.0)


def test_links_out_of_a_root_are_counted(tree: ClaudeTree, tmp_path: Path):
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(make_line("secret", 0, "not to be seen"))
    (tree.projects / "-src-app").mkdir()
    (tree.projects / "-src-app" / "link.jsonl").symlink_to(outside)
    (tree.projects / "-linked").symlink_to(tmp_path, target_is_directory=True)

    with tree.open_store() as store:
        assert store.list_sessions().items == []
        assert find_hits(store, "seen") == []
        assert store.measure_coverage()[0].links == 2

"""Sweeps over the folders of other agents: found, counted and ignored files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from session_core.transcripts.formats.claude_code import ClaudeCodeFormat
from session_core.transcripts.roots import Root, Sweep, find_roots, sweep_root, update_file
from tests.transcripts.trees import ClaudeTree


@pytest.fixture
def root(tree: ClaudeTree) -> Root:
    return Root(ClaudeCodeFormat(), str(tree.projects))


def sweep(root: Root, user_id: int | None = None) -> Sweep:
    return sweep_root(root, lambda path: path.endswith(".jsonl"), user_id)


def test_sweep_finds_wanted_files_below_root(tree: ClaudeTree, root: Root):
    tree.write("one", ["a"])
    tree.write("two", ["b"], "-src-other").with_suffix(".txt").write_text("not wanted")
    result = sweep(root, os.getuid())
    assert set(result.files) == {"-src-app/one.jsonl", "-src-other/two.jsonl"}
    assert sorted(result.folders) == ["", "-src-app", "-src-other"]
    assert (result.foreign, result.links, result.unreadable) == (0, 0, 0)


def test_sweep_follows_no_link(tree: ClaudeTree, root: Root, tmp_path: Path):
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "two.jsonl").write_text("{}")
    tree.write("one", ["a"]).with_name("link.jsonl").symlink_to(secret / "two.jsonl")
    (tree.projects / "folder").symlink_to(secret)
    result = sweep(root)
    assert (set(result.files), result.links) == ({"-src-app/one.jsonl"}, 2)


def test_files_of_other_users_are_counted(tree: ClaudeTree, root: Root):
    tree.write("one", ["a"])
    result = sweep(root, os.getuid() + 1)
    assert (result.files, result.foreign) == ({}, 1)


def test_sweep_leaves_out_unmatched_and_deep_folders(tree: ClaudeTree, root: Root):
    deep = tree.projects.joinpath(*["d"] * 12)
    deep.mkdir(parents=True)
    (deep / "in.jsonl").write_text("{}")
    (deep / "d").mkdir()
    (deep / "d" / "out.jsonl").write_text("{}")
    results = tree.write("one", ["a"]).with_suffix("") / "tool-results"
    results.mkdir(parents=True)
    (results / "result.jsonl").write_text("{}")
    assert set(sweep(root).files) == {"-src-app/one.jsonl", "/".join(["d"] * 12) + "/in.jsonl"}


def test_missing_root_is_empty_not_unreadable(tmp_path: Path):
    result = sweep(Root(ClaudeCodeFormat(), str(tmp_path / "gone")))
    assert (result.files, result.folders, result.unreadable) == ({}, [], 0)
    (tmp_path / "file").write_text("no folder")
    assert sweep(Root(ClaudeCodeFormat(), str(tmp_path / "file"))).unreadable == 1


def test_update_sees_change_and_removal(tree: ClaudeTree, root: Root):
    path = tree.write("one", ["a"])
    result = sweep(root)
    before = result.files["-src-app/one.jsonl"]
    tree.write("one", ["b"])
    update_file(result, root, "-src-app/one.jsonl", None)
    assert result.files["-src-app/one.jsonl"].size == path.stat().st_size > before.size
    path.unlink()
    update_file(result, root, "-src-app/one.jsonl", None)
    assert result.files == {}


def test_linked_folder_is_one_root(tree: ClaudeTree, tmp_path: Path):
    (tmp_path / "linked").symlink_to(tree.projects.parent)
    reader = ClaudeCodeFormat()
    environ = {"HOME": str(tree.home), "CLAUDE_CONFIG_DIR": str(tmp_path / "linked")}
    roots = find_roots([reader, reader], environ)
    assert [root.path for root in roots] == [
        os.path.realpath(tree.projects),
        os.path.realpath(tree.projects.parent / "transcripts"),
    ]

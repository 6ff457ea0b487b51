"""Sizes of tables on SQLite: estimated, or counted by a child process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.state.sqlite.admin import sizes_child
from tests.state.conftest import append_words


def test_sizes_without_child_stay_estimates(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    append_words(db)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert db.admin.measure_sizes(exact=True) == db.admin.measure_sizes()
    assert not db.admin.measure_sizes(exact=True).exact


def test_sizes_child_counts_every_table(db: SessionDB, path: Path) -> None:
    append_words(db)
    counted = sizes_child.count_table_bytes(path)
    assert counted is not None
    assert {"messages", "sessions", "sqlite_schema"} <= set(counted)
    assert sum(counted.values()) == db.admin.measure_sizes().db - db.admin.measure_sizes().free


def test_size_estimate_follows_row_sizes(db: SessionDB, path: Path) -> None:
    rows = [{"role": "user", "content": f"long {n} {n * 7919} " * 60} for n in range(1500)]
    db.append_messages("s", rows, create={"source": "cli"})
    append_words(db, "t", 1500)
    db.delete_sessions(["t"])
    estimated, exact = db.admin.measure_sizes(), db.admin.measure_sizes(exact=True)
    assert estimated.tables["messages"] == pytest.approx(exact.tables["messages"], rel=0.25)
    assert estimated.free == exact.free

"""The tracer counts our functions, statements and snapshots in every thread."""

from __future__ import annotations

import threading
from pathlib import Path

from session_core import SessionDB
from tests.walk.trace import CallTracer


def test_walk_counts_snapshot_per_read(tmp_path: Path):
    tracer = CallTracer()
    with tracer.install(), SessionDB(tmp_path / "state.db") as db:
        db.append_message("s1", role="user", content="hello", create={"source": "cli"})
        db.get_messages("s1")
        with tracer.record_walk() as walk:
            db.get_messages("s1")
            db.get_messages("s1")
    assert walk.snapshots == 2
    assert walk.statements.count("BEGIN") == 2
    assert "get_messages" in {function.co_name for function in walk.functions}


def test_walk_includes_other_threads(tmp_path: Path):
    tracer = CallTracer()
    with tracer.install(), SessionDB(tmp_path / "state.db") as db:
        db.append_message("s1", role="user", content="hello", create={"source": "cli"})
        thread = threading.Thread(target=db.get_messages, args=("s1",))
        with tracer.record_walk() as walk:
            thread.start()
            thread.join()
    assert walk.snapshots == 1
    assert walk.depth > 1


def test_walk_ends_with_block(tmp_path: Path):
    tracer = CallTracer()
    with tracer.install(), SessionDB(tmp_path / "state.db") as db:
        with tracer.record_walk() as walk:
            pass
        db.append_message("s1", role="user", content="hello", create={"source": "cli"})
    assert not walk.functions
    assert not walk.statements

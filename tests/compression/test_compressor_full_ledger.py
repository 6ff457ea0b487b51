"""Compressions whose ledger is full after the commit."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from session_core import Compressor, Ledger, StateFolder, StorageFull
from session_core.compression import CompressionLimits
from tests.compression.homes import LAST, Chat, append_more, refused, summarize_short

SHAPES = ("in_place", "continuation")


class FullLedger(Ledger):
    """A ledger without space for writes after the commit."""

    is_full = True

    def finish_step(self, *args: Any, **more: Any) -> None:
        """Record a finished step, if there is space."""
        self._need_room()
        super().finish_step(*args, **more)

    def finish_plan(self, *args: Any) -> None:
        """Finish a plan, if there is space."""
        self._need_room()
        super().finish_plan(*args)

    def add_audit_entry(self, *args: Any) -> None:
        """Add an audit entry, if there is space."""
        self._need_room()
        super().add_audit_entry(*args)

    def _need_room(self) -> None:
        if self.is_full:
            raise StorageFull("no room left for the ledger")


@pytest.mark.needs_files
@pytest.mark.requirement("compression:noted")
@pytest.mark.parametrize("shape", SHAPES)
def test_full_ledger_records_compression_later(
    chat: Chat, shape: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with FullLedger(StateFolder(chat.db.path), clock=chat.clock) as chat.ledger:
        compressor = chat.compressor()
        plan = compressor.plan(chat.session_id, shape=shape, keep_last=LAST)
        result = compressor.apply(plan.plan, "what was said")
        assert chat.session_id == result.session_id
        assert "no room left" in caplog.text
        chat.ledger.is_full = False
        assert compressor.apply(plan.plan) == result
        assert [line.plan for line in chat.ledger.list_audit_entries().items] == [plan.plan]
        assert compressor.undo(result.batch)


@pytest.mark.requirement("compression:noted")
def test_killed_compression_is_audited_on_resume(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressor = chat.compressor()
    plan = compressor.plan(chat.session_id, keep_last=LAST)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(chat.ledger, "finish_step", killed)
        with pytest.raises(KeyboardInterrupt):
            compressor.apply(plan.plan, "what was said")
    assert chat.ledger.list_audit_entries().items == []
    for _ in range(2):
        compressor.apply(plan.plan)
    (line,) = chat.ledger.list_audit_entries().items
    assert line.plan == plan.plan


def test_planned_undo_is_audited_with_plan(chat: Chat) -> None:
    compressor = chat.compressor()
    result = compressor.compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST
    )
    chat.say("said since")
    plan = compressor.undo(result.batch).plan
    assert plan is not None
    compressor.apply_undo(plan.plan)
    assert chat.ledger.list_audit_entries().items[0].plan == plan.plan


@pytest.mark.needs_files
@pytest.mark.requirement("compression:noted")
def test_compressor_opens_configured_store(chat: Chat) -> None:
    folder = chat.db.folder
    assert folder is not None
    chat.store.close()
    (folder / "config.yaml").write_text("gateway:\n  write_sessions_json: false\n")
    (folder / "sessions" / "sessions.json").unlink()
    before = threading.active_count()
    with Compressor(chat.db, chat.ledger, clock=chat.clock) as compressor:
        result = compressor.compress(
            chat.session_id, summarize_short, shape="continuation", keep_last=LAST
        )
    assert chat.session_id == result.session_id
    assert not (folder / "sessions" / "sessions.json").exists()
    deadline = time.monotonic() + 20
    while threading.active_count() > before:  # the thread that refreshed the lock ends by itself
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.requirement("compression:noted")
@pytest.mark.parametrize("how", ["compress", "apply"])
def test_two_ineffective_runs_refuse_after_restart(chat: Chat, how: str) -> None:
    limits = CompressionLimits(context_tokens=50, keep_last=LAST)
    for _ in range(2):
        compressor = chat.compressor(limits=limits)
        if how == "compress":
            compressor.compress(chat.session_id, summarize_short, shape="continuation")
        else:
            compressor.apply(compressor.plan(chat.session_id).plan, "what was said")
        append_more(chat)
    compressor = chat.compressor(limits=limits)
    for attempt in (compressor.compress, compressor.plan):
        with refused("ineffective"):
            attempt(chat.session_id)
    assert compressor.plan(chat.session_id, force=True)
    assert compressor.compress(chat.session_id, summarize_short, force=True)


def test_undone_ineffective_run_is_not_counted(chat: Chat) -> None:
    compressor = chat.compressor(limits=CompressionLimits(context_tokens=50, keep_last=LAST))
    for _ in range(3):
        compressor.undo(compressor.compress(chat.session_id, summarize_short).batch)
    assert compressor.plan(chat.session_id)

"""Plans and exports find a continuation by the folder of its conversation."""

from __future__ import annotations

import json

from session_core import SessionFilter
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.transfer.exporter import Exporter, ExportRequest
from tests.maintenance.changed_homes import Changing

SHOP = SessionFilter(project="/srv/shop")


def fill(changed: Changing) -> None:
    home = changed.home
    home.session("root", 150, reason="compression", cwd="/srv/shop")
    home.session("tip", 140, reason="idle", parent_session_id="root")
    home.session("other", 140, reason="idle", cwd="/srv/blog")


def export_sessions(changed: Changing, wish: ExportRequest) -> str:
    parts: list[bytes] = []
    Exporter(HomeContext(changed.home.db, changed.ledger), "test").write_sessions(
        parts.append, wish
    )
    return b"".join(parts).decode()


def test_prune_plan_finds_continued_conversation(changed: Changing) -> None:
    fill(changed)
    assert [item.id for item in changed.plan(where=SHOP).items] == ["root"]
    changed.plan_and_apply(where=SHOP)
    assert changed.sessions() == {"other"}


def test_export_finds_continued_conversation(changed: Changing) -> None:
    fill(changed)
    lines = export_sessions(changed, ExportRequest(where=SHOP)).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["root", "tip"]


def test_markdown_shows_inherited_folder(changed: Changing) -> None:
    fill(changed)
    text = export_sessions(changed, ExportRequest(("tip",), form="markdown", whole=False))
    assert "- project: /srv/shop\n" in text


def test_exported_row_keeps_stored_values(changed: Changing) -> None:
    fill(changed)
    (line,) = export_sessions(changed, ExportRequest(("tip",), whole=False)).splitlines()
    assert json.loads(line)["cwd"] is None

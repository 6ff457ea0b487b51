"""Homes without a routing table: routes are neither found nor stored."""

from __future__ import annotations

import pytest

from session_core import StateDatabase, Unsupported
from session_core.types import Page

pytestmark = pytest.mark.schemas(16, only=True)


@pytest.mark.requirement("routes:none")
def test_home_without_routing_table_stores_no_routes(db: StateDatabase) -> None:
    assert not db.routes.is_available
    assert db.routes.load_entries() == db.routes.list_scopes() == {}
    assert db.routes.dump_entries() == Page([])
    assert db.routes.get_entry("k") is None
    with pytest.raises(Unsupported):
        db.routes.save_entry("k", "{}", expect=None)
    with pytest.raises(Unsupported):
        db.routes.delete_entries({"k": "1"})


@pytest.mark.requirement("routes:none")
def test_sessions_without_peer_columns_are_not_found(db: StateDatabase) -> None:
    db.append_message("s1", "user", "x", create={"source": "telegram", "session_key": "k"})
    assert db.routes.find_latest_session(source="telegram", session_key="k") is None

"""Homes without a routing table: routes are neither found nor stored."""

from __future__ import annotations

import pytest

from session_core import StateDatabase, Unsupported
from session_core.types import Page

pytestmark = pytest.mark.schemas(16, only=True)


@pytest.mark.requirement("routes:none")
def test_home_without_routing_table_stores_no_routes(db: StateDatabase) -> None:
    assert not db.has_routing
    assert db.load_gateway_routing_entries() == db.list_gateway_routing_scopes() == {}
    assert db.dump_gateway_routing_entries() == Page([])
    assert db.get_gateway_routing_entry("k") is None
    with pytest.raises(Unsupported):
        db.save_gateway_routing_entry("k", "{}", expect=None)
    with pytest.raises(Unsupported):
        db.delete_gateway_routing_entries({"k": "1"})


@pytest.mark.requirement("routes:none")
def test_sessions_without_peer_columns_are_not_found(db: StateDatabase) -> None:
    db.append_message("s1", "user", "x", create={"source": "telegram", "session_key": "k"})
    assert db.find_latest_session_for_peer(source="telegram", session_key="k") is None

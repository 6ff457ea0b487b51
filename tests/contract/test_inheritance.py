"""Folder, source and owner of a continuation are those of the nearest ancestor that has them."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import SessionFilter, StateDatabase
from tests.contract.engines import ForeignWriter

pytestmark = pytest.mark.schemas(16)


ROOT = {"cwd": "/srv/shop/web", "user_id": "u1", "chat_id": "77", "chat_type": "dm"}


def add_session(db: StateDatabase, session_id: str, source: str = "cli", **fields: Any) -> None:
    db.create_session(session_id, source, **fields)
    db.append_message(session_id, "user", f"walrus said {session_id}")


def continue_session(db: StateDatabase, parent: str, session_id: str, **fields: Any) -> None:
    """Continue a session as Hermes does: without the columns that only the first session has."""
    db.end_session(parent, "compression")
    add_session(db, session_id, fields.pop("source", "cli"), parent_session_id=parent, **fields)


@pytest.fixture
def chained_database(db: StateDatabase) -> StateDatabase:
    add_session(db, "root", "telegram", **ROOT)
    continue_session(db, "root", "middle", source="unknown")
    continue_session(db, "middle", "tip", source="unknown")
    add_session(db, "elsewhere", "slack", cwd="/srv/shopping")
    return db


FILTERS = [
    {"project": "/srv/shop"},
    {"project": "/srv/shop/web/"},
    {"cwd_prefix": "/srv/shop/web"},
    {"source": ("telegram",)},
    {"source": ("telegram", "unknown")},
]
OWNER = [{"user_id": "u1"}, {"chat_id": "77"}, {"chat_type": "dm"}]


def has_columns(db: StateDatabase, condition: dict[str, Any]) -> bool:
    """Return True if this home has the columns of a condition. An old one has no chats."""
    return all(
        name in db.get_session("root") or name in ("project", "cwd_prefix") for name in condition
    )


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize("condition", [*FILTERS, *OWNER])
@pytest.mark.parametrize("order", ["recent", "started", "size"])
def test_list_filter_finds_tip_by_ancestor(
    chained_database: StateDatabase, condition: dict[str, Any], order: Any
) -> None:
    page = chained_database.list_sessions(SessionFilter(**condition), order=order)
    found = [(line.id, line.root_id) for line in page.items]
    assert found == ([("tip", "root")] if has_columns(chained_database, condition) else [])


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize("condition", FILTERS)
def test_find_sessions_returns_every_inheriting_session(
    chained_database: StateDatabase, condition: dict[str, Any]
) -> None:
    session_ids = chained_database.find_sessions(SessionFilter(status="all", **condition))
    assert sorted(session_ids) == ["middle", "root", "tip"]


@pytest.mark.requirement("homes:inheritance")
def test_summary_shows_inherited_folder_and_source(chained_database: StateDatabase) -> None:
    for session_id in ("root", "middle", "tip"):
        line = chained_database.summarize_session(session_id)
        assert (line.project, line.source) == ("/srv/shop/web", "telegram")
    listed = {
        line.id: (line.project, line.source) for line in chained_database.list_sessions().items
    }
    assert listed["tip"] == ("/srv/shop/web", "telegram")
    assert listed["elsewhere"] == ("/srv/shopping", "slack")


@pytest.mark.requirement("homes:inheritance")
def test_continuation_inherits_source_instead_of_unknown(chained_database: StateDatabase) -> None:
    assert chained_database.list_sessions(SessionFilter(source=("unknown",))).items == []
    add_session(chained_database, "stranger", "unknown")
    lines = chained_database.list_sessions(SessionFilter(source=("unknown",))).items
    assert [line.id for line in lines] == ["stranger"]


@pytest.mark.requirement("homes:inheritance")
def test_search_finds_continuation_by_ancestor(chained_database: StateDatabase) -> None:
    for options in ({"project": "/srv/shop"}, {"source": ["telegram"]}):
        hits = chained_database.search("walrus", per="message", **options).hits
        assert {hit.session_id for hit in hits} == {"root", "middle", "tip"}
        assert {hit.source for hit in hits} == {"telegram"}
    assert chained_database.search("walrus", source=["unknown"]).hits == []


@pytest.mark.requirement("homes:inheritance")
def test_continuation_own_value_overrides_inherited(chained_database: StateDatabase) -> None:
    continue_session(chained_database, "tip", "moved", source="discord", cwd="/home/sam")
    continue_session(chained_database, "moved", "last", source="unknown")

    def listed(**condition: Any) -> list[str]:
        return [
            line.id for line in chained_database.list_sessions(SessionFilter(**condition)).items
        ]

    assert chained_database.summarize_session("last").project == "/home/sam"
    assert chained_database.summarize_session("last").source == "discord"
    assert listed(project="/home/sam") == listed(source=("discord",)) == ["last"]
    assert listed(project="/srv/shop") == listed(source=("telegram",)) == []
    assert listed(user_id="u1") == ["last"]


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("compression", {"model_config": {"_branched_from": "root"}}),
        ("compression", {"model_config": {"_delegate_from": "root"}}),
        ("compression", {"model_config": {"_branched_from": ""}}),
        ("compression", {"source": "tool"}),
        ("branched", {"started_at": 9e9}),
        ("session_reset", {}),
    ],
)
def test_non_continuation_child_inherits_no_values(
    db: StateDatabase, reason: str, fields: dict[str, Any]
) -> None:
    add_session(db, "root", "telegram", **ROOT)
    db.end_session("root", reason)
    add_session(db, "child", **{"source": "cli", **fields}, parent_session_id="root")
    assert db.find_sessions(SessionFilter(status="all", project="/srv/shop")) == ["root"]
    assert db.summarize_session("child").project is None


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize(
    "config", ["not json", "[1]", '{"_delegate_from": null}', "{}", "_branched_from"]
)
def test_meaningless_marks_keep_continuation(db: StateDatabase, config: str) -> None:
    add_session(db, "root", "telegram", **ROOT)
    continue_session(db, "root", "tip", model_config=config)
    assert db.get_link_kind("tip") == "continuation"
    assert db.find_sessions(SessionFilter(status="all", project="/srv/shop")) == ["root", "tip"]


@pytest.mark.requirement("homes:inheritance")
def test_inherited_values_follow_ancestor_changes(
    chained_database: StateDatabase, other: StateDatabase, foreign: ForeignWriter
) -> None:
    where = SessionFilter(project="/srv/blog")
    assert other.list_sessions(where).items == []
    foreign.update_rows("sessions", {"id": "root"}, cwd="/srv/blog")
    assert [line.project for line in other.list_sessions(where).items] == ["/srv/blog"]
    with chained_database.transaction():
        chained_database.update_session("middle", cwd="/srv/blog/x")
        assert [line.project for line in chained_database.list_sessions(where).items] == [
            "/srv/blog/x"
        ]


@pytest.mark.requirement("homes:inheritance")
def test_cycle_without_folder_is_listed(db: StateDatabase, foreign: ForeignWriter) -> None:
    for session_id in ("a", "b"):
        add_session(db, session_id)
        db.end_session(session_id, "compression")
    for session_id, parent in (("a", "b"), ("b", "a")):
        foreign.update_rows("sessions", {"id": session_id}, parent_session_id=parent)
    assert {line.project for line in db.list_sessions().items} == {None}
    assert db.list_sessions(SessionFilter(project="/srv")).items == []
    foreign.update_rows("sessions", {"id": "a"}, cwd="/srv/shop")
    assert db.find_sessions(SessionFilter(project="/srv", status="all")) == ["a", "b"]


@pytest.mark.costly
@pytest.mark.requirement("homes:inheritance")
def test_long_chain_inherits_from_root(db: StateDatabase) -> None:
    with db.transaction():
        db.create_session("s0", "cli", cwd="/srv/shop", started_at=1.0)
        for number in range(1, 1500):
            db.end_session(f"s{number - 1}", "compression")
            parent = f"s{number - 1}"
            db.create_session(
                f"s{number}", "cli", parent_session_id=parent, started_at=number + 1.0
            )
    lines = db.list_sessions(SessionFilter(project="/srv/shop")).items
    assert [(line.id, line.project) for line in lines] == [("s1499", "/srv/shop")]

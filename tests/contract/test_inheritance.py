"""Folder, source and owner of a continuation are those of the nearest ancestor that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import SessionFilter, StateDatabase

Strange = Callable[..., int]

ROOT = {"cwd": "/srv/shop/web", "user_id": "u1", "chat_id": "77", "chat_type": "dm"}


def add(db: StateDatabase, session_id: str, source: str = "cli", **fields: Any) -> None:
    db.create_session(session_id, source, **fields)
    db.append_message(session_id, "user", f"walrus said {session_id}")


def continue_session(db: StateDatabase, parent: str, session_id: str, **fields: Any) -> None:
    """Continue a session as Hermes does: without what the first session of the chain has."""
    db.end_session(parent, "compression")
    add(db, session_id, fields.pop("source", "cli"), parent_session_id=parent, **fields)


@pytest.fixture
def chain(db: StateDatabase) -> StateDatabase:
    add(db, "root", "telegram", **ROOT)
    continue_session(db, "root", "middle", source="unknown")
    continue_session(db, "middle", "tip", source="unknown")
    add(db, "elsewhere", "slack", cwd="/srv/shopping")
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
    """Whether this home has the columns of a condition; an old one has no chats."""
    return all(
        name in db.get_session("root") or name in ("project", "cwd_prefix") for name in condition
    )


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize("condition", [*FILTERS, *OWNER])
@pytest.mark.parametrize("order", ["recent", "started", "size"])
def test_list_filter_finds_the_tip_by_its_ancestor(
    chain: StateDatabase, condition: dict[str, Any], order: Any
) -> None:
    page = chain.list_sessions(SessionFilter(**condition), order=order)
    found = [(line.id, line.root_id) for line in page.items]
    assert found == ([("tip", "root")] if has_columns(chain, condition) else [])


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize("condition", FILTERS)
def test_find_sessions_finds_each_session_of_it(
    chain: StateDatabase, condition: dict[str, Any]
) -> None:
    found = chain.find_sessions(SessionFilter(status="all", **condition))
    assert sorted(found) == ["middle", "root", "tip"]


@pytest.mark.requirement("homes:inheritance")
def test_line_shows_the_inherited_folder_and_source(chain: StateDatabase) -> None:
    for session_id in ("root", "middle", "tip"):
        line = chain.summarize_session(session_id)
        assert (line.project, line.source) == ("/srv/shop/web", "telegram")
    listed = {line.id: (line.project, line.source) for line in chain.list_sessions().items}
    assert listed["tip"] == ("/srv/shop/web", "telegram")
    assert listed["elsewhere"] == ("/srv/shopping", "slack")


@pytest.mark.requirement("homes:inheritance")
def test_inherited_source_is_not_unknown(chain: StateDatabase) -> None:
    assert chain.list_sessions(SessionFilter(source=("unknown",))).items == []
    add(chain, "stranger", "unknown")
    lines = chain.list_sessions(SessionFilter(source=("unknown",))).items
    assert [line.id for line in lines] == ["stranger"]


@pytest.mark.requirement("homes:inheritance")
def test_search_finds_the_continuation_by_its_ancestor(chain: StateDatabase) -> None:
    for options in ({"project": "/srv/shop"}, {"source": ["telegram"]}):
        hits = chain.search("walrus", per="message", **options).hits
        assert {hit.session_id for hit in hits} == {"root", "middle", "tip"}
        assert {hit.source for hit in hits} == {"telegram"}
    assert chain.search("walrus", source=["unknown"]).hits == []


@pytest.mark.requirement("homes:inheritance")
def test_own_value_of_a_continuation_wins(chain: StateDatabase) -> None:
    continue_session(chain, "tip", "moved", source="discord", cwd="/home/sam")
    continue_session(chain, "moved", "last", source="unknown")

    def listed(**condition: Any) -> list[str]:
        return [line.id for line in chain.list_sessions(SessionFilter(**condition)).items]

    assert chain.summarize_session("last").project == "/home/sam"
    assert chain.summarize_session("last").source == "discord"
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
def test_other_child_inherits_nothing(
    db: StateDatabase, reason: str, fields: dict[str, Any]
) -> None:
    add(db, "root", "telegram", **ROOT)
    db.end_session("root", reason)
    add(db, "child", **{"source": "cli", **fields}, parent_session_id="root")
    assert db.find_sessions(SessionFilter(status="all", project="/srv/shop")) == ["root"]
    assert db.summarize_session("child").project is None


@pytest.mark.requirement("homes:inheritance")
@pytest.mark.parametrize(
    "config", ["not json", "[1]", '{"_delegate_from": null}', "{}", "_branched_from"]
)
def test_marks_that_mean_nothing_keep_a_continuation(db: StateDatabase, config: str) -> None:
    add(db, "root", "telegram", **ROOT)
    continue_session(db, "root", "tip", model_config=config)
    assert db.get_link_kind("tip") == "continuation"
    assert db.find_sessions(SessionFilter(status="all", project="/srv/shop")) == ["root", "tip"]


@pytest.mark.requirement("homes:inheritance")
def test_change_of_an_ancestor_is_seen_at_once(
    chain: StateDatabase, other: StateDatabase, strange: Strange
) -> None:
    where = SessionFilter(project="/srv/blog")
    assert other.list_sessions(where).items == []
    strange("UPDATE sessions SET cwd = '/srv/blog' WHERE id = 'root'")
    assert [line.project for line in other.list_sessions(where).items] == ["/srv/blog"]
    with chain.transaction():
        chain.update_session("middle", cwd="/srv/blog/x")
        assert [line.project for line in chain.list_sessions(where).items] == ["/srv/blog/x"]


@pytest.mark.requirement("homes:inheritance")
def test_circle_without_a_folder_is_listed(db: StateDatabase, strange: Strange) -> None:
    for session_id in ("a", "b"):
        add(db, session_id)
        db.end_session(session_id, "compression")
    strange("UPDATE sessions SET parent_session_id = CASE id WHEN 'a' THEN 'b' ELSE 'a' END")
    assert {line.project for line in db.list_sessions().items} == {None}
    assert db.list_sessions(SessionFilter(project="/srv")).items == []
    strange("UPDATE sessions SET cwd = '/srv/shop' WHERE id = 'a'")
    assert db.find_sessions(SessionFilter(project="/srv", status="all")) == ["a", "b"]


@pytest.mark.requirement("homes:inheritance")
def test_long_chain_inherits_from_its_root(db: StateDatabase) -> None:
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

"""Key-value pairs of applications, and the state of sessions, users and applications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import InvalidInput, NotFound, StateDatabase, Unsupported
from tests.contract.engines import roll_back_at_end

ODD_VALUE = {"b": ["\x00", "\ud800", "\U0001f980", 1 << 70, 1.5, None, {}], "a": True}
ODD_KEYS = ["é", "\U0001f980", "a'b", 'a"b', "a\x00b", " ", "%_"]


@pytest.fixture
def stateful(db: StateDatabase) -> StateDatabase:
    """Return the database, with a session."""
    db.create_session("s", "cli")
    return db


def test_meta_is_apart_from_internals(db: StateDatabase) -> None:
    db.set_meta("theirs", "1")
    db.meta.set_value("mine", "2")
    assert db.meta.list_values() == {"mine": "2"}
    assert db.meta.get_value("theirs") is None
    assert db.get_meta("mine") is None
    assert db.meta.delete_value("theirs") is False
    assert db.meta.delete_value("mine") is True
    assert db.meta.delete_value("mine") is False
    assert db.get_meta("theirs") == "1"
    assert db.meta.list_values() == {}


def test_meta_is_listed_by_prefix(db: StateDatabase) -> None:
    keys = ["a", "a/1", "a/2", "a/10", "a0", "b/1", *(f"odd {key}" for key in ODD_KEYS)]
    for key in keys:
        db.meta.set_value(key, f"value {key}")
    assert list(db.meta.list_values()) == sorted(keys)
    assert list(db.meta.list_values("a/")) == ["a/1", "a/10", "a/2"]
    assert list(db.meta.list_values("a/", after="a/1", limit=1)) == ["a/10"]
    assert list(db.meta.list_values("odd ")) == sorted(f"odd {key}" for key in ODD_KEYS)
    assert db.meta.list_values("none") == {}
    assert [db.meta.get_value(key) for key in keys] == [f"value {key}" for key in keys]


def test_compare_and_set_stores_once(db: StateDatabase, other: StateDatabase) -> None:
    assert db.meta.compare_and_set("key", "1", expect=None)
    assert not other.meta.compare_and_set("key", "2", expect=None)
    assert other.meta.compare_and_set("key", "2", expect="1")
    assert not db.meta.compare_and_set("key", None, expect="1")
    assert db.meta.get_value("key") == "2"
    assert db.meta.compare_and_set("key", None, expect="2")
    assert db.meta.get_value("key") is None
    assert db.meta.compare_and_set("key", None, expect=None)


def test_meta_refuses_invalid_values(db: StateDatabase) -> None:
    meta: Any = db.meta
    for call in (
        lambda: meta.set_value("", "x"),
        lambda: meta.set_value("key", 1),
        lambda: meta.set_value(None, "x"),
        lambda: meta.get_value(7),
        lambda: meta.compare_and_set("key", 1, expect=None),
        lambda: meta.compare_and_set("key", "x", expect=1),
        lambda: meta.list_values(None),
        lambda: meta.list_values(limit=0),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.schemas(16, 30)
def test_capabilities_follow_kind(db: StateDatabase) -> None:
    present = db.admin.get_capabilities()
    is_own = db.kind == "own"
    assert (present.state, present.payloads, present.foreign_gateway) == (
        is_own,
        is_own,
        not is_own,
    )
    assert (present.flag_s < 0.0001) == is_own


@pytest.mark.schemas(16, 30)
def test_home_without_state_refuses_it(stateful: StateDatabase) -> None:
    if stateful.admin.get_capabilities().state:
        return
    for call in (
        lambda: stateful.state.read_session_state("s"),
        lambda: stateful.state.merge_session_state("s", {"key": 1}),
        lambda: stateful.state.read_user_state("app", "user"),
        lambda: stateful.state.merge_user_state("app", "user", {"key": 1}),
        lambda: stateful.state.read_app_state("app"),
        lambda: stateful.state.merge_app_state("app", {"key": 1}),
    ):
        with pytest.raises(Unsupported, match="home of our own"):
            call()


State = Callable[[StateDatabase], dict[str, Any]]
Change = Callable[..., None]

OWNERS: dict[str, tuple[State, Change]] = {
    "session": (
        lambda db: db.state.read_session_state("s"),
        lambda db, *args, **named: db.state.merge_session_state("s", *args, **named),
    ),
    "user": (
        lambda db: db.state.read_user_state("app", "user"),
        lambda db, *args, **named: db.state.merge_user_state("app", "user", *args, **named),
    ),
    "app": (
        lambda db: db.state.read_app_state("app"),
        lambda db, *args, **named: db.state.merge_app_state("app", *args, **named),
    ),
}


@pytest.mark.requirement("state:state")
@pytest.mark.parametrize("owner", OWNERS)
def test_state_changes_only_named_keys(
    stateful: StateDatabase, other: StateDatabase, owner: str
) -> None:
    if not stateful.admin.get_capabilities().state:
        return
    read, change = OWNERS[owner]
    assert read(stateful) == {}
    change(stateful, {"a": 1, "b": ODD_VALUE, **dict.fromkeys(ODD_KEYS, "odd")})
    change(other, {"a": None, "c": []}, remove=["b", *ODD_KEYS, "never"])
    assert read(stateful) == read(other) == {"a": None, "c": []}
    change(stateful, {"b": ODD_VALUE})
    assert read(other)["b"] == ODD_VALUE
    others = [reading(stateful) for name, (reading, _) in OWNERS.items() if name != owner]
    assert others == [{}, {}]


def test_state_belongs_to_one_owner(stateful: StateDatabase) -> None:
    if not stateful.admin.get_capabilities().state:
        return
    state = stateful.state
    state.merge_user_state("app", "user", {"key": 1})
    state.merge_user_state("app", "other", {"key": 2})
    state.merge_user_state("other", "user", {"key": 3})
    state.merge_app_state("app", {"key": 4})
    owners = [("app", "user"), ("app", "other"), ("other", "user")]
    assert [state.read_user_state(*owner)["key"] for owner in owners] == [1, 2, 3]
    assert state.read_app_state("app") == {"key": 4}
    assert state.read_app_state("other") == {}


def test_state_refuses_invalid_changes(stateful: StateDatabase) -> None:
    state: Any = stateful.state
    for call in (
        lambda: state.merge_session_state("s", {"key": object()}),
        lambda: state.merge_session_state("s", {"key": float("nan")}),
        lambda: state.merge_session_state("s", {"": 1}),
        lambda: state.merge_session_state("s", {1: 1}),
        lambda: state.merge_session_state("s", [("key", 1)]),
        lambda: state.merge_session_state("s", {}, remove="key"),
        lambda: state.merge_session_state("s", {"key": 1}, remove=["key"]),
        lambda: state.merge_user_state("app", "", {"key": 1}),
        lambda: state.merge_app_state("", {"key": 1}),
        lambda: state.read_user_state("app", None),
    ):
        with pytest.raises(InvalidInput):
            call()
    if stateful.admin.get_capabilities().state:
        assert state.read_session_state("s") == {}
        assert state.read_session_state("nobody") == {}
        with pytest.raises(NotFound):
            state.merge_session_state("nobody", {"key": 1})


def test_state_joins_open_transaction(stateful: StateDatabase) -> None:
    if not stateful.admin.get_capabilities().state:
        return
    with roll_back_at_end(stateful):
        stateful.append_message("s", "user", "x")
        stateful.state.merge_session_state("s", {"key": 1})
        assert stateful.state.read_session_state("s") == {"key": 1}
    assert stateful.state.read_session_state("s") == {}


@pytest.mark.requirement("state:state")
def test_session_state_goes_with_session(stateful: StateDatabase) -> None:
    if not stateful.admin.get_capabilities().state:
        return
    stateful.state.merge_session_state("s", {"key": ODD_VALUE})
    stateful.state.merge_user_state("app", "user", {"key": 1})
    stateful.rows.copy_session("s", "copy", title=None)
    images = stateful.rows.read_session_images("s")
    stateful.delete_session("s")
    assert stateful.state.read_session_state("s") == {}
    stateful.create_session("s", "cli")
    assert stateful.state.read_session_state("s") == {}
    stateful.delete_session("s")
    assert stateful.rows.put_images(images).refused == ()
    assert stateful.state.read_session_state("s") == {"key": ODD_VALUE}
    assert stateful.state.read_session_state("copy") == {"key": ODD_VALUE}
    assert stateful.state.read_user_state("app", "user") == {"key": 1}

"""Entries that could not be read again, and invalid session keys, are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import InvalidInput, SessionDB, SessionSource, SessionStore
from tests.routing.chats import KEY, chat, make_stored_entry, put_row

UNSAFE = ["../x", "", "a/b", None]


@pytest.mark.requirement("store:unsafe")
@pytest.mark.parametrize("session_id", UNSAFE)
def test_unsafe_session_id_in_route_is_refused(any_store: SessionStore, session_id: Any) -> None:
    first = any_store.get_or_create_session(chat()).session_id
    entry = any_store.get(KEY)
    assert entry is not None
    entry.session_id = session_id
    ways: tuple[Callable[[], Any], ...] = (
        lambda: any_store.switch_session(KEY, session_id),
        lambda: any_store.move_to_continuation(KEY, first, session_id),
        lambda: any_store.save(entry),
    )
    for way in ways:
        with pytest.raises(InvalidInput):
            way()
    assert any_store.peek_session_id(KEY) == first
    assert any_store.problems == []


@pytest.mark.requirement("store:unsafe")
@pytest.mark.parametrize("platform", ["", "  ", None, 7])
def test_source_without_platform_is_refused(platform: Any) -> None:
    with pytest.raises(InvalidInput, match="platform"):
        SessionSource(platform=platform, chat_id="1")


def test_stored_entry_without_platform_is_read(
    store: SessionStore, db: SessionDB, folder: Path
) -> None:
    put_row(db, folder, make_stored_entry(platform="", origin=None))
    assert store.peek_session_id(KEY) == "s1"


@pytest.mark.requirement("store:unsafe")
@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get(chat()),
        lambda store: store.get(None),
        lambda store: store.reset_session(chat()),
        lambda store: store.switch_session(chat(), "s1"),
        lambda store: store.update_session(7),
        lambda store: store.get_or_create_session(KEY),
        lambda store: store.prune_old_entries("90"),
        lambda store: store.set_model_override(KEY, "a model"),
    ],
)
def test_wrong_argument_type_is_refused(
    any_store: SessionStore, call: Callable[[SessionStore], Any]
) -> None:
    any_store.get_or_create_session(chat())
    with pytest.raises(InvalidInput):
        call(any_store)


def build_recursive_dict() -> dict[str, Any]:
    endless: dict[str, Any] = {}
    endless["itself"] = endless
    return endless


@pytest.mark.parametrize("value", [{1}, b"x", object(), {("a",): 1}, build_recursive_dict()])
def test_unserializable_entry_is_refused(any_store: SessionStore, value: Any) -> None:
    any_store.get_or_create_session(chat())
    before = any_store.get(KEY)
    changed = any_store.get(KEY)
    assert changed is not None
    changed.extra["mine"] = value
    with pytest.raises(InvalidInput, match=r"cannot be stored.*`extra`"):
        any_store.save(changed)
    assert any_store.get(KEY) == before
    assert any_store.problems == []

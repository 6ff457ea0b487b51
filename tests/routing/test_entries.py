"""`SessionEntry`: stored fields, older and unknown fields, invalid values."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.chats import Platform, SessionSource
from session_core.errors import InvalidInput
from session_core.routing.entries import SessionEntry, to_local_time

KEY = "agent:main:telegram:dm:42"
NEEDED = {
    "session_key": KEY,
    "session_id": "20260101_000000_abcd1234",
    "created_at": "2026-01-01T00:00:00",
    "updated_at": "2026-01-02T03:04:05.000006",
}
DEFAULTS: dict[str, Any] = {
    "display_name": None,
    "platform": None,
    "chat_type": "dm",
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
    "total_tokens": 0,
    "last_prompt_tokens": 0,
    "estimated_cost_usd": 0.0,
    "cost_status": "unknown",
    "expiry_finalized": False,
    "suspended": False,
    "resume_pending": False,
    "resume_reason": None,
    "last_resume_marked_at": None,
    "is_fresh_reset": False,
    "was_auto_reset": False,
    "auto_reset_reason": None,
    "reset_had_activity": False,
}
SET: dict[str, Any] = {
    "display_name": "Ada",
    "platform": "telegram",
    "chat_type": "group",
    "input_tokens": 1,
    "output_tokens": 2,
    "cache_read_tokens": 3,
    "cache_write_tokens": 4,
    "total_tokens": 5,
    "last_prompt_tokens": 6,
    "estimated_cost_usd": 0.25,
    "cost_status": "known",
    "expiry_finalized": True,
    "suspended": True,
    "resume_pending": True,
    "resume_reason": "restart_timeout",
    "last_resume_marked_at": "2026-01-03T00:00:00",
    "is_fresh_reset": True,
    "was_auto_reset": True,
    "auto_reset_reason": "idle",
    "reset_had_activity": True,
    "model_override": {"model": "m", "provider": "p", "base_url": "u"},
    "origin": SessionSource(platform="telegram", chat_id="42").to_dict(),
}


def entry(**fields: Any) -> SessionEntry:
    return SessionEntry.from_dict({**NEEDED, **fields})


# The fields


def test_entry_fields_keep_hermes_order() -> None:
    assert list(entry().to_dict().items()) == list({**NEEDED, **DEFAULTS}.items())


def test_full_entry_round_trips() -> None:
    assert list(entry(**SET).to_dict().items()) == list({**NEEDED, **SET}.items())


@pytest.mark.parametrize("name", SET)
def test_single_field_round_trips_with_defaults(name: str) -> None:
    assert entry(**{name: SET[name]}).to_dict() == {**NEEDED, **DEFAULTS, name: SET[name]}


@pytest.mark.parametrize("name", DEFAULTS)
def test_null_field_becomes_default(name: str) -> None:
    assert entry(**{name: None}).to_dict() == {**NEEDED, **DEFAULTS}


@pytest.mark.parametrize("name", NEEDED)
def test_entry_without_required_field_is_refused(name: str) -> None:
    stored = {field: value for field, value in NEEDED.items() if field != name}
    with pytest.raises(InvalidInput, match=name):
        SessionEntry.from_dict(stored)


def test_new_entry_has_defaults() -> None:
    at = datetime.fromisoformat("2026-01-01")
    entry_of_chat = SessionEntry(
        session_key=KEY,
        session_id="s1",
        created_at=at,
        updated_at=at,
        platform=Platform.TELEGRAM,
        chat_type="dm",
    )
    assert entry_of_chat.to_dict() == {
        "session_key": KEY,
        "session_id": "s1",
        "created_at": "2026-01-01T00:00:00",
        "updated_at": "2026-01-01T00:00:00",
        **DEFAULTS,
        "platform": "telegram",
    }


def test_entry_accepts_platform_text() -> None:
    assert entry(platform="telegram").platform is Platform.TELEGRAM


def test_plugin_platform_is_kept() -> None:
    assert entry(platform="irc").to_dict()["platform"] == "irc"


# The older field name


def test_memory_flushed_is_read_as_finalized() -> None:
    assert entry(memory_flushed=True).to_dict() == {**NEEDED, **DEFAULTS, "expiry_finalized": True}


@pytest.mark.parametrize("finalized", [True, False])
def test_expiry_finalized_precedes_memory_flushed(finalized: bool) -> None:
    read = entry(expiry_finalized=finalized, memory_flushed=not finalized)
    assert read.expiry_finalized is finalized


# Unknown fields


def test_unknown_fields_are_stored_last() -> None:
    more = {"metadata": {"a": [1, None]}, "prev_session_id": "x", "_note": True}
    stored = entry(**more).to_dict()
    assert list(stored.items())[-3:] == list(more.items())


def test_api_key_is_never_stored() -> None:
    read = entry(model_override={"model": "m", "api_key": "secret"})
    assert read.to_dict()["model_override"] == {"model": "m"}


def test_api_key_set_later_is_not_stored() -> None:
    read = entry()
    read.model_override = {"api_key": "secret"}
    assert "model_override" not in read.to_dict()


@pytest.mark.parametrize("override", [{}, {"api_key": "secret"}, "m", 5, ["m"], {"model": ""}])
def test_empty_model_override_is_dropped(override: object) -> None:
    assert entry(model_override=override).to_dict() == {**NEEDED, **DEFAULTS}


@pytest.mark.parametrize("origin", ["chat", 5, ["x"], False])
def test_invalid_origin_is_kept_as_extra(origin: object) -> None:
    read = entry(origin=origin)
    assert (read.origin, read.to_dict()["origin"]) == (None, origin)


def test_valid_origin_replaces_invalid_origin() -> None:
    read = entry(origin="chat")
    read.origin = SessionSource(platform="local", chat_id="1")
    assert read.to_dict()["origin"] == read.origin.to_dict()


@pytest.mark.parametrize("origin", [{}, {"platform": "telegram"}, {"chat_id": "1"}])
def test_incomplete_origin_makes_entry_invalid(origin: object) -> None:
    with pytest.raises(InvalidInput):
        entry(origin=origin)


def test_origin_on_plugin_platform_is_read() -> None:
    read = entry(origin={"platform": "irc", "chat_id": "#x"})
    assert read.origin == SessionSource(platform="irc", chat_id="#x")


@pytest.mark.parametrize("name", ["input_tokens", "last_prompt_tokens", "estimated_cost_usd"])
@pytest.mark.parametrize("odd", ["x", "", [], {}, True, 10**400])
def test_invalid_count_becomes_zero(name: str, odd: object) -> None:
    assert getattr(entry(**{name: odd}), name) == 0


@pytest.mark.parametrize("stored", [None, [], "x", 5, True])
def test_entry_must_be_object(stored: Any) -> None:
    with pytest.raises(InvalidInput):
        SessionEntry.from_dict(stored)


# Path safety


@pytest.mark.parametrize("unsafe", ["../x", "a/b", "a\\b", "C:x", "a\0b", "\ud800"])
def test_unsafe_session_id_is_refused(unsafe: str) -> None:
    with pytest.raises(InvalidInput, match="session id"):
        entry(session_id=unsafe)


@pytest.mark.parametrize("unsafe", ["a:..", "/a", "\\a", "C:x"])
def test_unsafe_session_key_is_refused(unsafe: str) -> None:
    with pytest.raises(InvalidInput, match="session key"):
        entry(session_key=unsafe)


def test_session_key_can_contain_path() -> None:
    key = "agent:main:google_chat:group:spaces/X"
    assert entry(session_key=key).session_key == key


# Times


@pytest.mark.parametrize("name", ["created_at", "updated_at"])
@pytest.mark.parametrize("broken", ["yesterday", "", None, 5, "2026-13-01T00:00:00"])
def test_entry_without_valid_time_is_refused(name: str, broken: object) -> None:
    with pytest.raises(InvalidInput, match="time"):
        entry(**{name: broken})


@pytest.mark.parametrize("broken", ["yesterday", "", 5, False, {}])
def test_invalid_optional_time_is_dropped(broken: object) -> None:
    assert entry(last_resume_marked_at=broken).last_resume_marked_at is None


def test_zoned_time_becomes_local() -> None:
    read = entry(updated_at="2026-01-02T03:04:05+05:00", created_at="2026-01-01T00:00:00Z")
    here = datetime(2026, 1, 1, 22, 4, 5, tzinfo=timezone.utc).astimezone().replace(tzinfo=None)
    assert read.updated_at == here
    assert read.created_at.tzinfo is None


def test_zoned_time_set_later_becomes_local() -> None:
    read = entry()
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    read.created_at = read.updated_at = read.last_resume_marked_at = at
    here = at.astimezone().replace(tzinfo=None).isoformat()
    names = ("created_at", "updated_at", "last_resume_marked_at")
    assert [read.to_dict()[name] for name in names] == [here] * 3


def test_out_of_range_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="calendar"):
        to_local_time(datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))))


def test_entry_time_must_be_datetime() -> None:
    with pytest.raises(InvalidInput):
        to_local_time("2026-01-01")  # type: ignore[arg-type]


# Copies


def test_entry_copy_is_independent() -> None:
    read = entry(**SET, more={"a": 1})
    copy = read.copy()
    assert copy == read
    copy.extra["b"] = 2
    copy.suspended = False
    assert copy.origin is not None
    assert copy.model_override is not None
    copy.origin.chat_id, copy.model_override["model"] = "43", "n"
    assert read.to_dict() == {**NEEDED, **SET, "more": {"a": 1}}


# Arbitrary values

text = st.text(max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
times = st.datetimes()
counts = st.integers(min_value=0)
entries = st.builds(
    SessionEntry,
    session_key=st.just(KEY),
    session_id=st.text("abc019_", min_size=1),
    created_at=times,
    updated_at=times,
    origin=st.none() | st.builds(SessionSource, platform=st.sampled_from(Platform), chat_id=text),
    platform=st.none() | st.sampled_from([*Platform, "irc"]),
    display_name=st.none() | text,
    chat_type=st.sampled_from(["dm", "group"]),
    last_prompt_tokens=counts,
    estimated_cost_usd=st.floats(min_value=0, allow_infinity=False),
    suspended=st.booleans(),
    expiry_finalized=st.booleans(),
    resume_pending=st.booleans(),
    last_resume_marked_at=st.none() | times,
    model_override=st.none() | st.dictionaries(st.just("model"), st.text(min_size=1), min_size=1),
    extra=st.dictionaries(st.text("xyz", min_size=1), json_values, max_size=2),
)


@given(entries)
def test_random_entry_round_trips(random_entry: SessionEntry) -> None:
    assert SessionEntry.from_dict(json.loads(json.dumps(random_entry.to_dict()))) == random_entry


@given(st.dictionaries(st.sampled_from([*NEEDED, *SET, "memory_flushed", "x"]), json_values))
def test_random_stored_fields_are_read_or_refused(odd: dict[str, Any]) -> None:
    for stored in (odd, {**NEEDED, **odd}, {**odd, **NEEDED}):
        try:
            read = SessionEntry.from_dict(stored)
        except InvalidInput:
            continue
        assert SessionEntry.from_dict(json.loads(json.dumps(read.to_dict()))) == read

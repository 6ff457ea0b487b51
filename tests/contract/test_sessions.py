"""Sessions: created, filled, ended, reopened, archived, routed, and the values of `state_meta`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from session_core import InvalidInput, NotFound, Revision, StateDatabase
from tests.contract.engines import has_column, require_column

Open = Callable[[], StateDatabase]


def read_row(db: StateDatabase, session_id: str) -> dict[str, Any]:
    row = db.get_session(session_id)
    assert row is not None
    return dict(row)


@pytest.mark.requirement("sessions:mapping")
def test_created_session_reads_as_mapping(db: StateDatabase) -> None:
    before = time.time()
    assert db.create_session("s", "cli", model="m") == "s"
    row = read_row(db, "s")
    assert (row["id"], row["source"], row["model"]) == ("s", "cli", "m")
    assert before <= row["started_at"] <= time.time()
    assert (row["ended_at"], row["end_reason"], row["title"]) == (None, None, None)
    assert (row["message_count"], row["tool_call_count"], row["archived"]) == (0, 0, 0)


def test_create_session_accepts_names_and_positions(db: StateDatabase) -> None:
    db.create_session("p", "cli")
    db.create_session(session_id="s", source="tui", model=None, parent_session_id="p")
    assert read_row(db, "s")["parent_session_id"] == "p"


def test_get_session_returns_none_for_missing_id(db: StateDatabase) -> None:
    assert db.get_session("nobody") is None
    db.create_session("s", "cli")
    assert db.get_session("nobody") is None


def test_used_folders_are_counted(db: StateDatabase) -> None:
    for at, cwd in enumerate(("/a", "/b", "/a", "  ", None)):
        fields = {} if cwd is None else {"cwd": cwd}
        db.create_session(f"s{at}", "cli", started_at=float(at), **fields)
    db.create_session("archived", "cli", started_at=9.0, cwd="/c")
    db.set_session_archived("archived", archived=True)
    used = [("/a", 2, 2.0), ("/b", 1, 1.0)] if has_column(db, "cwd") else []
    assert db.sdk.distinct_session_cwds() == used
    with_archived = [("/c", 1, 9.0), *used] if used else []
    assert db.sdk.distinct_session_cwds(include_archived=True) == with_archived


@pytest.mark.requirement("sessions:create")
def test_second_create_fills_only_empty_fields(db: StateDatabase) -> None:
    db.create_session("s", "cli", started_at=5.0, cwd="/a")
    first = read_row(db, "s")
    db.create_session(
        "s", "tui", model="m", started_at=9.0, cwd="/b", system_prompt="be kind", user_id="u"
    )
    assert read_row(db, "s") == {**first, "model": "m", "system_prompt": "be kind"}


@pytest.mark.requirement("sessions:create")
def test_second_create_never_sets_user(db: StateDatabase) -> None:
    db.create_session("s", "cli", user_id="first")
    db.create_session("s", "cli", user_id="second")
    assert read_row(db, "s")["user_id"] == "first"


def test_second_create_keeps_end_and_title(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.set_session_title("s", "Trip")
    db.end_session("s", "cli_close")
    ended = read_row(db, "s")
    db.create_session("s", "cli")
    assert read_row(db, "s") == ended


def test_second_create_fills_parent(db: StateDatabase) -> None:
    db.create_session("p", "cli")
    db.create_session("s", "cli")
    db.create_session("s", "cli", parent_session_id="p")
    assert read_row(db, "s")["parent_session_id"] == "p"


def test_create_session_stores_mapping_as_json(db: StateDatabase) -> None:
    db.create_session("s", "cli", model_config={"_branched_from": "x"})
    assert json.loads(read_row(db, "s")["model_config"]) == {"_branched_from": "x"}


def test_create_session_stores_gateway_peer(db: StateDatabase) -> None:
    peer: dict[str, Any] = {"session_key": "k", "chat_id": "c", "chat_type": "dm", "thread_id": "t"}
    db.create_session("s", "telegram", user_id="u", **peer)
    row = read_row(db, "s")
    expected = {name: value for name, value in peer.items() if name in row}
    assert {name: row[name] for name in expected} == expected
    assert row["user_id"] == "u"


@pytest.mark.requirement("sessions:invalid")
@pytest.mark.parametrize("session_id", ["", None, 5, "\ud800"])
def test_create_session_rejects_invalid_id(db: StateDatabase, session_id: Any) -> None:
    with pytest.raises(InvalidInput):
        db.create_session(session_id, "cli")


@pytest.mark.requirement("sessions:invalid")
@pytest.mark.parametrize(
    "fields",
    [
        {"source": ""},
        {"source": None},
        {"source": b"cli"},
        {"source": 5},
        {"bogus": 1},
        {"title": "by its own verb"},
        {"id": "t"},
        {"id) VALUES ('x'); --": 1},
        {"cwd": object()},
        {"cwd": b"/srv"},
        {"model_config": {"a": object()}},
        {"model_config": {"a": float("nan")}},
        {"started_at": "yesterday"},
        {"started_at": float("nan")},
        {"started_at": float("inf")},
        {"user_id": 2**70},
    ],
)
def test_create_session_rejects_invalid_fields(db: StateDatabase, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        db.create_session("s", **{"source": "cli", **fields})
    assert db.get_session("s") is None


@pytest.mark.parametrize("create", ["cli", ["source", "cli"], 5, {"source": b"cli"}])
def test_lazy_creation_rejects_invalid_fields(db: StateDatabase, create: Any) -> None:
    with pytest.raises(InvalidInput):
        db.append_message("s", "user", "x", create=create)
    assert db.get_session("s") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_id": b"42"},
        {"model": ["m"]},
        {"compression_failure_cooldown_until": float("nan")},
        {"compression_fallback_streak": "often"},
    ],
)
def test_update_session_rejects_invalid_fields_without_changes(
    db: StateDatabase, fields: dict[str, Any]
) -> None:
    db.create_session("s", "cli")
    before = read_row(db, "s")
    with pytest.raises(InvalidInput):
        db.update_session("s", **fields)
    assert read_row(db, "s") == before


def test_numeric_chat_id_reads_as_text(db: StateDatabase) -> None:
    number: Any = -100_200_300
    db.create_session("s", "telegram", user_id=number)
    assert read_row(db, "s")["user_id"] == "-100200300"


@pytest.mark.parametrize("reason", [b"cli_close", 5, ["x"]])
def test_end_session_rejects_non_text_reason(db: StateDatabase, reason: Any) -> None:
    db.create_session("s", "cli")
    for end in (db.end_session, db.promote_to_session_reset):
        with pytest.raises(InvalidInput):
            end("s", reason)
    assert read_row(db, "s")["ended_at"] is None


def test_set_meta_accepts_only_text(db: StateDatabase) -> None:
    for key, value in ((b"k", "v"), ("k", b"v"), ("k", None), ("k", 5)):
        with pytest.raises(InvalidInput):
            db.set_meta(key, value)  # type: ignore[arg-type]
    assert db.get_meta("k") is None


def test_create_session_rejects_unknown_parent(db: StateDatabase) -> None:
    with pytest.raises(NotFound):
        db.create_session("s", "cli", parent_session_id="nobody")
    assert db.get_session("s") is None


@pytest.mark.parametrize(
    "session_id", ["_x", "a b", "é", "日本", "a'b", 'a"b', "a%b", "a_b", "..", "a\x00b", "😀" * 200]
)
def test_session_ids_are_opaque(db: StateDatabase, reopen: Open, session_id: str) -> None:
    db.create_session(session_id, "cli")
    db.append_message(session_id, "user", "x")
    reopened = reopen()
    assert read_row(reopened, session_id)["id"] == session_id
    assert reopened.message_count(session_id) == 1
    assert [line.id for line in reopened.list_sessions().items] == [session_id]


def test_session_text_replaces_surrogates(db: StateDatabase) -> None:
    db.create_session("s", "cli", cwd="/a\ud83d", display_name="b\ude00")
    assert read_row(db, "s")["cwd"] == "/a\ufffd"


# -- lazy creation ---------------------------------------------------------------------------


@pytest.mark.requirement("sessions:lazy")
def test_first_message_creates_session_atomically(db: StateDatabase, other: StateDatabase) -> None:
    assert other.list_sessions().items == []
    appended = db.append_message("s", "user", "x", create={"source": "cli", "model": "m"})
    assert appended.before == Revision(0, 0, 0, 0, None)
    row = read_row(other, "s")
    assert (row["source"], row["model"], row["message_count"]) == ("cli", "m", 1)


@pytest.mark.requirement("sessions:lazy")
def test_rejected_message_creates_no_session(db: StateDatabase) -> None:
    with pytest.raises(InvalidInput):
        db.append_message("s", "user", "x", create={"source": "cli"}, bogus=1)
    with pytest.raises(InvalidInput):
        db.append_message("s", "user", "x", create={"bogus": "cli"})
    assert db.get_session("s") is None


@pytest.mark.requirement("sessions:lazy")
def test_empty_message_batch_creates_no_session(db: StateDatabase) -> None:
    appended = db.append_messages("s", [], create={"source": "cli"})
    assert appended.ids == ()
    assert db.get_session("s") is None


def test_lazy_creation_keeps_existing_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    first = read_row(db, "s")
    db.append_message("s", "user", "x", create={"source": "tui", "model": "m"})
    assert read_row(db, "s") == {**first, "message_count": 1} | {
        name: value for name, value in read_row(db, "s").items() if name == "last_activity_at"
    }


def test_lazy_creation_rejects_unknown_parent(db: StateDatabase) -> None:
    with pytest.raises(NotFound):
        db.append_message("s", "user", "x", create={"source": "cli", "parent_session_id": "nobody"})
    assert db.get_session("s") is None


# -- update ----------------------------------------------------------------------------------


def test_update_session_overwrites_and_reports_existence(db: StateDatabase) -> None:
    db.create_session("s", "cli", model="m", cwd="/a")
    first = read_row(db, "s")
    assert db.update_session("s", model="n", cwd=None)
    assert read_row(db, "s") == {**first, "model": "n", "cwd": None}
    assert not db.update_session("nobody", model="n")
    assert db.update_session("s")
    assert not db.update_session("nobody")


@pytest.mark.parametrize("name", ["id", "source", "title", "ended_at", "message_count", "bogus"])
def test_update_session_rejects_fields_with_own_method(db: StateDatabase, name: str) -> None:
    db.create_session("s", "cli")
    with pytest.raises(InvalidInput):
        db.update_session("s", **{name: "x"})


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("sessions:looking")
@pytest.mark.parametrize("name", ["session_key", "display_name", "git_branch", "pinned"])
def test_update_session_rejects_missing_column_as_unsupported(db: StateDatabase, name: str) -> None:
    db.create_session("s", "cli")
    with require_column(db, name):
        assert db.update_session("s", **{name: 1})
        assert read_row(db, "s")[name] in (1, "1")


# -- end, reopen, promote --------------------------------------------------------------------


@pytest.mark.requirement("sessions:end")
def test_end_session_keeps_first_reason(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    before = time.time()
    assert db.end_session("s", "cli_close")
    ended = read_row(db, "s")
    assert ended["end_reason"] == "cli_close"
    assert before <= ended["ended_at"] <= time.time()
    assert not db.end_session("s", "session_reset")
    assert read_row(db, "s") == ended


@pytest.mark.requirement("sessions:end")
def test_end_session_accepts_missing_reason(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.end_session("s", None)
    assert read_row(db, "s")["ended_at"] is not None
    assert not db.end_session("s", "late")
    assert read_row(db, "s")["end_reason"] is None


@pytest.mark.requirement("sessions:reopen")
def test_reopen_session_clears_end(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    first = read_row(db, "s")
    db.end_session("s", "cli_close")
    assert db.reopen_session("s")
    assert read_row(db, "s") == first
    assert db.end_session("s", "again")


@pytest.mark.requirement("sessions:promote")
@pytest.mark.parametrize(
    ("reason", "promoted"),
    [
        (None, True),
        ("agent_close", True),
        ("ws_orphan_reap", True),
        ("cli_close", False),
        ("compression", False),
    ],
)
def test_reset_promotes_only_open_or_agent_closed(
    db: StateDatabase, reason: str | None, promoted: bool
) -> None:
    db.create_session("s", "cli")
    if reason is not None:
        db.end_session("s", reason)
    assert db.promote_to_session_reset("s") is promoted
    assert read_row(db, "s")["end_reason"] == ("session_reset" if promoted else reason)


def test_reset_promotion_accepts_custom_reason(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.promote_to_session_reset("s", "daily")
    assert read_row(db, "s")["end_reason"] == "daily"


def test_reset_skips_session_ended_without_reason(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.end_session("s", None)
    assert not db.promote_to_session_reset("s")


# -- archive ---------------------------------------------------------------------------------


def make_chain(db: StateDatabase, *ids: str) -> None:
    """Make a conversation that was compressed into a new session at each step."""
    for place, session_id in enumerate(ids):
        parent = ids[place - 1] if place else None
        db.create_session(session_id, "cli", parent_session_id=parent, started_at=place + 1.0)
        if place + 1 < len(ids):
            db.end_session(session_id, "compression")


@pytest.mark.requirement("sessions:archive")
@pytest.mark.parametrize("named", ["a", "b", "c"])
def test_archive_session_covers_whole_lineage(db: StateDatabase, named: str) -> None:
    make_chain(db, "a", "b", "c")
    db.create_session("branch", "cli", parent_session_id="c", model_config={"_branched_from": "c"})
    db.create_session("helper", "cli", parent_session_id="a", model_config={"_delegate_from": "a"})
    assert db.set_session_archived(named, archived=True) == 3
    archived = [
        name for name in ("a", "b", "c", "branch", "helper") if read_row(db, name)["archived"]
    ]
    assert archived == ["a", "b", "c"]
    assert db.set_session_archived(named, archived=True) == 0
    assert db.set_session_archived(named, archived=False) == 3
    assert not any(read_row(db, name)["archived"] for name in ("a", "b", "c"))


def test_archive_session_covers_abandoned_continuation(db: StateDatabase) -> None:
    make_chain(db, "a", "b")
    db.create_session("fork", "cli", parent_session_id="a")
    assert db.set_session_archived("b", archived=True) == 3
    assert read_row(db, "fork")["archived"] == 1


# -- gateway fields --------------------------------------------------------------------------


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("sessions:expiry")
def test_expiry_finalized_requires_column(db: StateDatabase) -> None:
    db.create_session("s", "telegram")
    with require_column(db, "expiry_finalized"):
        assert db.set_expiry_finalized("s")
        assert read_row(db, "s")["expiry_finalized"] == 1
        assert db.set_expiry_finalized("s", finalized=False)
        assert read_row(db, "s")["expiry_finalized"] == 0
        assert not db.set_expiry_finalized("nobody")


@pytest.mark.requirement("sessions:peer")
def test_record_peer_keeps_name_unless_given(db: StateDatabase) -> None:
    db.create_session("s", "cli", user_id="old")
    full = {"session_key": "k", "chat_id": "c", "chat_type": "dm", "thread_id": "t"}
    named = {"display_name": "Ann", "origin_json": "{}"}
    assert db.record_gateway_session_peer("s", source="telegram", user_id="u", **full, **named)
    first = read_row(db, "s")
    expected = {"source": "telegram", "user_id": "u", **full, **named}
    here = {name: value for name, value in expected.items() if name in first}
    assert {name: first[name] for name in here} == here
    assert db.record_gateway_session_peer("s", source="discord")
    emptied = {name: None for name in full if name in first}
    assert read_row(db, "s") == {**first, "source": "discord", "user_id": None, **emptied}


def test_record_peer_ignores_unknown_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert not db.record_gateway_session_peer("nobody", source="telegram")
    assert db.get_session("nobody") is None


def test_record_peer_requires_source_and_cleans_text(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    with pytest.raises(InvalidInput):
        db.record_gateway_session_peer("s", source="")
    assert db.record_gateway_session_peer("s", source="telegram", user_id="u\ud800")
    assert read_row(db, "s")["user_id"] == "u\ufffd"


# -- unknown sessions, ids by prefix, meta ---------------------------------------------------


def test_boolean_methods_return_false_for_unknown_session(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert not db.end_session("nobody", "x")
    assert not db.reopen_session("nobody")
    assert not db.promote_to_session_reset("nobody")
    assert db.set_session_archived("nobody", archived=True) == 0
    assert db.get_session("nobody") is None


@pytest.mark.requirement("sessions:unknown")
@pytest.mark.parametrize(
    "verb",
    [
        lambda db: db.get_revision("20260102_nobody"),
        lambda db: db.append_message("20260102_nobody", "user", "x"),
        lambda db: db.append_messages("20260102_nobody", []),
        lambda db: db.read_window("20260102_nobody"),
        lambda db: db.rewind_to_message("20260102_nobody", 1),
        lambda db: db.restore_rewound("20260102_nobody", 1),
        lambda db: db.replace_messages("20260102_nobody", []),
        lambda db: db.clear_messages("20260102_nobody"),
        lambda db: db.summarize_session("20260102_nobody"),
        lambda db: db.record_auxiliary_usage("20260102_nobody", "vision", input_tokens=1),
    ],
)
def test_unknown_session_error_suggests_nearest_ids(
    db: StateDatabase, verb: Callable[[StateDatabase], Any]
) -> None:
    db.create_session("20260101_first", "cli")
    with pytest.raises(NotFound) as caught:
        verb(db)
    assert caught.value.nearest == ("20260101_first",)
    assert "20260102_nobody" in str(caught.value)
    assert db.get_session("20260102_nobody") is None


def test_surrogate_in_session_id_is_rejected(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    for look in (
        db.get_session,
        db.get_revision,
        db.get_messages,
        db.list_children,
        db.summarize_session,
    ):
        with pytest.raises((InvalidInput, NotFound)):
            look("\ud800")


def test_resolve_session_id_prefers_whole_name(db: StateDatabase) -> None:
    for session_id in ("t1@shop@ann", "t10@shop@ann", "t2@shop@ann", "t2@shop@bo", "t3@s", "t3#a"):
        db.create_session(session_id, "cli")
    assert db.resolve_session_id("t1") == "t1@shop@ann"
    assert db.resolve_session_id("t10") == "t10@shop@ann"
    assert db.resolve_session_id("t2") is None
    assert db.resolve_session_id("t2@shop@b") == "t2@shop@bo"
    assert db.resolve_session_id("t3") == "t3@s"


def test_resolve_session_id_prefers_session_to_subagents(db: StateDatabase) -> None:
    for session_id in ("5a9d@shop", *(f"5a9d@shop#agent-{number}" for number in range(8))):
        db.create_session(session_id, "cli")
    db.create_session("77#alone", "cli")
    assert db.resolve_session_id("5a9d") == db.resolve_session_id("5a") == "5a9d@shop"
    assert db.resolve_session_id("5a9d@shop#agent-3") == "5a9d@shop#agent-3"
    assert db.resolve_session_id("5a9d@shop#agent") is None
    assert db.resolve_session_id("77") == "77#alone"
    db.create_session("5aff@shop", "cli")
    assert db.resolve_session_id("5a") is None


def test_resolve_session_id_accepts_unique_prefix(db: StateDatabase) -> None:
    for session_id in ("20260101_aa", "20260101_ab", "2026", "x%_1", "x%_2", "\U0010ffff"):
        db.create_session(session_id, "cli")
    assert db.resolve_session_id("20260101_aa") == "20260101_aa"
    assert db.resolve_session_id("20260101_ab") == "20260101_ab"
    assert db.resolve_session_id("20260101_a") is None
    assert db.resolve_session_id("2026") == "2026"
    assert db.resolve_session_id("x%_") is None
    assert db.resolve_session_id("%") is None
    assert db.resolve_session_id("") is None
    assert db.resolve_session_id("nobody") is None


def test_set_meta_stores_value(db: StateDatabase, reopen: Open) -> None:
    assert db.get_meta("ours") is None
    db.set_meta("ours", "1")
    db.set_meta("ours", "2")
    assert reopen().get_meta("ours") == "2"


def test_delete_meta_removes_value(db: StateDatabase, reopen: Open) -> None:
    assert db.delete_meta("ours") is False
    db.set_meta("ours", "1")
    db.set_meta("ours, too", "1")
    assert db.delete_meta("ours") is True
    reopened = reopen()
    assert (reopened.get_meta("ours"), reopened.get_meta("ours, too")) == (None, "1")


def test_home_reports_kind_and_id(db: StateDatabase) -> None:
    kind = db.kind
    assert kind in ("own", "hermes")
    db.create_session("s", "cli")
    assert db.kind == kind


@pytest.mark.schemas(16, 30)
def test_home_kind_is_read_from_file(db: StateDatabase) -> None:
    assert not has_column(db, "bogus")
    assert has_column(db, "archived")
    assert db.get_session("probe") is None


def test_empty_model_config_is_filled_later(db: StateDatabase) -> None:
    db.create_session("s", "cli", model_config={})
    assert read_row(db, "s")["model_config"] is None
    db.create_session("s", "cli", model_config={"a": 1})
    assert json.loads(read_row(db, "s")["model_config"]) == {"a": 1}

"""Unknown ids: an empty result, False, `NotFound`, or the id itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import NotFound, SessionFilter, StateDatabase
from tests.contract.engines import require_column

Call = Callable[[Any], Any]
NOTHING: dict[str, tuple[Call, Any]] = {
    "row": (lambda db: db.get_session("n"), None),
    "id": (lambda db: db.resolve_session_id("n"), None),
    "title": (lambda db: db.get_session_title("n"), None),
    "by title": (lambda db: db.get_session_by_title("n"), None),
    "by lineage": (lambda db: db.resolve_session_by_title("n"), None),
    "message": (lambda db: db.get_message(99), None),
    "messages": (lambda db: db.get_messages("n"), []),
    "conversation": (lambda db: db.get_messages_as_conversation("n", include_ancestors=True), []),
    "count": (lambda db: db.message_count("n"), 0),
    "platform": (lambda db: db.has_platform_message_id("n", "p"), False),
    "archived messages": (lambda db: db.sdk.has_archived_messages("n"), False),
    "user messages": (lambda db: db.sdk.list_recent_user_messages("n"), []),
    "counted": (lambda db: db.sdk.session_count(SessionFilter(ids=("n",))), 0),
    "usage": (lambda db: db.admin.get_model_usage("n"), []),
    "link": (lambda db: db.get_link_kind("n"), None),
    "children": (lambda db: db.list_children("n"), []),
    "holder": (lambda db: db.get_compression_lock_holder("n"), None),
    "find": (lambda db: db.find_sessions(SessionFilter(ids=("n",))), []),
    "changes": (lambda db: db.read_changes(session="n").events, []),
}
NO: dict[str, tuple[Call, Any]] = {
    "update": (lambda db: db.update_session("n", model="x"), False),
    "end": (lambda db: db.end_session("n", "x"), False),
    "promote": (lambda db: db.promote_to_session_reset("n"), False),
    "reopen": (lambda db: db.reopen_session("n"), False),
    "archive": (lambda db: db.set_session_archived("n", archived=True), 0),
    "peer": (lambda db: db.record_gateway_session_peer("n", source="x"), False),
    "title": (lambda db: db.set_session_title("n", "x"), False),
    "auto title": (lambda db: db.set_auto_title_if_empty("n", "x"), False),
    "fields": (lambda db: db.rows.put_session_fields("n", {"title": "x"}), False),
    "no fields": (lambda db: db.rows.put_session_fields("n", {}), False),
    "delete": (lambda db: db.delete_session("n"), False),
    "delete if empty": (lambda db: db.sdk.delete_session_if_empty("n"), False),
    "delete some": (lambda db: db.delete_sessions(["n"]), 0),
}
ITSELF: dict[str, tuple[Call, Any]] = {
    "tip": (lambda db: db.get_compression_tip("n"), "n"),
    "resumed": (lambda db: db.sdk.resolve_resume_session_id("n"), "n"),
    "root": (lambda db: db.get_conversation_root("n"), "n"),
    "lineage": (lambda db: db.get_compression_lineage("n"), ["n"]),
}
NOT_FOUND: dict[str, Call] = {
    "revision": lambda db: db.get_revision("n"),
    "summarize": lambda db: db.summarize_session("n"),
    "window": lambda db: db.read_window("n"),
    "window around": lambda db: db.read_window("s", around=99),
    "search": lambda db: db.search("x", session="n"),
    "recount": lambda db: db.admin.recount_session("n"),
    "parent": lambda db: db.create_session("m", "cli", parent_session_id="n"),
    "first parent": lambda db: db.append_message(
        "m", "user", "x", create={"source": "cli", "parent_session_id": "n"}
    ),
    "later parent": lambda db: db.update_session("s", parent_session_id="n"),
    "tokens of": lambda db: db.record_auxiliary_usage("n", "title", input_tokens=1),
    "append": lambda db: db.append_message("n", "user", "x"),
    "append none": lambda db: db.append_messages("n", []),
    "rewind": lambda db: db.rewind_to_message("n", 1),
    "rewind to": lambda db: db.rewind_to_message("s", 99),
    "restore": lambda db: db.restore_rewound("n", 1),
    "replace": lambda db: db.replace_messages("n", []),
    "clear": lambda db: db.clear_messages("n"),
    "copy from": lambda db: db.rows.copy_messages("n", [], "s"),
    "copy some from": lambda db: db.rows.copy_messages("n", [1], "s"),
    "copy to": lambda db: db.rows.copy_messages("s", [], "n"),
    "usage": lambda db: db.record_auxiliary_usage("n", "title"),
}
COMPACTING: dict[str, Call] = {
    "archive": lambda db: db.archive_and_compact("n", []),
    "compact": lambda db: db.rows.compact_messages("n", [], []),
    "revive": lambda db: db.rows.restore_compacted("n", []),
}
TABLES = {"nothing": NOTHING, "no": NO, "itself": ITSELF}
ANSWERS = {f"{kind}-{name}": each for kind, table in TABLES.items() for name, each in table.items()}


@pytest.fixture
def filled_database(db: StateDatabase) -> StateDatabase:
    db.append_message("s", "user", "said", create={"source": "cli"})
    return db


def is_untouched(db: StateDatabase) -> bool:
    return db.find_sessions(SessionFilter(status="all")) == ["s"] and db.message_count() == 1


@pytest.mark.requirement("errors:unknown-ids")
@pytest.mark.parametrize(("call", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_unknown_id_returns_documented_value(
    filled_database: StateDatabase, call: Call, answer: Any
) -> None:
    assert call(filled_database) == answer
    assert is_untouched(filled_database)


@pytest.mark.requirement("errors:unknown-ids")
@pytest.mark.parametrize("call", NOT_FOUND.values(), ids=NOT_FOUND)
def test_unknown_required_id_raises_not_found(filled_database: StateDatabase, call: Call) -> None:
    with pytest.raises(NotFound, match=r"'n'|99"):
        call(filled_database)
    assert is_untouched(filled_database)


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("errors:unknown-ids")
@pytest.mark.parametrize("call", COMPACTING.values(), ids=COMPACTING)
def test_compaction_of_unknown_session_raises_not_found(
    filled_database: StateDatabase, call: Call
) -> None:
    with require_column(filled_database, "compacted"), pytest.raises(NotFound):
        call(filled_database)


def test_usage_of_unknown_session_creates_session(filled_database: StateDatabase) -> None:
    filled_database.update_token_counts("n", input_tokens=1)
    assert (filled_database.get_session("n") or {})["source"] == "unknown"


def test_put_session_fields_empty_reports_existence(filled_database: StateDatabase) -> None:
    assert filled_database.rows.put_session_fields("s", {})

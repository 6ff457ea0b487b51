"""Invalid arguments: the error names the argument, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import InvalidInput, NotFound, SessionFilter, StateDatabase

NAN = float("nan")
NO_LIMITS: tuple[Any, ...] = (0, -1, None, "20", 1.5, NAN, [])
NO_TEXTS: tuple[Any, ...] = (b"x", 5, ["x"], {"x": 1})
TOO_MANY = [f"/{number}" for number in range(201)]
NO_FOLDERS: tuple[Any, ...] = (b"x", 5, {"x": 1}, [5], [None], [b"x"], [["x"]], TOO_MANY)
NO_LISTS: tuple[Any, ...] = ("cli", b"cli", 5, [5], [None], [b"cli"], [["cli"]])
NO_NUMBERS: tuple[Any, ...] = ("5", b"5", [5], NAN, float("inf"))
NO_NUMBER_LISTS: tuple[Any, ...] = (None, 5, "5", ["5"], [None], [1.5], [[5]])
NO_MAPPINGS: tuple[Any, ...] = (None, 5, "s", ["s"])
NO_MESSAGES: tuple[Any, ...] = (None, 5, "text", {"role": "user"}, [None], ["text"], [["user"]])

Call = Callable[[Any, Any], Any]
CALLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "list limit": (lambda db, bad: db.list_sessions(limit=bad), NO_LIMITS),
    "list order": (lambda db, bad: db.list_sessions(order=bad), (None, ["recent"], "x" * 9999)),
    "list filter": (lambda db, bad: db.list_sessions(bad), ({}, {"source": "cli"}, "cli", [])),
    "find filter": (lambda db, bad: db.find_sessions(bad), (None, {}, "cli")),
    "search query": (lambda db, bad: db.search(bad), (None, *NO_TEXTS)),
    "search limit": (lambda db, bad: db.search("said", limit=bad), NO_LIMITS),
    "search source": (lambda db, bad: db.search("said", source=bad), NO_LISTS),
    "search roles": (lambda db, bad: db.search("said", roles=bad), NO_LISTS),
    "search project": (lambda db, bad: db.search("said", project=bad), NO_FOLDERS),
    "search session": (lambda db, bad: db.search("said", session=bad), NO_TEXTS),
    "search status": (lambda db, bad: db.search("said", status=bad), ("x", 5, ["open"], {})),
    "search since": (lambda db, bad: db.search("said", since=bad), NO_NUMBERS),
    "search until": (lambda db, bad: db.search("said", until=bad), NO_NUMBERS),
    "window limit": (lambda db, bad: db.read_window("s", limit=bad), NO_LIMITS),
    "window edge": (lambda db, bad: db.read_window("s", after=bad), NO_NUMBERS),
    "window view": (lambda db, bad: db.read_window("s", view=bad), (None, ["live"], "all")),
    "window roles": (lambda db, bad: db.read_window("s", roles=bad), NO_LISTS),
    "drift limit": (lambda db, bad: db.admin.find_drifted_sessions(bad), NO_LIMITS),
    "read limit": (lambda db, bad: db.get_messages("s", limit=bad), (0, -5, "5", 1.5)),
    "read offset": (lambda db, bad: db.get_messages("s", offset=bad), (-1, None, "5", 1.5)),
    "append": (lambda db, bad: db.append_messages("s", bad), NO_MESSAGES),
    "replace": (lambda db, bad: db.replace_messages("s", bad), NO_MESSAGES),
    "replace some": (lambda db, bad: db.replace_messages("s", [], bad), (None, "no", 2, [])),
    "restore": (lambda db, bad: db.restore_rewound("s", bad), (None, *NO_NUMBERS)),
    "compact": (lambda db, bad: db.archive_and_compact("s", bad), NO_MESSAGES),
    "summarise": (lambda db, bad: db.rows.compact_messages("s", bad, []), NO_NUMBER_LISTS),
    "summary": (lambda db, bad: db.rows.compact_messages("s", [], bad), NO_MESSAGES),
    "carry": (lambda db, bad: db.rows.compact_messages("s", [], [], carry=bad), NO_NUMBER_LISTS),
    "copy": (lambda db, bad: db.rows.copy_messages("s", bad, "s"), NO_NUMBER_LISTS),
    "revive": (lambda db, bad: db.rows.restore_compacted("s", bad), NO_NUMBER_LISTS),
    "drop": (lambda db, bad: db.rows.restore_compacted("s", [], drop=bad), NO_NUMBER_LISTS),
    "fields": (lambda db, bad: db.rows.put_session_fields("s", bad), (None, 5, "title", ["title"])),
    "lock holder": (lambda db, bad: db.try_acquire_compression_lock("s", bad), (None, *NO_TEXTS)),
    "lock time": (lambda db, bad: db.refresh_compression_lock("s", "x", bad), (None, *NO_NUMBERS)),
    "changes limit": (lambda db, bad: db.read_changes(limit=bad), NO_LIMITS),
    "changes session": (lambda db, bad: db.read_changes(session=bad), NO_TEXTS),
    "changes time": (lambda db, bad: db.read_changes(timeout_s=bad), (None, "5", -1, NAN, [])),
    "resolve title": (lambda db, bad: db.resolve_session_by_title(bad), (None, *NO_TEXTS)),
    "archive": (lambda db, bad: db.set_session_archived("s", bad), (None, "no", 2, NAN, [])),
    "finalize": (lambda db, bad: db.set_expiry_finalized("s", bad), (None, "no", 2, [])),
    "title": (lambda db, bad: db.set_session_title("s", bad), NO_TEXTS),
    "auto title": (lambda db, bad: db.set_auto_title_if_empty("s", bad), NO_TEXTS),
    "next title": (lambda db, bad: db.get_next_title_in_lineage(bad), NO_TEXTS),
    "delete": (lambda db, bad: db.delete_sessions(bad), ("s", *NO_LISTS)),
    "remove": (
        lambda db, bad: db.rows.remove_messages(bad),
        (*NO_MAPPINGS, {"s": 5}, {"s": ["x", 1]}),
    ),
    "remove rows": (lambda db, bad: db.rows.remove_rows(bad), (5, "x", [5])),
    "delete routes": (lambda db, bad: db.routes.delete_entries(bad), NO_MAPPINGS),
    "dump routes": (lambda db, bad: db.routes.dump_entries(without=bad), NO_LISTS),
    "put route": (lambda db, bad: db.rows.put_routing_row(bad), (*NO_MAPPINGS, {}, {"scope": "x"})),
    "peer": (lambda db, bad: db.routes.find_latest_session(source="x", ended_as=bad), NO_LISTS),
    "copy session": (lambda db, bad: db.rows.copy_session("s", "t", without=bad), NO_LISTS),
    "task": (lambda db, bad: db.record_auxiliary_usage("s", bad), (None, "", *NO_TEXTS)),
}
EACH = [
    pytest.param(call, bad, id=f"{name}-{str(bad)[:20]}")
    for name, (call, several) in CALLS.items()
    for bad in several
]
FIELDS = [
    *((name, bad) for name in ("words", "title_like", "cwd_prefix", "user_id") for bad in NO_TEXTS),
    *(("project", bad) for bad in NO_FOLDERS),
    *((name, bad) for name in ("started_after", "active_before") for bad in NO_NUMBERS),
    *((name, bad) for name in ("min_cost", "max_messages", "min_tokens") for bad in NO_NUMBERS),
    *((name, bad) for name in ("ids", "source") for bad in NO_LISTS),
    *(("status", bad) for bad in ("closed", 5, ["open"])),
]


@pytest.fixture
def filled_database(db: StateDatabase) -> StateDatabase:
    db.append_message("s", "user", "said", create={"source": "cli"})
    return db


def read_everything(db: StateDatabase) -> Any:
    return db.get_session("s"), db.get_messages("s"), db.admin.get_model_usage("s")


@pytest.mark.requirement("sessions:arguments")
@pytest.mark.parametrize(("call", "bad"), EACH)
def test_invalid_argument_is_rejected_without_changes(
    filled_database: StateDatabase, call: Call, bad: Any
) -> None:
    before = read_everything(filled_database)
    with pytest.raises(InvalidInput) as caught:
        call(filled_database, bad)
    assert len(str(caught.value)) < 300
    assert read_everything(filled_database) == before


@pytest.mark.requirement("sessions:arguments")
@pytest.mark.parametrize(("name", "bad"), FIELDS)
def test_invalid_filter_condition_is_rejected(
    filled_database: StateDatabase, name: str, bad: Any
) -> None:
    where = SessionFilter(**{name: bad})
    for look in (filled_database.list_sessions, filled_database.find_sessions):
        with pytest.raises(InvalidInput):
            look(where)


@pytest.mark.requirement("sessions:arguments")
def test_unknown_id_error_shortens_id(filled_database: StateDatabase) -> None:
    for look in (
        filled_database.summarize_session,
        filled_database.get_revision,
        filled_database.admin.recount_session,
        filled_database.read_window,
    ):
        with pytest.raises(NotFound) as caught:
            look("x" * 200_000)
        assert len(str(caught.value)) < 300
    with pytest.raises(NotFound) as caught:
        filled_database.search("said", session="sx")
    assert caught.value.nearest == ("s",)

"""Windows of a session, its pages, and the form that a model is sent."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from session_core import InvalidInput, NotFound, StateDatabase
from session_core.types import MessageWindow
from tests.contract.engines import ForeignWriter, require_column

Ids = list[int]


@pytest.fixture
def ten_messages(db: StateDatabase) -> Ids:
    """Append ten messages to "s", of user and assistant in turn, with another session between."""
    ids = []
    with db.transaction():
        db.create_session("s", "cli")
        db.create_session("t", "cli")
        for number in range(10):
            role = "assistant" if number % 2 else "user"
            ids.append(int(db.append_message("s", role, str(number), timestamp=float(-number))))
            db.append_message("t", "user", "elsewhere")
    return ids


def describe_window(window: MessageWindow) -> tuple[str, bool, bool]:
    text = "".join(str(message["content"]) for message in window.messages)
    return text, window.more_before, window.more_after


def test_window_defaults_to_newest_messages(db: StateDatabase, ten_messages: Ids) -> None:
    assert describe_window(db.read_window("s", limit=3)) == ("789", True, False)
    assert describe_window(db.read_window("s", limit=10)) == ("0123456789", False, False)
    assert describe_window(db.read_window("s")) == ("0123456789", False, False)


def test_window_of_empty_session_is_empty(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    assert db.read_window("s") == MessageWindow([], more_before=False, more_after=False)


@pytest.mark.requirement("windows:edges")
@pytest.mark.parametrize(
    ("place", "limit", "expected"),
    [
        (9, 3, ("678", True, True)),
        (3, 3, ("012", False, True)),
        (3, 5, ("012", False, True)),
        (0, 3, ("", False, True)),
        (9, 9, ("012345678", False, True)),
    ],
)
def test_window_before_excludes_edge(
    db: StateDatabase, ten_messages: Ids, place: int, limit: int, expected: tuple[str, bool, bool]
) -> None:
    assert describe_window(db.read_window("s", before=ten_messages[place], limit=limit)) == expected


@pytest.mark.requirement("windows:edges")
@pytest.mark.parametrize(
    ("place", "limit", "expected"),
    [
        (0, 3, ("123", True, True)),
        (6, 3, ("789", True, False)),
        (6, 5, ("789", True, False)),
        (9, 3, ("", True, False)),
        (0, 9, ("123456789", True, False)),
    ],
)
def test_window_after_excludes_edge(
    db: StateDatabase, ten_messages: Ids, place: int, limit: int, expected: tuple[str, bool, bool]
) -> None:
    assert describe_window(db.read_window("s", after=ten_messages[place], limit=limit)) == expected


@pytest.mark.requirement("windows:edges")
@pytest.mark.parametrize(
    ("place", "limit", "expected"),
    [
        (5, 1, ("5", True, True)),
        (5, 2, ("56", True, True)),
        (5, 3, ("456", True, True)),
        (5, 4, ("4567", True, True)),
        (5, 10, ("0123456789", False, False)),
        (5, 50, ("0123456789", False, False)),
        (0, 4, ("0123", False, True)),
        (1, 4, ("0123", False, True)),
        (9, 4, ("6789", True, False)),
        (8, 4, ("6789", True, False)),
    ],
)
def test_window_around_contains_center_and_neighbors(
    db: StateDatabase, ten_messages: Ids, place: int, limit: int, expected: tuple[str, bool, bool]
) -> None:
    assert describe_window(db.read_window("s", around=ten_messages[place], limit=limit)) == expected


def test_window_edge_can_be_foreign_id(db: StateDatabase, ten_messages: Ids) -> None:
    between = ten_messages[4] + 1
    assert describe_window(db.read_window("s", before=between, limit=2)) == ("34", True, True)
    assert describe_window(db.read_window("s", after=between, limit=2)) == ("56", True, True)
    assert describe_window(db.read_window("s", before=10**15, limit=2)) == ("89", True, False)
    assert describe_window(db.read_window("s", after=10**15)) == ("", True, False)
    assert describe_window(db.read_window("s", after=0, limit=2)) == ("01", False, True)
    assert describe_window(db.read_window("s", before=0)) == ("", False, True)
    assert describe_window(db.read_window("s", after=-5, limit=2)) == ("01", False, True)


def test_window_around_foreign_message_raises_not_found(
    db: StateDatabase, ten_messages: Ids
) -> None:
    for foreign in (ten_messages[4] + 1, 10**15, 0, -1):
        with pytest.raises(NotFound):
            db.read_window("s", around=foreign)


def test_window_of_unknown_session_raises_not_found(db: StateDatabase, ten_messages: Ids) -> None:
    with pytest.raises(NotFound) as caught:
        db.read_window("sx")
    assert caught.value.nearest == ("s",)


@pytest.mark.parametrize(
    "arguments",
    [
        {"before": 1, "after": 1},
        {"before": 1, "around": 1},
        {"after": 1, "around": 1},
        {"limit": 0},
        {"limit": -1},
        {"limit": 2**64},
        {"view": "everything"},
        {"before": 2**64},
        {"after": -(2**64)},
        {"around": 2**64},
        {"roles": "user"},
    ],
)
def test_window_rejects_invalid_arguments(
    db: StateDatabase, ten_messages: Ids, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        db.read_window("s", **arguments)


@pytest.mark.parametrize(
    ("roles", "arguments", "expected"),
    [
        (["user"], {"limit": 2}, ("68", True, False)),
        (["user"], {"limit": 5}, ("02468", False, False)),
        (["assistant"], {"after": 4, "limit": 2}, ("57", True, True)),
        (["assistant"], {"before": 1}, ("", False, True)),
        (["user", "assistant"], {"limit": 2}, ("89", True, False)),
        (["user"], {"around": 5, "limit": 3}, ("246", True, True)),
        (["tool"], {}, ("", False, False)),
        ([], {}, ("", False, False)),
    ],
)
def test_window_filters_by_role(
    db: StateDatabase,
    ten_messages: Ids,
    roles: Sequence[str],
    arguments: dict[str, int],
    expected: tuple[str, bool, bool],
) -> None:
    places = {name: ten_messages[place] for name, place in arguments.items() if name != "limit"}
    options: dict[str, Any] = {**arguments, **places}
    window = db.read_window("s", roles=roles, **options)
    assert describe_window(window) == expected


def test_window_finds_distant_messages_of_rare_role(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "system", "first")
    db.append_messages("s", [{"role": "user", "content": "x"}] * 700)
    assert describe_window(db.read_window("s", roles=["system"], limit=1)) == (
        "first",
        False,
        False,
    )


@pytest.mark.requirement("windows:view")
def test_window_omits_rewound_messages(db: StateDatabase, ten_messages: Ids) -> None:
    db.rewind_to_message("s", ten_messages[6])
    assert describe_window(db.read_window("s", limit=3)) == ("345", True, False)
    assert describe_window(db.read_window("s", view="full", limit=3)) == ("345", True, False)
    assert describe_window(db.read_window("s", after=ten_messages[5])) == ("", True, False)
    assert describe_window(db.read_window("s", around=ten_messages[7], limit=3)) == (
        "345",
        True,
        False,
    )


@pytest.mark.schemas(16, 30)
@pytest.mark.requirement("windows:view")
def test_window_merges_compacted_messages_in_order(db: StateDatabase, ten_messages: Ids) -> None:
    with require_column(db, "compacted"):
        db.rewind_to_message("s", ten_messages[8])
        db.archive_and_compact("s", [{"role": "user", "content": "S"}])
        db.restore_rewound("s", ten_messages[8])
        assert describe_window(db.read_window("s")) == ("89S", False, False)
        assert describe_window(db.read_window("s", view="full")) == ("0123456789S", False, False)
        assert describe_window(db.read_window("s", view="full", limit=4)) == ("789S", True, False)
        middle = db.read_window("s", view="full", around=ten_messages[7], limit=4)
        assert describe_window(middle) == ("6789", True, True)
        after = db.read_window("s", view="full", after=ten_messages[5], limit=3)
        assert describe_window(after) == ("678", True, True)
        assert describe_window(db.read_window("s", before=ten_messages[8])) == ("", False, True)
        assert describe_window(db.read_window("s", around=ten_messages[2], limit=3)) == (
            "89S",
            False,
            False,
        )


def walk_pages(db: StateDatabase, limit: int, *, forward: bool, **arguments: Any) -> Ids:
    """Read page after page from one end to the other, and return the ids in order."""
    edge: dict[str, Any] = {"after": 0} if forward else {}
    ids: Ids = []
    while True:
        window = db.read_window("s", limit=limit, **edge, **arguments)
        page = [message["id"] for message in window.messages]
        ids = ids + page if forward else page + ids
        if not (window.more_after if forward else window.more_before):
            return ids
        assert page
        edge = {"after": page[-1]} if forward else {"before": page[0]}


@pytest.mark.requirement("windows:walk")
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 4, 10, 11])
def test_window_pages_are_complete(
    db: StateDatabase, ten_messages: Ids, limit: int, forward: bool
) -> None:
    assert walk_pages(db, limit, forward=forward) == ten_messages
    users = walk_pages(db, limit, forward=forward, roles=["user"])
    assert users == ten_messages[::2]


@pytest.mark.requirement("windows:walk")
@pytest.mark.parametrize("forward", [False, True])
def test_window_pages_are_complete_during_appends(
    db: StateDatabase, other: StateDatabase, ten_messages: Ids, forward: bool
) -> None:
    db.append_messages("s", [{"role": "user", "content": str(n)} for n in range(200)])
    before = [message["id"] for message in db.get_messages("s")]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            other.append_message("s", "user", "more")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        backwards = walk_pages(db, 7, forward=False)
        forwards: Ids = []
        while len(forwards) < len(before):
            edge = forwards[-1] if forwards else 0
            page = db.read_window("s", after=edge, limit=7)
            forwards += [message["id"] for message in page.messages]
    finally:
        stop.set()
        writer.join()
    walked = forwards if forward else backwards
    assert walked == sorted(set(walked))
    everything = [message["id"] for message in db.get_messages("s")]
    assert walked == everything[: len(walked)]
    assert set(before) <= set(walked)


# -- as a conversation -----------------------------------------------------------------------


@pytest.mark.requirement("windows:conversation")
def test_conversation_contains_model_fields(db: StateDatabase) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
    db.create_session("s", "cli")
    db.append_message("s", "user", [{"type": "text", "text": "look"}], timestamp=1.0)
    db.append_message(
        "s",
        "assistant",
        "  ",
        tool_calls=calls,
        reasoning="because",
        reasoning_details=[{"a": 1}],
        finish_reason="tool_calls",
        timestamp=2.0,
    )
    db.append_message("s", "tool", " kept ", tool_call_id="c1", tool_name="read", timestamp=3.0)
    assert db.get_messages_as_conversation("s") == [
        {"role": "user", "content": [{"type": "text", "text": "look"}], "timestamp": 1.0},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": calls,
            "reasoning": "because",
            "reasoning_details": [{"a": 1}],
            "finish_reason": "tool_calls",
            "timestamp": 2.0,
        },
        {
            "role": "tool",
            "content": " kept ",
            "tool_call_id": "c1",
            "tool_name": "read",
            "timestamp": 3.0,
        },
    ]


def list_texts(messages: list[dict[str, Any]]) -> list[Any]:
    return [message["content"] for message in messages]


def test_conversation_omits_inactive_messages_by_default(
    db: StateDatabase, ten_messages: Ids
) -> None:
    db.rewind_to_message("s", ten_messages[2])
    assert list_texts(db.get_messages_as_conversation("s")) == ["0", "1"]
    everything = db.get_messages_as_conversation("s", include_inactive=True)
    assert list_texts(everything) == [str(number) for number in range(10)]


@pytest.mark.requirement("windows:conversation")
def test_conversation_follows_continuations_only(db: StateDatabase) -> None:
    config = {"_branched_from": "s"}
    db.append_message("s", "user", "one", create={"source": "cli"}, timestamp=1.0)
    db.append_message("s", "assistant", "two", timestamp=2.0)
    db.end_session("s", "compression")
    later: dict[str, Any] = {"source": "cli", "parent_session_id": "s"}
    db.append_message("t", "user", "summary", create=later, timestamp=3.0)
    db.append_message("t", "assistant", "two", timestamp=2.0)
    db.append_message("t", "user", "three", timestamp=4.0)
    branch = {**later, "model_config": config}
    db.append_message("b", "user", "aside", create=branch, timestamp=5.0)
    conversation = db.get_messages_as_conversation("t", include_ancestors=True)
    assert list_texts(conversation) == ["one", "two", "summary", "three"]
    assert list_texts(db.get_messages_as_conversation("t")) == ["summary", "two", "three"]
    assert list_texts(db.get_messages_as_conversation("b", include_ancestors=True)) == ["aside"]


def test_conversation_tolerates_broken_json_column(
    db: StateDatabase, foreign: ForeignWriter
) -> None:
    db.append_message("s", "assistant", "x", create={"source": "cli"})
    foreign.update_rows("messages", {}, tool_calls="{", reasoning_details="nope")
    (message,) = db.get_messages_as_conversation("s")
    assert (message["content"], message.get("tool_calls")) == ("x", None)
    assert db.get_messages("s")[0]["content"] == "x"


REVIEW = "Review the conversation above and update the skill library. Be active."


def test_conversation_omits_recalled_memory(db: StateDatabase) -> None:
    note = "[System note: The following is recalled memory context, NOT new user input. Treat as "
    said = {
        "<memory-context>a secret</memory-context> do it ": "do it",
        "< Memory-Context >a\nb</ memory-context > then": "then",
        "<memory-context>a<memory-context>b</memory-context>c</memory-context>d": "cd",
        "never closed <memory-context> but said": "never closed  but said",
        f"{note}informational background data.] hi": "hi",
        f"{note}authoritative reference data, always.] hi": "hi",
        f"{note}you like.] hi": f"{note}you like.] hi",
        "<memory-contexts>mine</memory-contexts>": "<memory-contexts>mine</memory-contexts>",
    }
    db.create_session("s", "cli")
    for role in ("user", "assistant", "tool"):
        db.append_messages("s", [{"role": role, "content": text} for text in said])
    texts = list_texts(db.get_messages_as_conversation("s"))
    assert texts == [*said.values(), *said.values(), *said]
    assert [row["content"] for row in db.get_messages("s")] == [*said, *said, *said]


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (["user hi", f"user {REVIEW}", "assistant done", "user go on"], ["hi", "go on"]),
        ([f"system   {REVIEW}", "assistant done", "assistant more"], ["more"]),
        ([f"user {REVIEW}", "tool found", "assistant done"], ["found", "done"]),
        ([f"user {REVIEW}", f"user {REVIEW}", "assistant done", "user x"], ["x"]),
        ([f"assistant {REVIEW}", "assistant done"], [REVIEW, "done"]),
        ([f"user Please {REVIEW}", "assistant done"], [f"Please {REVIEW}", "done"]),
    ],
)
def test_conversation_omits_review_prompts(
    db: StateDatabase, stored: list[str], sent: list[str]
) -> None:
    db.create_session("s", "cli")
    for message in stored:
        role, content = message.split(" ", 1)
        db.append_message("s", role, content)
    assert list_texts(db.get_messages_as_conversation("s")) == sent
    assert db.message_count("s") == len(stored)

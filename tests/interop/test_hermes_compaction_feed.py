"""A compaction by Hermes with messages without times adds no events to the feed."""

from __future__ import annotations

import pytest

SAID = [
    {"role": "user" if n % 2 == 0 else "assistant", "content": f"turn {n} zebra{n}"}
    for n in range(60)
]
SUMMARY = {"role": "user", "content": "[summary]"}


@pytest.fixture
def cursor(theirs, ours):
    theirs.call("create_session", "carried", "cli")
    for item in SAID:
        theirs.call("append_message", "carried", item["role"], item["content"])
    return ours.read_changes().cursor


def news(ours, cursor):
    return [event.text for event in ours.read_changes(cursor).events if event.message_id]


def find_messages(ours, word):
    hits = ours.search(word, per="message", status="all").hits
    return [(hit.session_id, hit.compacted) for hit in hits]


@pytest.mark.requirement("interop:carried")
def test_in_place_copies_are_not_news(version, theirs, ours, cursor):
    if version == "0.17.0":  # compacts into a new session alone
        assert "archive_and_compact" not in theirs.job("methods")
        return
    theirs.call("archive_and_compact", "carried", [*SAID[:3], SUMMARY, *SAID[20:]])
    assert news(ours, cursor) == ["[summary]"]
    assert [find_messages(ours, f"zebra{n}") for n in (2, 20, 59)] == [[("carried", False)]] * 3
    theirs.call("append_message", "carried", "user", SAID[58]["content"])
    assert len(find_messages(ours, "zebra58")) == 2
    theirs.call("archive_and_compact", "carried", [SUMMARY, *SAID[50:], SAID[58]])
    assert news(ours, cursor) == ["[summary]", SAID[58]["content"], "[summary]"]
    assert find_messages(ours, "zebra20") == [("carried", True)]
    assert find_messages(ours, "zebra59") == [("carried", False)]
    assert len(find_messages(ours, "zebra58")) == 2


@pytest.mark.requirement("interop:carried")
def test_continuation_copies_are_not_news(theirs, ours, cursor):
    theirs.call("end_session", "carried", "compression")
    theirs.call("create_session", "on", "cli", parent_session_id="carried")
    theirs.call("replace_messages", "on", [*SAID[:3], SUMMARY, *SAID[20:]])
    assert news(ours, cursor) == ["[summary]"]
    assert [find_messages(ours, f"zebra{n}") for n in (2, 20, 59)] == [[("on", False)]] * 3
    assert find_messages(ours, "zebra19") == [("carried", False)]
    whole = ours.get_messages_as_conversation("on", include_ancestors=True)
    assert [message["content"] for message in whole] == [
        *(item["content"] for item in SAID),
        "[summary]",
    ]

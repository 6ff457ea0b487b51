"""Plans, results and findings in words: numbers, plurals, space and undo."""

from __future__ import annotations

import io

import pytest

from mcp_serve.cli import plan_output
from mcp_serve.cli.terminal import Terminal

NO_SPACE = {"needed_now": 0, "free_in_file": 0, "returned_to_disk": 0, "trash": 0}
RESULT = {"outcome": "applied", "remaining": 0}


def show(write, *arguments):
    """Return the text that a function writes, with single blanks."""
    stream = io.StringIO()
    write(Terminal(stream), *arguments)
    return " ".join(stream.getvalue().split())


@pytest.mark.parametrize(
    ("kind", "count", "text"),
    [
        ("restore", 1, "Restore 1 item"),
        ("edit", 2, "Change 2 sessions"),
        ("prune trash", 1, "Permanently delete 1 batch"),
        ("prune trash", 1200, "Permanently delete 1,200 batches"),
        ("a kind of a newer version", 3, "Change 3 items"),
    ],
)
def test_plan_is_described_with_plural(kind, count, text):
    assert plan_output.describe_plan(kind, count) == text


def test_items_name_their_rest():
    item = {"id": "s1", "title": None, "why": "ended"}
    plan = {"count": 30, "items": [item], "plan": "p-1"}
    text = show(plan_output.show_items, plan)
    assert "(no title)" not in text
    assert text.endswith("and 29 more; --limit 30 shows all")
    titled = {"count": 5, "items": [item, {**item, "title": "Trip"}], "plan": None}
    text = show(plan_output.show_items, titled)
    assert "(no title)" in text
    assert text.endswith("and 3 more")  # without a plan no option shows them


def test_space_names_what_undo_costs():
    size = {**NO_SPACE, "free_in_file": 2_000_000, "trash": 1_000_000}
    text = show(plan_output.show_space, "prune sessions", size)
    assert "Frees about 2.0 MB inside the database file" in text
    assert "Can be undone for 30 days; the trash takes about 1.0 MB." in text
    assert "keeps its size." in show(plan_output.show_space, "prune sessions", NO_SPACE)
    assert "undone" not in show(plan_output.show_space, "prune trash", NO_SPACE)


def test_measured_space_leaves_zeros_out():
    size = {**NO_SPACE, "returned_to_disk": 5_000, "needed_now": 1_000}
    text = show(plan_output.show_space_change, size)
    grown = "the database and its log grew by about 1.0 kB"
    assert text == f"On the disk: {grown}, 5.0 kB returned to the disk."
    assert show(plan_output.show_space_change, NO_SPACE) == ""


@pytest.mark.parametrize(
    ("kind", "found", "text"),
    [
        ("prune sessions", {**RESULT, "removed": 1200}, "Done: 1,200 removed."),
        ("finalize sessions", {**RESULT, "finalized": 2}, "Done: 2 ended."),
        ("prune index", {**RESULT, "removed": 1}, "Done: the search index is merged."),
        ("prune trash", {**RESULT, "removed": 1}, "Done: 1 deleted."),
        ("undo an import", {**RESULT, "restored": 3}, "Done: 3 removed."),
        (
            "restore",
            {"outcome": "partial", "remaining": 4, "restored": 1},
            "Stopped: 1 restored; 4 remaining.",
        ),
    ],
)
def test_result_counts_what_was_done(kind, found, text):
    assert show(plan_output.show_result, kind, found) == text


def test_skipped_items_give_their_reason():
    skipped = [{"id": "s1", "why": "session s1: it is pinned"}]
    text = show(
        plan_output.show_result, "prune sessions", {**RESULT, "removed": 0, "skipped": skipped}
    )
    assert "1 skipped:" in text
    assert text.endswith("s1 session s1: it is pinned")


@pytest.mark.parametrize(
    ("code", "count", "what", "text"),
    [
        ("ghosts", 1, "empty sessions; remove them", "1 empty session; remove them"),
        ("ghosts", 2000, "empty sessions", "2,000 empty sessions"),
        ("damaged", 3, "page 5 is damaged", "page 5 is damaged"),
        ("of_the_future", 1, "things", "1 things"),
    ],
)
def test_finding_is_sentence_with_count(code, count, what, text):
    assert plan_output.describe_finding(code, count, what) == text


def test_ages_are_counted_from_youngest():
    now = 1e9
    ages = plan_output.count_ages([now - days * 86_400 for days in (5, 40, 400, 500)], now)
    assert list(ages.items()) == [("under 30 days:", 1), ("30 to 90 days:", 1), ("over a year:", 2)]


def test_plan_shows_totals_by_source_and_age():
    totals = {
        "messages": 1,
        "bytes": 2_000,
        "by_source": {"cli": 2, "": 1},
        "by_age": {"over a year:": 3},
    }
    plan = {"count": 3, "plan": "p-1", "totals": totals, "bytes": NO_SPACE, "warnings": []}
    text = show(plan_output.show_plan, "prune sessions", plan)
    assert "In total: 1 message, about 2.0 kB" in text
    assert "by source cli 2, (none) 1 by age over a year: 3" in text


def test_protected_sessions_name_chats():
    routed = {"why": "a chat is routed to it", "count": 3, "ids": ["a", "b"], "chats": ["Sam"]}
    pinned = {"why": "it is pinned", "count": 1, "ids": ["c"]}
    text = show(plan_output.show_protected, {"protected": [routed, pinned]})
    assert text == "Protected 3 a chat is routed to it Sam, 2 more 1 it is pinned c"

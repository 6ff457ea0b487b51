"""Titles: cleaned, at most 100 characters, one conversation each, numbered along a lineage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_core import InvalidInput, StateDatabase, TitleTaken

Open = Callable[[], StateDatabase]


@pytest.mark.requirement("titles:cleaning")
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("Trip", "Trip"),
        ("  Trip \t to\n\nRome\r ", "Trip to Rome"),
        ("a\u00a0b\u3000c", "a b c"),
        ("a\x00b\x1bc\x7fd", "abcd"),
        ("a\u200bb\u200fc\u2028d\u202ee\u2060f\u2069g\ufeffh\ufffci\ufff9j\ufffbk", "abcdefghijk"),
        ("👨\u200d👩\u200d👧", "👨👩👧"),
        ("half \ud83d", "half \ufffd"),
        ("日本語のタイトル", "日本語のタイトル"),
        ("", None),
        (" \t\n", None),
        ("\u200b\u202e", None),
        (None, None),
        ("_trip", "_trip"),
        ("Chat (2)", "Chat (2)"),
        ("x" * 100, "x" * 100),
        (" " * 50 + "x" * 100 + "\u200b" * 50, "x" * 100),
        ("'; DROP TABLE sessions; --", "'; DROP TABLE sessions; --"),
    ],
)
def test_set_title_cleans_text(
    db: StateDatabase, reopen: Open, given: str | None, stored: str | None
) -> None:
    db.create_session("s", "cli")
    assert db.set_session_title("s", given)
    reopened = reopen()
    assert reopened.get_session_title("s") == stored
    assert (reopened.get_session("s") or {})["title"] == stored


@pytest.mark.requirement("titles:length")
def test_set_title_rejects_more_than_100_characters(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.set_session_title("s", "before")
    with pytest.raises(InvalidInput, match="101") as caught:
        db.set_session_title("s", "x" * 101)
    assert isinstance(caught.value, ValueError)
    assert db.get_session_title("s") == "before"


def test_set_title_empty_clears_title(db: StateDatabase) -> None:
    db.create_session("s", "cli")
    db.set_session_title("s", "Trip")
    assert db.set_session_title("s", "")
    assert db.get_session_title("s") is None
    assert db.get_session_by_title("Trip") is None


def test_untitled_sessions_are_no_duplicates(db: StateDatabase) -> None:
    for session_id in ("a", "b"):
        db.create_session(session_id, "cli")
        assert db.set_session_title(session_id, "  ")


def test_set_title_reports_unknown_session(db: StateDatabase) -> None:
    assert not db.set_session_title("nobody", "Trip")
    assert not db.set_auto_title_if_empty("nobody", "Trip")
    assert db.get_session_title("nobody") is None


@pytest.mark.requirement("titles:unique")
@pytest.mark.parametrize("archived", [False, True])
def test_title_is_unique_across_archived_sessions(db: StateDatabase, archived: bool) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli")
    db.set_session_title("a", "Trip")
    db.set_session_archived("a", archived=archived)
    with pytest.raises(TitleTaken) as caught:
        db.set_session_title("b", " Trip ")
    assert isinstance(caught.value, ValueError)
    assert (caught.value.title, caught.value.holder) == ("Trip", "a")
    assert (db.get_session_title("a"), db.get_session_title("b")) == ("Trip", None)


@pytest.mark.requirement("titles:unique")
def test_title_comparison_is_exact(db: StateDatabase) -> None:
    for session_id, title in (("a", "Trip"), ("b", "trip"), ("c", "Trip_"), ("d", "Tripx")):
        db.create_session(session_id, "cli")
        assert db.set_session_title(session_id, title)


def test_session_can_set_own_title_again(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    assert db.set_session_title("a", "Trip")
    assert db.set_session_title("a", "Trip")


def test_released_title_is_free(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli")
    db.set_session_title("a", "Trip")
    db.set_session_title("a", "Other")
    assert db.set_session_title("b", "Trip")


def continue_session(db: StateDatabase, parent: str, child: str, **fields: Any) -> None:
    db.end_session(parent, "compression")
    db.create_session(child, "cli", parent_session_id=parent, **fields)


@pytest.mark.requirement("titles:moving")
def test_title_moves_from_conversation_ancestor(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    db.set_session_title("a", "Trip")
    continue_session(db, "a", "b")
    continue_session(db, "b", "c")
    assert db.set_session_title("c", "Trip")
    assert [db.get_session_title(name) for name in "abc"] == [None, None, "Trip"]


@pytest.mark.requirement("titles:moving")
def test_title_stays_with_descendants_and_off_branches(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    continue_session(db, "a", "b")
    db.set_session_title("b", "Trip")
    with pytest.raises(TitleTaken):
        db.set_session_title("a", "Trip")
    db.set_session_title("a", "Root")
    db.create_session("br", "cli", parent_session_id="a", model_config={"_branched_from": "a"})
    with pytest.raises(TitleTaken):
        db.set_session_title("br", "Root")


def test_auto_title_is_set_only_if_empty(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    assert db.set_auto_title_if_empty("a", " Trip ")
    assert not db.set_auto_title_if_empty("a", "Other")
    assert not db.set_auto_title_if_empty("a", "  ")
    assert db.get_session_title("a") == "Trip"


def test_auto_title_reports_duplicate(db: StateDatabase) -> None:
    db.create_session("a", "cli")
    db.create_session("b", "cli")
    db.set_session_title("a", "Trip")
    with pytest.raises(TitleTaken):
        db.set_auto_title_if_empty("b", "Trip")


def set_titles(db: StateDatabase, **titles: str) -> None:
    for place, (session_id, title) in enumerate(titles.items()):
        db.create_session(session_id, "cli", started_at=place + 1.0)
        db.set_session_title(session_id, title)


@pytest.mark.requirement("titles:next")
@pytest.mark.parametrize(
    ("taken", "base", "following"),
    [
        ([], "Trip", "Trip"),
        (["Trip"], "Trip", "Trip #2"),
        (["Trip", "Trip #2"], "Trip", "Trip #3"),
        (["Trip", "Trip #2"], "Trip #2", "Trip #3"),
        (["Trip", "Trip #7"], "Trip", "Trip #8"),
        (["Trip #7"], "Trip", "Trip #8"),
        (["Trips #7", "My Trip #3", "trip #9"], "Trip", "Trip"),
        (["Trip", "Trip #x", "Trip #"], "Trip", "Trip #2"),
        (["Chat (2)"], "Chat (2)", "Chat (2) #2"),
        (["100%", "100x #5"], "100%", "100% #2"),
        (["a_b", "axb #5"], "a_b", "a_b #2"),
        (["Trip"], "  Trip\t", "Trip #2"),
    ],
)
def test_next_title_of_lineage_is_numbered(
    db: StateDatabase, taken: list[str], base: str, following: str
) -> None:
    set_titles(db, **{f"s{place}": title for place, title in enumerate(taken)})
    assert db.get_next_title_in_lineage(base) == following


@pytest.mark.requirement("titles:next")
def test_next_title_is_free_after_truncation(db: StateDatabase) -> None:
    for number in range(12):
        title = db.get_next_title_in_lineage("x" * 100)
        assert len(title) <= 100
        db.create_session(f"s{number}", "cli")
        assert db.set_session_title(f"s{number}", title)


def test_next_title_requires_base_title(db: StateDatabase) -> None:
    for nothing in ("", " \t", "\u200b"):
        with pytest.raises(InvalidInput):
            db.get_next_title_in_lineage(nothing)


@pytest.mark.requirement("titles:resolve")
def test_title_resolves_to_newest_of_lineage(db: StateDatabase) -> None:
    set_titles(db, a="Trip", b="Trip #2", c="Trip #3", d="Trips", e="Other #9")
    assert db.resolve_session_by_title("Trip") == "c"
    assert db.resolve_session_by_title("Trip #2") == "b"
    assert db.resolve_session_by_title("Trips") == "d"
    assert db.resolve_session_by_title("Other") == "e"
    assert db.resolve_session_by_title("Nothing") is None


def test_title_resolution_includes_truncated_numbered_titles(db: StateDatabase) -> None:
    set_titles(db, a="x" * 100)
    set_titles(db, b=db.get_next_title_in_lineage("x" * 100), c="x" * 98)
    assert db.resolve_session_by_title("x" * 100) == "b"
    assert db.resolve_session_by_title("x" * 98) == "b"
    assert db.resolve_session_by_title("x" * 97) == "b"
    assert db.resolve_session_by_title("x" * 96) is None


def test_title_resolution_orders_by_start_not_number(db: StateDatabase) -> None:
    set_titles(db, a="Trip #9", b="Trip #2", c="Trip")
    assert db.resolve_session_by_title("Trip") == "b"


def test_title_resolution_ignores_similar_titles(db: StateDatabase) -> None:
    set_titles(db, a="Trip", b="Trip #two")
    assert db.resolve_session_by_title("Trip") == "a"


def test_get_session_by_title_matches_exactly(db: StateDatabase) -> None:
    set_titles(db, a="Trip", b="Trip #2")
    assert (db.get_session_by_title("Trip") or {})["id"] == "a"
    assert db.get_session_by_title("trip") is None
    assert db.get_session_by_title("Tri%") is None

"""The page that lists the methods of Hermes, and the small readings that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from session_core import SessionFilter
from tests.interop.test_hermes_reads import list_differences

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "hermes-methods.md"


def read_table() -> dict[str, str]:
    """Return the equivalent on the page for each method of Hermes."""
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


@pytest.fixture
def ids(theirs) -> list[str]:
    return [row[0] for row in theirs.sql("SELECT id FROM sessions ORDER BY id")]


@pytest.mark.requirement("interop:reads")
def test_page_lists_every_method_of_hermes(version, theirs):
    listed = set(read_table())
    assert theirs.methods <= listed
    if version == "0.19.0":
        assert listed == theirs.methods


@pytest.mark.parametrize("version", ["0.19.0"], indirect=True)
def test_archived_messages_match_hermes(theirs, ours, ids):
    rows = theirs.each("has_archived_messages", ids)
    assert list_differences(ids, rows, ours.sdk.has_archived_messages) == {}
    assert True in rows.values()


@pytest.mark.parametrize("inactive", [False, True])
@pytest.mark.requirement("interop:reads")
def test_recent_user_messages_match_hermes(theirs, ours, ids, inactive):
    rows = theirs.each("list_recent_user_messages", ids, limit=3, include_inactive=inactive)
    found = {
        one: [row["id"] for row in ours.sdk.list_recent_user_messages(one, 3, inactive)]
        for one in ids
    }
    assert found == {one: [row["id"] for row in rows[one]] for one in ids}


# Hermes 0.17 stays at a session that has messages, and does not look for later ones.
@pytest.mark.parametrize("version", ["0.18.0", "0.18.2", "0.19.0"], indirect=True)
def test_resumed_session_matches_hermes(theirs, ours, ids):
    rows = theirs.each("resolve_resume_session_id", ids)
    assert list_differences(ids, rows, ours.sdk.resolve_resume_session_id) == {}


def test_session_count_matches_hermes(theirs, ours):
    assert theirs.call("session_count") == ours.sdk.session_count()
    everything = theirs.call("session_count", include_archived=True)
    assert everything == ours.sdk.session_count(SessionFilter(status="all"))
    terminal = theirs.call("session_count", source="cli", include_archived=True)
    assert terminal > 0


@pytest.mark.parametrize("version", ["0.19.0"], indirect=True)
@pytest.mark.parametrize("archived", [False, True])
def test_used_folders_match_hermes(theirs, ours, archived):
    rows = theirs.call("distinct_session_cwds", include_archived=archived)
    found = ours.sdk.distinct_session_cwds(include_archived=archived)
    assert {tuple(row.values()) for row in rows} == set(found)

"""The card of the report in a browser: figures, timeline, sources and findings."""

from __future__ import annotations

import time

import pytest

from session_core import SessionDB
from tests.card.shown import PHONE

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

WEEK_S = 7 * 86_400
COUNT = 130


@pytest.fixture(name="weeks", autouse=True)
def _weeks(home_path):
    """Conversations in each of 13 weeks, more than a page of a list has."""
    with SessionDB(home_path / "state.db") as db:
        for number in range(COUNT):
            at = time.time() - (number % 13) * WEEK_S - 3_600
            create = {"source": "<b>cli</b>", "started_at": at}
            db.append_message(f"s{number}", "user", "hello", timestamp=at, create=create)


@pytest.mark.requirement("faces:card")
@pytest.mark.parametrize(("theme", "width"), [("light", 820), ("dark", PHONE)])
def test_report_shows_timeline(host, theme, width):
    card = host.show("sessions_stats", theme=theme, width=width)
    assert card.heading == f"{COUNT} sessions, {COUNT} messages"
    card.frame.locator(".columns").wait_for()
    texts = [
        column.get_attribute("title").partition(": ")[2]
        for column in card.frame.locator(".column").all()
    ]
    assert len(texts) == 26
    assert texts[-13:] == ["10 conversations"] * 13
    assert texts[:13] == ["0 conversations"] * 13
    assert card.measure() == {"room": width, "taken": width}
    assert host.errors == []


@pytest.mark.requirement("faces:card-safe")
def test_hostile_source_is_text(host):
    card = host.show("sessions_stats")
    assert card.frame.locator("th", has_text="<b>cli</b>").count() == 1
    assert card.frame.locator("b").count() == 0
    assert host.requested == host.own_addresses


@pytest.mark.requirement("faces:card")
def test_host_without_calls_gets_report(host):
    card = host.show("sessions_stats", capabilities={})
    assert card.frame.locator("h2", has_text="Findings").count() == 1
    assert card.frame.locator(".columns").count() == 0

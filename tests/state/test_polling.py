"""Polls of the change feed: when a reader gets its answer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from session_core.errors import Busy, InvalidInput
from session_core.state.polling import ChangePoller
from session_core.types import EventPage, SessionEvent

EVENT = SessionEvent("message", 5.0, "s")


class Feed:
    """Pages that a database would give, and the cursors that it was asked with."""

    def __init__(self, *pages: EventPage | Exception) -> None:
        self.pages = list(pages)
        self.cursors: list[str | None] = []

    def __call__(self, cursor: str | None) -> EventPage:
        """Return the next page."""
        self.cursors.append(cursor)
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page


@pytest.mark.parametrize("timeout_s", [-0.1, float("nan"), "5", None])
def test_invalid_timeout_is_refused(timeout_s: Any):
    with pytest.raises(InvalidInput, match="timeout_s must be a number >= 0, got"):
        ChangePoller(None, timeout_s, None)


def test_next_read_starts_after_examined_commits():
    feed = Feed(EventPage([], "b"), EventPage([], "c"), EventPage([EVENT], "d"))
    poller = ChangePoller("a", 60.0, None)
    assert [poller.poll_once(feed) for _ in range(3)] == [None, None, EventPage([EVENT], "d")]
    assert feed.cursors == ["a", "b", "c"]


def test_gap_is_answer_at_once():
    page = EventPage([], "b", gap=True)
    assert ChangePoller("a", 60.0, None).poll_once(Feed(page)) == page


def test_empty_page_is_answer_after_timeout():
    page = EventPage([], "b")
    poller = ChangePoller("a", 0.0, None)
    assert poller.poll_once(Feed(page)) == page
    assert poller.pause_s == 0.0


def test_stop_ends_waiting_with_empty_page():
    stop, page = threading.Event(), EventPage([], "b")
    poller = ChangePoller("a", 60.0, stop)
    assert poller.poll_once(Feed(page)) is None
    stop.set()
    assert poller.poll_once(Feed(page)) == page


def test_locked_database_is_tried_again():
    feed = Feed(Busy("locked"), EventPage([EVENT], "b"))
    poller = ChangePoller("a", 60.0, None)
    assert poller.poll_once(feed) is None
    assert poller.poll_once(feed) == EventPage([EVENT], "b")
    assert feed.cursors == ["a", "a"]
    with pytest.raises(Busy):
        ChangePoller("a", 0.0, None).poll_once(Feed(Busy("locked")))


def test_pause_is_short_and_ends_with_time():
    assert ChangePoller(None, 60.0, None).pause_s == 0.05
    assert 0 < ChangePoller(None, 0.04, None).pause_s <= 0.04

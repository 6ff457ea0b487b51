"""The card of a plan in a browser: its content, the choice of items, apply and undo."""

from __future__ import annotations

import time

import pytest

from session_core import SessionDB
from tests.card.shown import PHONE, WIDE

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DAY_S = 86_400
COUNT = 45  # more than two pages of items
HOSTILE = (
    "<img src=x onerror=\"document.title='run'\">",
    "</script><script>document.body.innerHTML='run'</script>",
    "\"><b>bold</b> & 'quoted' " + "x" * 60,
)


@pytest.fixture(name="old_sessions", autouse=True)
def _old_sessions(home_path):
    """Ended conversations of two years and three sources, and one in use."""
    with SessionDB(home_path / "state.db") as db:
        now = time.time()
        for number in range(COUNT):
            at = now - (100 + 20 * number) * DAY_S
            create = {"source": ("cli", "telegram", "cron")[number % 3], "started_at": at}
            name = f"old{number:02}"
            for message in range(1 + number % 4):
                text = f"message {message} of {name}"
                db.append_message(name, "user", text, timestamp=at + message, create=create)
            title = HOSTILE[number] if number < len(HOSTILE) else f"Conversation {number}"
            db.set_session_title(name, title)
            db.end_session(name, "user_exit")
        db.append_message("new", "user", "hello", create={"source": "cli"})


@pytest.fixture(name="open_sessions")
def _open_sessions(home_path):
    """Three conversations that were left open."""
    with SessionDB(home_path / "state.db") as db:
        at = time.time() - 60 * DAY_S
        for number in range(3):
            create = {"source": "cli", "started_at": at}
            db.append_message(f"left{number}", "user", "hello", timestamp=at, create=create)


def list_sessions(home_path, prefix="old"):
    """Return the conversations that exist, with the reason of their end."""
    with SessionDB(home_path / "state.db") as db:
        rows = [db.get_session(f"old{number:02}") for number in range(COUNT)]
        rows += [db.get_session(f"left{number}") for number in range(3)]
    found = {row["id"]: row["end_reason"] for row in rows if row is not None}
    return {name: reason for name, reason in found.items() if name.startswith(prefix)}


def uncheck(card, title):
    title = card.frame.get_by_text(title, exact=True)
    card.frame.locator("li").filter(has=title).get_by_role("checkbox").uncheck()


@pytest.mark.requirement("faces:card")
def test_plan_is_applied_and_undone(host, home_path):
    card = host.show("sessions_prune")
    assert card.heading == f"Remove {COUNT} conversations?"
    assert len(list_sessions(home_path)) == COUNT
    card.click(f"Remove {COUNT} conversations")
    card.wait_for_heading(f"{COUNT} conversations removed")
    assert list_sessions(home_path) == {}
    card.click("Undo")
    card.wait_for_heading(f"{COUNT} conversations restored")
    assert len(list_sessions(home_path)) == COUNT
    card.click("Plan again")
    card.wait_for_heading(f"Remove {COUNT} conversations?")
    assert host.errors == []


@pytest.mark.requirement("faces:card")
def test_unchecked_conversations_are_kept(host, home_path):
    card = host.show("sessions_prune")
    uncheck(card, "Conversation 5")  # on the last page
    uncheck(card, "Conversation 44")
    card.click("Keep 2 and plan again")
    card.wait_for_heading(f"Remove {COUNT - 2} conversations?")
    card.click(f"Remove {COUNT - 2} conversations")
    card.wait_for_heading("removed")
    assert list_sessions(home_path).keys() == {"old05", "old44"}


@pytest.mark.requirement("faces:card")
def test_charts_count_every_item(host):
    card = host.show("sessions_prune")
    card.frame.get_by_role("checkbox").nth(COUNT - 1).wait_for()
    bars = [row.inner_text().split("\t") for row in card.frame.locator(".bars tr").all()]
    counts = {name.strip(): int(count) for name, *_, count in bars}
    ages = {"3 to 6 months": 5, "6 to 12 months": 9, "1 to 2 years": 18, "over 2 years": 13}
    assert counts == {**ages, "cli": 15, "telegram": 15, "cron": 15}
    figures = card.frame.locator(".figures div").all_inner_texts()
    assert "messages" in figures[0]


@pytest.mark.requirement("faces:card")
def test_unchecked_session_stays_open(host, home_path, open_sessions):
    card = host.show("sessions_finalize", what="abandoned")
    assert card.heading == "End 3 sessions?"
    card.frame.get_by_role("checkbox").first.uncheck()
    card.click("Keep 1 and plan again")
    card.click("End 2 conversations")
    card.wait_for_heading("2 conversations ended")
    assert sorted(map(str, list_sessions(home_path, "left").values())) == [
        "None",
        "abandoned",
        "abandoned",
    ]


@pytest.mark.requirement("faces:card")
def test_checking_again_changes_nothing(host):
    card = host.show("sessions_prune")
    box = card.frame.get_by_role("checkbox").first
    box.uncheck()
    assert card.find_button("Keep 1 and plan again").count() == 1
    assert card.find_button(f"Remove {COUNT} conversations").count() == 0
    box.check()
    assert card.find_button(f"Remove {COUNT} conversations").count() == 1


@pytest.mark.requirement("faces:card")
def test_model_hears_of_changes_without_titles(host):
    card = host.show("sessions_prune")
    card.click(f"Remove {COUNT} conversations")
    card.wait_for_heading("removed")
    (text,) = card.told
    assert text.startswith("In the card the user called sessions_prune: applied; batch b-")
    assert "Conversation" not in text


@pytest.mark.requirement("faces:card")
def test_declined_question_changes_nothing(host, home_path):
    card = host.show("sessions_prune", reply="decline")
    card.click(f"Remove {COUNT} conversations")
    card.wait_for_heading("Not confirmed; nothing was changed")
    assert len(list_sessions(home_path)) == COUNT
    card.click("Plan again")
    card.wait_for_heading(f"Remove {COUNT} conversations?")


@pytest.mark.requirement("faces:card")
def test_failed_call_is_shown(host):
    card = host.show("sessions_prune", what="index", source="cli")
    assert "what='index' takes no sessions" in card.frame.get_by_role("alert").inner_text()


@pytest.mark.requirement("faces:card")
def test_host_without_calls_gets_no_buttons(host):
    card = host.show("sessions_prune", capabilities={})
    assert card.frame.get_by_role("button").count() == 0
    assert card.frame.get_by_role("checkbox").count() == 0
    assert "To apply it, ask for sessions_prune" in card.frame.get_by_role("status").inner_text()


@pytest.mark.requirement("faces:card-safe")
def test_hostile_titles_are_text(host):
    card = host.show("sessions_prune")
    card.frame.get_by_role("checkbox").nth(COUNT - 1).wait_for()  # all pages are loaded
    titles = card.frame.locator(".title").all_inner_texts()
    assert set(HOSTILE) <= set(titles)
    assert card.frame.locator("img, b, main script").count() == 0
    assert card.frame.locator("main").count() == 1
    assert host.errors == []


@pytest.mark.requirement("faces:card-safe")
def test_card_requests_nothing(host):
    card = host.show("sessions_prune")
    card.click(f"Remove {COUNT} conversations")
    card.wait_for_heading("removed")
    assert host.requested == host.own_addresses
    blocked = card.frame.locator("body").evaluate(
        "() => fetch(document.referrer || 'http://127.0.0.1:1').then(() => 'sent', String)"
    )
    assert blocked.startswith("TypeError")


@pytest.mark.requirement("faces:card")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, PHONE, WIDE])
def test_card_fits_its_frame(host, theme, width):
    card = host.show("sessions_prune", theme=theme, width=width)
    assert card.measure() == {"room": width, "taken": width}
    card.frame.get_by_role("checkbox").nth(COUNT - 1).wait_for()
    card.wait_for_height()


@pytest.mark.requirement("faces:card")
def test_card_follows_theme_and_variables(host):
    card = host.show("sessions_prune", theme="dark", variables={"--color-text-primary": "#010203"})
    read = "element => [getComputedStyle(element).color, getComputedStyle(element).backgroundColor]"
    body = card.frame.locator("body")
    assert body.evaluate(read) == ["rgb(1, 2, 3)", "rgb(20, 23, 26)"]
    card.page.evaluate("bridge.sendHostContextChange({theme: 'light'})")
    card.frame.locator("html[style*='light']").wait_for()
    assert body.evaluate(read)[1] == "rgb(251, 250, 247)"


@pytest.mark.requirement("faces:card")
def test_card_answers_requests_of_host(host):
    card = host.show("sessions_prune")
    assert card.page.evaluate("bridge.teardownResource({})") == {}
    refused = "bridge.listTools({}).then(() => '', (error) => error.code)"
    assert card.page.evaluate(refused) == -32601

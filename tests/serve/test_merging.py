"""Reading tools over several stores: one answer, one order, one cursor."""

from __future__ import annotations

import pytest

from session_core import SessionDB, SessionSource, SessionStore

WORK, TRAVEL = "hermes:work", "hermes:travel"
pytestmark = [pytest.mark.anyio, pytest.mark.options(all_profiles=True)]


@pytest.fixture(name="homes", autouse=True)
def _homes(home_path):
    """Three homes. Their sessions have equal times and sizes, and one id is in two of them."""
    homes = {"hermes": home_path}
    for name in (TRAVEL, WORK):
        homes[name] = home_path / "profiles" / name.removeprefix("hermes:")
    for name, path in homes.items():
        path.mkdir(parents=True, exist_ok=True)
        with SessionDB(path / "state.db") as db:
            label = name.removeprefix("hermes:")
            for number in range(4):
                create = {"source": "cli", "started_at": 1e9 + number % 2}
                text = f"apples of {label} {'and pears ' * number}"
                at = 1e9 + 100 + number // 2
                db.append_message(f"{label}{number}", "user", text, timestamp=at, create=create)
            if name != "hermes":
                db.append_message("both", "user", f"plums of {label}", create={"source": "cli"})
    return homes


async def read_pages(call, tool, rows, limit, **arguments):
    """Return the rows of all pages, and the number of pages."""
    page = await call(tool, limit=limit, **arguments)
    result, pages = list(page[rows]), 1
    while page["next_cursor"] is not None:
        page = await call(tool, cursor=page["next_cursor"])
        result += page[rows]
        pages += 1
    return result, pages


@pytest.mark.requirement("stores:lists")
@pytest.mark.parametrize("order", ["recent", "started", "size", "cost", "tokens"])
async def test_list_pages_merge_stores(call, order):
    whole, _ = await read_pages(call, "sessions_list", "sessions", 100, order=order)
    paged, pages = await read_pages(call, "sessions_list", "sessions", 3, order=order)
    assert paged == whole
    assert pages == 5
    assert len({(row["store"], row["id"]) for row in whole}) == 14


@pytest.mark.requirement("stores:lists")
async def test_merged_list_orders_equal_times_by_store(call):
    rows, _ = await read_pages(call, "sessions_list", "sessions", 4, until="2001-09-10")
    assert [row["id"] for row in rows] == [
        *("hermes3", "hermes2", "travel3", "travel2", "work3", "work2"),
        *("hermes1", "hermes0", "travel1", "travel0", "work1", "work0"),
    ]


@pytest.mark.requirement("stores:searches")
async def test_search_pages_merge_stores(call):
    whole = (await call("sessions_search", query="apples", limit=100))["hits"]
    paged, pages = await read_pages(call, "sessions_search", "hits", 5, query="apples")
    assert len(paged) == len(whole) == 12
    assert pages == 3
    assert {hit["session_id"] for hit in paged} == {hit["session_id"] for hit in whole}


@pytest.mark.requirement("stores:searches")
async def test_best_hits_of_all_stores_come_first(call, homes):
    with SessionDB(homes[WORK] / "state.db") as db:
        db.append_message("best", "user", "apples", create={"source": "cli"})
    page = await call("sessions_search", query="apples", limit=2)
    assert page["hits"][0]["session_id"] == "best"
    assert page["hits"][0]["store"] == WORK


@pytest.mark.requirement("stores:searches")
async def test_search_keeps_strictest_matches(call, homes):
    with SessionDB(homes[WORK] / "state.db") as db:
        db.append_message("exact", "user", "apples with cherries", create={"source": "cli"})
    page = await call("sessions_search", query="apples cherries")
    assert page["matched"] == "all"
    assert [hit["session_id"] for hit in page["hits"]] == ["exact"]


@pytest.mark.requirement("stores:searches")
async def test_later_messages_move_no_search_page(call, homes):
    first = await call("sessions_search", query="apples", limit=5)
    with SessionDB(homes["hermes"] / "state.db") as db:
        db.append_message("late", "user", "apples apples", create={"source": "cli"})
    shown, page = list(first["hits"]), first
    while page["next_cursor"] is not None:
        page = await call("sessions_search", cursor=page["next_cursor"])
        shown += page["hits"]
    ids = [(hit["store"], hit["session_id"]) for hit in shown]
    assert len(ids) == len(set(ids)) == 12


@pytest.mark.requirement("stores:lists")
async def test_routes_pages_merge_stores(call, homes):
    for name, path in homes.items():
        with SessionDB(path / "state.db") as db, SessionStore.open(path, db) as store:
            for number in range(3):
                chat = f"{name}-{number}"
                store.get_or_create_session(SessionSource(platform="telegram", chat_id=chat))
    routes, pages = await read_pages(call, "routes_list", "routes", 4)
    assert pages == 3
    assert len({(route["store"], route["session_key"]) for route in routes}) == 9


@pytest.mark.requirement("stores:stats")
async def test_stats_add_up_stores(call):
    stats = await call("sessions_stats")
    assert {row["name"]: (row["sessions"], row["messages"]) for row in stats["stores"]} == {
        "hermes": (4, 4),
        TRAVEL: (5, 5),
        WORK: (5, 5),
    }
    assert (stats["sessions"]["total"], stats["messages"]) == (14, 14)
    assert stats["sessions"]["by_source"] == {"cli": 14}
    named = await call("sessions_stats", store=WORK)
    assert [row["name"] for row in named["stores"]] == [WORK]


@pytest.mark.requirement("stores:events")
async def test_events_come_from_every_store(call, homes):
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    for name, path in homes.items():
        with SessionDB(path / "state.db") as db:
            db.append_message("news", "user", f"news of {name}", create={"source": "cli"})
        answer = await call("events_wait", cursor=cursor, timeout_s=20)
        cursor = answer["cursor"]
        texts = [event["text"] for event in answer["events"] if event["type"] == "message"]
        assert texts == [f"news of {name}"]
        assert {event["store"] for event in answer["events"]} == {name}


@pytest.mark.requirement("stores:events")
async def test_event_pages_starve_no_store(call, homes):
    cursor = (await call("events_wait", timeout_s=0))["cursor"]
    for path in homes.values():
        with SessionDB(path / "state.db") as db:
            for number in range(6):
                db.append_message("news", "user", f"n{number}", create={"source": "cli"})
    answer = await call("events_wait", cursor=cursor, timeout_s=0, limit=6)
    assert {event["store"] for event in answer["events"]} == set(homes)


@pytest.mark.requirement("stores:sessions")
async def test_session_finds_its_own_store(call):
    for reference in ("work2", "work3"):
        page = await call("sessions_read", session=reference)
        assert page["session"]["store"] == WORK
    hits = (await call("sessions_search", query="apples", session="travel1"))["hits"]
    assert [hit["store"] for hit in hits] == [TRAVEL]


@pytest.mark.requirement("stores:sessions")
async def test_read_cursor_keeps_found_store(call, homes):
    with SessionDB(homes[WORK] / "state.db") as db:
        for number in range(4):
            db.append_message("work0", "user", f"line {number}")
    page = await call("sessions_read", session="work0", limit=2)
    older = await call("sessions_read", cursor=page["next_cursor"])
    assert [message["text"] for message in older["messages"]] == ["line 0", "line 1"]


@pytest.mark.requirement("stores:sessions")
async def test_session_of_two_stores_is_ambiguous(call, refused):
    expected = f"'both' exists in several stores: {TRAVEL}, {WORK}; pass store"
    assert expected in await refused("sessions_read", session="both")
    assert expected in await refused("sessions_edit", sessions="both", title="T")
    page = await call("sessions_read", session="both", store=WORK)
    assert page["messages"][0]["text"] == "plums of work"


@pytest.mark.requirement("stores:damage")
async def test_damaged_store_is_noted(call, homes):
    for file in homes[WORK].glob("state.db*"):
        file.unlink()
    (homes[WORK] / "state.db").write_bytes(b"this is no database at all" * 400)
    for tool, rows, arguments in (
        ("sessions_list", "sessions", {}),
        ("sessions_search", "hits", {"query": "apples"}),
        ("events_wait", "events", {"timeout_s": 0}),
    ):
        answer = await call(tool, **arguments)
        assert answer["note"].startswith(f"{WORK} is left out, because it could not be read: ")
        assert {row["store"] for row in answer[rows]} <= {"hermes", TRAVEL}
    assert (await call("sessions_read", session="travel0"))["session"]["store"] == TRAVEL
    stats = await call("sessions_stats")
    (finding,) = (item for item in stats["findings"] if item["code"] == "unreadable")
    assert finding["what"].startswith(f"{WORK}: ")


@pytest.mark.parametrize("order", ["relevance", "newest", "oldest"])
async def test_search_cursor_of_stores_is_short(call, order):
    page = await call("sessions_search", query="what about ledger", order=order, limit=1)
    assert page["next_cursor"] is None or len(page["next_cursor"]) <= 120

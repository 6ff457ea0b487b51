"""`sessions_read`: windows of messages, and paging."""

from __future__ import annotations

import pytest

from mcp_serve import answer_size

pytestmark = pytest.mark.anyio


@pytest.fixture(name="ids")
def _ids(db):
    db.create_session("s1", "cli")
    return [
        int(db.append_message("s1", "user" if n % 2 else "assistant", f"line {n}"))
        for n in range(10)
    ]


def list_texts(page):
    return [message["id"] for message in page["messages"]]


@pytest.mark.requirement("serving:read")
async def test_read_starts_latest_and_pages_back(ids, call):
    page = await call("sessions_read", session="s1", limit=4)
    older = await call("sessions_read", cursor=page["next_cursor"], limit=4)
    oldest = await call("sessions_read", cursor=older["next_cursor"], limit=4)
    assert [list_texts(item) for item in (page, older, oldest)] == [ids[6:], ids[2:6], ids[:2]]
    assert oldest["next_cursor"] is None
    assert "prev_cursor" not in page
    back = await call("sessions_read", cursor=older["prev_cursor"], limit=4)
    assert list_texts(back) == ids[6:]


@pytest.mark.requirement("serving:read")
async def test_message_has_contract_keys(ids, db, call):
    db.append_message("s1", "user", "the last", timestamp=1_700_000_000)
    page = await call("sessions_read", session="s1", limit=1)
    assert page["messages"] == [
        {"id": ids[-1] + 1, "role": "user", "text": "the last", "at": "2023-11-14T22:13:20Z"}
    ]
    assert page["session"]["id"] == "s1"


@pytest.mark.requirement("serving:pieces")
async def test_cut_message_cursor_reaches_older_messages(db, call):
    older = [
        db.append_message("s1", "user", f"older {n}", create={"source": "cli"}) for n in (1, 2)
    ]
    long = db.append_message("s1", "assistant", "long " * 8_000)
    page = await call("sessions_read", session="s1", around=long)
    assert list_texts(page) == [long]
    assert list_texts(await call("sessions_read", cursor=page["prev_cursor"])) == older


@pytest.mark.requirement("serving:read")
async def test_read_before_after_and_around(ids, call):
    assert list_texts(await call("sessions_read", session="s1", before=ids[3])) == ids[:3]
    after = await call("sessions_read", session="s1", after=ids[3], limit=2)
    assert list_texts(after) == ids[4:6]
    assert list_texts(await call("sessions_read", cursor=after["next_cursor"], limit=9)) == ids[6:]
    around = await call("sessions_read", session="s1", around=ids[5], limit=3)
    assert list_texts(around) == ids[4:7]
    assert (
        list_texts(await call("sessions_read", cursor=around["next_cursor"], limit=2)) == ids[7:9]
    )
    assert (
        list_texts(await call("sessions_read", cursor=around["prev_cursor"], limit=2)) == ids[2:4]
    )


@pytest.mark.requirement("serving:read")
async def test_read_rejects_two_positions(ids, refused):
    text = await refused("sessions_read", session="s1", before=1, around=2)
    assert "at most one of before, after and around" in text


@pytest.mark.requirement("serving:read")
async def test_read_requires_session_or_cursor(client, refused):
    assert "session is required" in await refused("sessions_read")
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["sessions_read"].input_schema["required"] == ["session"]


@pytest.mark.requirement("serving:conversation")
async def test_read_resolves_id_prefix_title_key(db, call, refused):
    for name in ("abc1", "abc2", "xyz"):
        db.append_message(name, "user", name, create={"source": "cli"})
    db.set_session_title("abc2", "Plans")
    assert (await call("sessions_read", session="xy"))["session"]["id"] == "xyz"
    assert (await call("sessions_read", session="Plans"))["session"]["id"] == "abc2"
    assert "abc1, abc2; pass a longer prefix" in await refused("sessions_read", session="abc")
    text = await refused("sessions_read", session="abd")
    assert text == (
        "no session 'abd'; call sessions_list or sessions_search for ids. Nearest: abc1, abc2."
    )


@pytest.mark.requirement("serving:conversation")
async def test_read_title_resolves_to_tip(db, call):
    db.append_message("old", "user", "first", create={"source": "cli"})
    db.set_session_title("old", "Trip")
    db.end_session("old", "compression")
    create = {"source": "cli", "parent_session_id": "old"}
    db.append_message("new", "user", "second", create=create)
    by_title = await call("sessions_read", session="Trip")
    by_id = await call("sessions_read", session="old")
    assert (by_title["session"]["id"], by_title["session"]["continues"]) == ("new", "old")
    assert (by_id["session"]["id"], by_id["session"]["continued_by"]) == ("old", "new")
    assert [message["text"] for message in by_id["messages"]] == ["first"]


@pytest.mark.requirement("serving:conversation")
async def test_full_view_continues_into_parent(db, call):
    db.append_message("old", "user", "first", create={"source": "cli"})
    db.end_session("old", "compression")
    create = {"source": "cli", "parent_session_id": "old"}
    db.append_message("new", "user", "second", create=create)
    page = await call("sessions_read", session="new", view="full")
    older = await call("sessions_read", cursor=page["next_cursor"])
    assert [(message["text"], message["session_id"]) for message in older["messages"]] == [
        ("first", "old")
    ]
    assert older["session"]["id"] == "new"
    assert older["next_cursor"] is None


@pytest.mark.requirement("serving:conversation")
async def test_full_view_marks_compacted_rows(db, call):
    db.append_message("s1", "user", "long ago", create={"source": "cli"})
    db.archive_and_compact("s1", [{"role": "user", "content": "[summary]"}])
    live = await call("sessions_read", session="s1")
    full = await call("sessions_read", session="s1", view="full")
    assert [message["text"] for message in live["messages"]] == ["[summary]"]
    assert [(message["text"], message.get("compacted")) for message in full["messages"]] == [
        ("long ago", True),
        ("[summary]", None),
    ]


async def test_read_around_compacted_hit(db, call):
    message = [f"long ago {n}" for n in range(6)]
    for text in message:
        db.append_message("s1", "user", text, create={"source": "cli"})
    db.archive_and_compact("s1", [{"role": "user", "content": "[summary]"}])
    (hit,) = (await call("sessions_search", query='"ago 3"'))["hits"]
    page = await call("sessions_read", session="s1", around=hit["message_id"], limit=3)
    assert [item["text"] for item in page["messages"]] == message[2:5]
    on = await call("sessions_read", cursor=page["next_cursor"], limit=2)
    assert [item["text"] for item in on["messages"]] == [message[5], "[summary]"]
    back = await call("sessions_read", cursor=page["prev_cursor"])
    assert [item["text"] for item in back["messages"]] == message[:2]


@pytest.mark.requirement("serving:pieces")
async def test_concise_read_shortens_tool_rows(db, call):
    called = {"id": "c1", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    db.append_message("s1", "assistant", "", tool_calls=[called], create={"source": "cli"})
    db.append_message("s1", "tool", "x" * 900, tool_name="cat", tool_call_id="c1")
    request, answered = (await call("sessions_read", session="s1"))["messages"]
    assert (request["text"], request["tool"]) == ("[calls cat {}]", "cat")
    assert (len(answered["text"]), answered["cut_chars"], answered["tool"]) == (200, 700, "cat")
    whole = (await call("sessions_read", session="s1", detail="detailed"))["messages"][1]
    assert whole["text"] == "x" * 900
    assert "cut_chars" not in whole


@pytest.mark.requirement("serving:pieces")
@pytest.mark.parametrize(
    "text", ["a" * 90_000, "\n\t" * 30_000, "数据🚀" * 9_000], ids=["a", "n", "z"]
)
async def test_long_message_is_read_in_pieces(db, call, text):
    db.append_message("s1", "user", "before", create={"source": "cli"})
    db.append_message("s1", "user", text)
    page = await call("sessions_read", session="s1")
    pieces = [page["messages"][-1]["text"]]
    while page["messages"][0]["text"] != "before":
        assert answer_size.count_chars(page) <= answer_size.DEFAULT_CHARS
        page = await call("sessions_read", cursor=page["next_cursor"])
        pieces.append(page["messages"][-1]["text"])
    assert "".join(pieces).removesuffix("before") == text
    assert page["next_cursor"] is None


@pytest.mark.requirement("serving:pieces")
@pytest.mark.parametrize("limit", [1_000, 5_000, 40_000])
async def test_max_chars_pages_cover_every_message(ids, db, call, limit):
    more = [int(db.append_message("s1", "user", f"{n} " + "word " * n * 9)) for n in range(60)]
    page = await call("sessions_read", session="s1", max_chars=limit, limit=200)
    result = set(list_texts(page))
    while page["next_cursor"]:
        assert answer_size.count_chars(page) <= limit
        page = await call("sessions_read", cursor=page["next_cursor"], max_chars=limit, limit=200)
        assert list_texts(page) == sorted(list_texts(page))
        result |= set(list_texts(page))
    assert result == {*ids, *more}


@pytest.mark.requirement("serving:pieces")
async def test_picture_message_shows_placeholder(db, call):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    db.append_message("s1", "user", [picture], create={"source": "cli"})
    page = await call("sessions_read", session="s1")
    assert page["messages"][0]["text"] == "[image]"
    assert page["messages"][0]["attachments"] == [{"kind": "image", "bytes": 3}]


@pytest.mark.requirement("serving:read")
@pytest.mark.parametrize(
    ("part", "attachment"),
    [
        ({"type": "file", "file": {"filename": "a.pdf"}}, {"kind": "file", "name": "a.pdf"}),
        (
            {"type": "input_file", "filename": "b", "size": 9},
            {"kind": "file", "name": "b", "bytes": 9},
        ),
        (
            {"type": "image", "source": {"type": "base64", "data": "QUJDRA=="}},
            {"kind": "image", "bytes": 4},
        ),
        ({"type": "image_url", "image_url": "https://example.org/x.png"}, {"kind": "image"}),
        ({"type": "tool_result", "content": "x"}, None),
    ],
)
async def test_message_lists_attachments(db, call, part, attachment):
    content = [{"type": "text", "text": "look"}, part]
    db.append_message("s1", "user", content, create={"source": "cli"})
    (message,) = (await call("sessions_read", session="s1"))["messages"][-1:]
    assert message.get("attachments") == (None if attachment is None else [attachment])


@pytest.mark.requirement("serving:notes")
async def test_empty_page_explains_itself(ids, call, db):
    page = await call("sessions_read", session="s1", roles=["human"])
    assert page["messages"] == []
    assert page["note"] == (
        "No message here has the role human; usual roles: user, assistant, tool, system."
    )
    page = await call("sessions_read", session="s1", after=ids[-1])
    assert page["note"].startswith("There are no messages in this direction")
    db.create_session("empty", "cli")
    page = await call("sessions_read", session="empty")
    assert page["note"] == "This session has no messages yet."
    assert "note" not in await call("sessions_read", session="s1")


@pytest.mark.requirement("serving:values")
async def test_roles_ignore_case(ids, call):
    page = await call("sessions_read", session="s1", roles=["USER"])
    assert {message["role"] for message in page["messages"]} == {"user"}


@pytest.mark.requirement("serving:read")
async def test_roles_accept_json_text(ids, call):
    page = await call("sessions_read", session="s1", roles='["user"]')
    assert {message["role"] for message in page["messages"]} == {"user"}


@pytest.mark.requirement("serving:read")
async def test_foreign_message_error_names_session(ids, db, refused):
    other = int(db.append_message("s2", "user", "here", create={"source": "cli"}))
    text = await refused("sessions_read", session="s1", around=other)
    assert text == f"message {other} is not in session s1; read session s2 around it."
    assert "no message 999" in await refused("sessions_read", session="s1", around=999)


@pytest.mark.requirement("serving:pieces")
async def test_cut_message_keeps_detail(db, call):
    text = "A" * 15_000 + "B" * 15_000 + "END"
    db.append_message("s1", "tool", text, tool_name="read_file", create={"source": "cli"})
    page = await call("sessions_read", session="s1", detail="detailed")
    shown = ""
    while page["messages"]:
        shown += page["messages"][0]["text"]
        if page["next_cursor"] is None:
            break
        page = await call("sessions_read", cursor=page["next_cursor"])
    assert shown == text


@pytest.mark.requirement("serving:read")
async def test_read_shows_live_rows_only(db, call):
    db.create_session("s1", "cli")
    rows = [("system", "be brief"), ("user", "hi"), ("assistant", ""), ("tool", "done"), ("x", "y")]
    ids = [int(db.append_message("s1", role, text)) for role, text in rows]
    gone = int(db.append_message("s1", "user", "taken back"))
    db.rewind_to_message("s1", gone)
    for view in ("live", "full"):
        page = await call("sessions_read", session="s1", view=view)
        assert list_texts(page) == ids
        assert [(message["role"], message["text"]) for message in page["messages"]] == rows

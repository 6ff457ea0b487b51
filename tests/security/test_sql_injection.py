"""SQL injection: arguments are values, never part of a statement or a search expression."""

from __future__ import annotations

import pytest

from mcp_serve.sdk.tool_schemas import make_input_schema
from mcp_serve.tool_list import load_specs
from tests.homes import connect
from tests.thorough import take_share

pytestmark = pytest.mark.anyio

PAYLOADS = (
    "' OR '1'='1",
    "x'; DROP TABLE messages; --",
    '" OR 1=1 --',
    "x') UNION SELECT sql FROM sqlite_master --",
    "source') = 'cli' OR json_extract(tool_calls, '$.",
    "a' AND (SELECT load_extension('x')) AND 'a",
    "x'; ATTACH DATABASE 'stolen.db' AS s; CREATE TABLE s.t AS SELECT * FROM messages; --",
    "; PRAGMA writable_schema=ON; --",
    "\x00' OR 1=1 --",
    "%",
    "_",
    "*",
    '" OR session_id:* OR "',
    "messages_fts MATCH 'a' OR",
    "NEAR(a b, 10) OR rowid > 0",
    "{content tool_name}: secret",
    ":id",
    "?1",
    "@x",
    "$y",
)
EACH_PAYLOAD = pytest.mark.parametrize("payload", take_share(PAYLOADS, 3), ids=range(len(PAYLOADS)))

NAMED = ("session", "sessions", "batch", "plan", "cursor", "store", "since")
"""Arguments that name one object: a payload names no object, which is an error."""


@pytest.fixture(autouse=True)
def _sessions(db):
    for number in range(4):
        create = {"source": "cli", "cwd": "/srv/shop"}
        db.append_message(f"s{number}", "user", f"plain words {number}", create=create)
        db.set_session_title(f"s{number}", f"Title {number}")
    db.end_session("s0", "done")


def dump_database(path):
    """Return the whole content of a database, including its schema."""
    with connect(path / "state.db", mode="ro") as connection:
        schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name")
        held = {"schema": schema.fetchall()}
        for kind, name, sql in held["schema"]:
            if kind == "table" and not sql.startswith("CREATE VIRTUAL"):
                held[name] = connection.execute(f'SELECT * FROM "{name}"').fetchall()  # noqa: S608
        return held


def list_text_arguments(spec):
    """Return the arguments of a tool that take free text or a list of it."""
    listed = make_input_schema(spec.arguments)["properties"].items()
    return [
        name
        for name, schema in listed
        if schema.get("type") in ("string", "array") and not schema.get("enum")
    ]


def make_payload_call(spec, name, payload):
    """Return the arguments of a call with a payload, or None if the tool stores the argument."""
    sent = dict.fromkeys(spec.arguments.required, "s1") | {name: payload}
    if spec.name == "events_wait":
        sent["timeout_s"] = 0
    if spec.name == "sessions_edit":
        # Any other argument is stored, which is its job.
        return {"sessions": [payload], "archived": True} if name == "sessions" else None
    return sent


@pytest.mark.requirement("security:sql")
def test_payloads_reach_lists_of_sessions():
    reached = {(spec.name, name) for spec in load_specs() for name in list_text_arguments(spec)}
    for tool in ("sessions_edit", "sessions_finalize", "sessions_prune"):
        assert (tool, "sessions") in reached
    assert ("sessions_prune", "keep") in reached


def test_no_argument_takes_sql():
    names = {name for spec in load_specs() for name in spec.arguments.model_fields}
    assert not names & {"sql", "where", "statement", "filter", "expression", "table", "column"}


@pytest.mark.requirement("security:sql")
@EACH_PAYLOAD
async def test_payload_arguments_change_nothing(db, home_path, client, payload):
    before = dump_database(home_path)
    for spec in load_specs():
        for name in list_text_arguments(spec):
            sent = make_payload_call(spec, name, payload)
            if sent is None:
                continue
            result = await client.call_tool(spec.name, sent)
            text = result.content[0].text
            assert "defect" not in text, (spec.name, name)
            assert "syntax error" not in text
            assert result.is_error or name not in NAMED, (spec.name, name, text)
    assert dump_database(home_path) == before
    assert not (home_path / "stolen.db").exists()


@pytest.mark.requirement("security:sql")
@EACH_PAYLOAD
async def test_payload_filters_select_nothing(call, payload):
    for name in ("source", "end_reason", "project", "query"):
        listed = await call("sessions_list", **{name: payload})
        assert listed["sessions"] == [], name
    for name in ("source", "project"):
        assert (await call("sessions_search", query="plain", **{name: payload}))["hits"] == []
        planned = await call("sessions_prune", older_than_days=0, **{name: payload})
        assert (planned["outcome"], planned["count"]) == ("nothing", 0)
    assert (await call("sessions_search", query="plain", roles=[payload[:50]]))["hits"] == []


@pytest.mark.parametrize("payload", ["%", "_", "%%", "p_ain", "pl%n", "*", "pl*n", "\\%", "[a-z]"])
async def test_substring_search_escapes_wildcards(db, call, payload):
    assert (await call("sessions_search", query=payload, mode="substring"))["hits"] == []
    db.append_message("s9", "user", f"to {payload} the letter", create={"source": "cli"})
    (hit,) = (await call("sessions_search", query=payload, mode="substring"))["hits"]
    assert hit["session_id"] == "s9"


@EACH_PAYLOAD
async def test_stored_payload_is_returned_unchanged(db, call, payload):
    edited = await call("sessions_edit", sessions="s1", title=f"t {payload}")
    assert edited["sessions"][0]["title"] == " ".join(f"t {payload}".replace("\x00", " ").split())
    db.append_message("s1", "user", f"zebra {payload}")
    (hit,) = (await call("sessions_search", query="zebra"))["hits"]
    page = await call("sessions_read", session="s1", around=hit["message_id"])
    assert f"zebra {payload}" in [message["text"] for message in page["messages"]]


@pytest.mark.requirement("security:sql")
@pytest.mark.options(read_only=True)
async def test_read_only_server_cannot_write(db, home_path, client, call):
    await call("sessions_list")
    before = dump_database(home_path)
    for spec in load_specs():
        await _call_with_payload(client, spec)
    assert dump_database(home_path) == before


async def _call_with_payload(client, spec):
    if not spec.changes:
        arguments = dict.fromkeys(spec.arguments.required, "s1")
        arguments |= {"timeout_s": 0} if spec.name == "events_wait" else {}
        await client.call_tool(spec.name, arguments)

"""Any value for any argument of any tool gets a typed answer or a helpful error."""

from __future__ import annotations

import json
import math
from urllib.parse import quote

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.types import INVALID_PARAMS, PromptReference
from pydantic import TypeAdapter

from mcp_serve import server
from mcp_serve.sdk.tool_schemas import make_input_schema, slim_schema
from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.tool_list import load_specs
from tests.security.corpus import LONG, plant_texts
from tests.security.walk import COMPLETED

pytestmark = pytest.mark.anyio

TEXTS = {"one": "the first text", "two": "a second text", "three": "and a third"}
MOST = 40_000

HUGE = (-1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40)
ODD_FLOATS = (0.5, -0.0, 1e-320, 1e20, 1e308, float("inf"), -float("inf"), float("nan"))
NASTY = (
    *("", " ", "\x00", "%", "_", "*", '"', "'", "\\", "/", ":", "null", "[", "{}", "0", "-1"),
    *("\u202e", "\u0301" * 50, "ﷺ" * 50, "👩‍👩‍👧" * 9, "數據", "\U000e0041", "\ufffe", "\x1b[2J"),
    *("a OR", "NOT", "NEAR(a b)", "a AND (", "-a", '"a', "a*", "^a", "a:b", "(" * 300),
    *("99999999999d", "-1d", "0d", "1e9d", "2026-13-01", "0001-01-01", "9999-12-31T23:59:59Z"),
    *("a" * 501, "a" * 2001, "a " * 1000, "ä" * 4000, "x" * 40_000),
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(HUGE)
    | st.sampled_from(ODD_FLOATS)
    | st.sampled_from(NASTY)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$ne", "__class__"]), inner, max_size=2)
    ),
    max_leaves=5,
)
IDS = ("h00", "h01", "h02", LONG)
MEANT = {
    "store": ("own",),
    "session": (*IDS, "the first text h00", "agent:main:telegram:dm:0"),
    "query": ("text", "first OR third", "wel*", '"the first"', *NASTY),
    "since": ("7d", "2020-01-01", "12h"),
    "until": ("1h", "2099-01-01T00:00:00Z"),
    "project": ("/srv", "/srv/the first text", "~", *NASTY),
    "source": ("cli", "the first text", *NASTY),
    "title": ("A title", *NASTY),
}
"""Odd values for text arguments."""

WAITS = ODD.filter(lambda value: not _is_wait_time(value))


def _is_wait_time(value):
    """Return True if a value may be read as a time to wait."""
    if value is None:
        return True
    try:
        return 0 < float(value) <= 50 or not math.isfinite(value)  # which is no JSON, and null
    except (TypeError, ValueError, OverflowError):
        return False


def plausible_values(name, schema):
    """Return a valid value for an argument, so that the code after its check is reached."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = {
        "boolean": st.booleans(),
        "integer": st.integers(0, 60) | st.sampled_from([1_000, 5_000]),
        "number": st.integers(0, 60) | st.floats(0, 100),
        "string": st.sampled_from(MEANT.get(name, ("user", "done", "telegram"))),
        "array": st.lists(st.sampled_from([*IDS, "user", "tool"]), max_size=3),
    }
    return kinds[schema["type"]]


def tool_arguments(spec):
    """Return arguments for a tool: mostly valid ones, often one odd value."""
    listed = make_input_schema(spec.arguments)
    meant = {
        name: plausible_values(name, schema)
        for name, schema in listed["properties"].items()
        if name not in ("cursor", "plan", "batch", "summary")
    }
    always = {name: meant.pop(name) for name in listed.get("required", ())}
    odd = dict.fromkeys(spec.arguments.model_fields, ODD)
    if spec.name == "events_wait":
        meant.pop("timeout_s")
        always["timeout_s"] = st.just(0)
        odd["timeout_s"] = WAITS
    expected = st.fixed_dictionaries(always, optional=meant)
    one = st.sampled_from(sorted(odd)).flatmap(lambda name: st.tuples(st.just(name), odd[name]))
    return expected | st.tuples(expected, one).map(lambda both: both[0] | {both[1][0]: both[1][1]})


CALLS = st.sampled_from(load_specs()).flatmap(
    lambda spec: st.tuples(st.just(spec), tool_arguments(spec))
)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", name="client")
async def _client(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzzed")
    (path / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_SESSIONS_STATE", str(path / "state"))
        plant_texts(path / "home", TEXTS)
        served = ServedStores(ServerOptions(home=str(path / "home"), confirm=False))
        async with Client(server.create_server(served), cache=None) as client:
            yield client
        served.close()


def check_answer(result, valid):
    """Check that an answer matches its schema."""
    (half,) = result.content
    if result.is_error:
        assert "a defect of this server" not in half.text
        assert 10 < len(half.text) < 2_500
        assert half.text.endswith((".", "?")), half.text
        assert "\n" not in half.text
    else:
        valid.validate(result.structured_content)
        assert json.loads(half.text) == result.structured_content
        assert len(half.text) <= MOST


def check_refusal(refused, asked):
    """Check that a protocol error has a code and message that a client can use."""
    assert refused.error.code == INVALID_PARAMS, (asked, refused.error)
    assert len(refused.error.message) > 10, (asked, refused.error)


VALID = {
    spec.name: jsonschema.Draft202012Validator(slim_schema(TypeAdapter(spec.answers).json_schema()))
    for spec in load_specs()
}
"""Validators of the tool answers, from the published schemas."""

ENOUGH = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.requirement("security:arguments")
@settings(ENOUGH, max_examples=300)
@given(asked=CALLS)
async def test_random_arguments_get_answer_or_error(client, asked):
    spec, sent = asked
    check_answer(await client.call_tool(spec.name, sent), VALID[spec.name])


@pytest.mark.requirement("security:arguments")
@pytest.mark.parametrize("spec", load_specs(), ids=lambda spec: spec.name)
async def test_odd_values_are_answered(client, spec):
    valid = VALID[spec.name]
    for name in spec.arguments.model_fields:
        for value in (*HUGE, *ODD_FLOATS, *NASTY[:6], *NASTY[-5:], True, [], {}, [None], {"a": 1}):
            if name == "timeout_s" and _is_wait_time(value):
                continue
            sent = {"timeout_s": 0} if spec.name == "events_wait" else {}
            check_answer(await client.call_tool(spec.name, sent | {name: value}), valid)


@pytest.mark.requirement("security:arguments")
async def test_server_survives_random_arguments(client):
    rows = (await client.call_tool("sessions_list", {"status": "all"})).structured_content
    assert rows["sessions"]


ANY = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.requirement("security:arguments")
@settings(ENOUGH, max_examples=150)
@given(kind=st.sampled_from(["session", "route", "sessions", "file", "x"]), name=ANY, more=ANY)
async def test_random_addresses_are_read_or_refused(client, kind, name, more):
    for address in (
        f"{kind}://{quote(name, safe='')}",
        f"{kind}://{quote(name, safe='')}/messages?cursor={quote(more, safe='')}",
        f"{kind}://{name}",
    ):
        try:
            (content,) = (await client.read_resource(address)).contents
        except MCPError as refused:
            check_refusal(refused, address)
        else:
            assert json.loads(content.text)


@pytest.mark.requirement("security:arguments")
@ENOUGH
@given(name=st.sampled_from(["catch_up", "tidy_up", "nope"]), given_names=st.dictionaries(ANY, ANY))
async def test_random_prompts_are_rendered_or_refused(client, name, given_names):
    try:
        result = await client.get_prompt(name, given_names)
    except MCPError as refused:
        check_refusal(refused, name)
    else:
        assert result.messages


@pytest.mark.requirement("security:arguments")
@settings(ENOUGH, max_examples=150)
@given(argument=st.sampled_from(COMPLETED) | ANY, typed=ANY)
async def test_random_completions_are_answered(client, argument, typed):
    reference = PromptReference(type="ref/prompt", name="catch_up")
    result = await client.complete(reference, {"name": argument, "value": typed})
    assert len(result.completion.values) <= 100

"""The tool list: names, arguments, values and defaults of the contract, and its size."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_serve.error_messages import explain_error
from mcp_serve.tool_list import load_specs

pytestmark = pytest.mark.anyio

ARGUMENTS = {
    "sessions_list": "query project source exclude_source status since until end_reason "
    "min_messages max_messages titled order limit cursor detail",
    "sessions_read": "session before after around roles view max_chars limit cursor detail",
    "sessions_search": "query session project source exclude_source status since until roles tool "
    "order mode per limit "
    "cursor detail",
    "sessions_stats": "deep",
    "routes_list": "query platform state limit cursor",
    "events_wait": "cursor session timeout_s limit",
    "sessions_edit": "sessions title archived pinned reopen",
    "sessions_finalize": "sessions what reason start_new project source older_than_days plan",
    "sessions_compress": "session plan summary method shape keep_last",
    "sessions_prune": "what sessions project source older_than_days end_reason min_messages "
    "max_messages keep plan cursor",
    "sessions_restore": "batch plan limit cursor",
}
LIMITS = {
    "sessions_list": (20, 100),
    "sessions_read": (50, 200),
    "sessions_search": (10, 100),
    "routes_list": (50, 200),
    "events_wait": (100, 500),
    "sessions_restore": (20, 100),
}
VALUES = {
    ("sessions_list", "status"): ["open", "ended", "archived", "all"],
    ("sessions_list", "order"): ["recent", "started", "size", "cost", "tokens"],
    ("sessions_list", "detail"): ["concise", "detailed"],
    ("sessions_read", "view"): ["live", "full"],
    ("sessions_read", "detail"): ["concise", "detailed"],
    ("sessions_search", "detail"): ["concise", "detailed"],
    ("sessions_search", "status"): ["open", "ended", "archived", "all"],
    ("sessions_search", "order"): ["relevance", "newest", "oldest"],
    ("sessions_search", "mode"): ["words", "substring"],
    ("sessions_search", "per"): ["conversation", "message"],
    ("routes_list", "state"): [
        "active",
        "suspended",
        "resume_pending",
        "expired",
        "stale",
        "dangling",
    ],
    ("sessions_prune", "what"): [
        "sessions",
        "ghosts",
        "routes",
        "orphans",
        "index",
        "trash",
        "all",
    ],
    ("sessions_finalize", "what"): ["sessions", "expired", "orphaned", "abandoned"],
    ("sessions_compress", "method"): ["summary", "extractive"],
    ("sessions_compress", "shape"): ["auto", "in_place", "continuation"],
}
DEFAULTS = {
    "order": "recent",
    "detail": "concise",
    "view": "live",
    "mode": "words",
    "per": "conversation",
    "what": "sessions",
    "method": "summary",
    "shape": "auto",
    "deep": False,
    "reopen": False,
    "start_new": False,
    "timeout_s": 25,
    "max_chars": 20_000,
}
_OWN_DEFAULTS = {("sessions_search", "order"): "relevance"}
REQUIRED = {
    "sessions_read": ["session"],
    "sessions_search": ["query"],
    "sessions_edit": ["sessions"],
}
HINTS = {  # changes, destructive
    "sessions_edit": (True, False),
    "sessions_finalize": (True, False),
    "sessions_compress": (True, False),
    "sessions_prune": (True, True),
    "sessions_restore": (True, True),  # messages after a compression may be dropped
}


@pytest.mark.requirement("serving:surface")
async def test_tool_arguments_match_contract(tools):
    listed = {name: sorted(tool.input_schema["properties"]) for name, tool in tools.items()}
    assert listed == {n: sorted([*args.split(), "store"]) for n, args in ARGUMENTS.items()}


@pytest.mark.requirement("serving:surface")
async def test_required_arguments_match_contract(tools):
    required = {n: tool.input_schema.get("required", []) for n, tool in tools.items()}
    assert required == {name: REQUIRED.get(name, []) for name in ARGUMENTS}
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())


@pytest.mark.requirement("serving:surface")
async def test_argument_limits_match_contract(tools):
    for name, (default, maximum) in LIMITS.items():
        limit = tools[name].input_schema["properties"]["limit"]
        assert (limit["default"], limit["minimum"], limit["maximum"]) == (default, 1, maximum)
    for (name, argument), values in VALUES.items():
        assert tools[name].input_schema["properties"][argument]["enum"] == values
    timeout = tools["events_wait"].input_schema["properties"]["timeout_s"]
    assert timeout["maximum"] == 50
    maximum = tools["sessions_read"].input_schema["properties"]["max_chars"]
    assert (maximum["default"], maximum["minimum"], maximum["maximum"]) == (20_000, 1_000, 40_000)


@pytest.mark.requirement("serving:surface")
async def test_argument_defaults_match_contract(tools):
    for name, tool in tools.items():
        for argument, schema in tool.input_schema["properties"].items():
            default = LIMITS[name][0] if argument == "limit" else DEFAULTS.get(argument)
            default = _OWN_DEFAULTS.get((name, argument), default)
            assert schema.get("default") == default, (name, argument)


@pytest.mark.requirement("serving:surface")
async def test_tool_hints_match_contract(tools):
    for name, tool in tools.items():
        changes, destructive = HINTS.get(name, (False, False))
        hints = tool.annotations
        assert hints.title
        assert (hints.read_only_hint, hints.destructive_hint) == (not changes, destructive)
        assert (hints.idempotent_hint, hints.open_world_hint) == (True, False)


@pytest.mark.requirement("serving:small")
async def test_tool_list_costs_few_tokens(tools):
    """Check the limit of 3,000 tokens, at four characters or more each."""
    listed = [tool.model_dump(by_alias=True, exclude_none=True) for tool in tools.values()]
    compact = (",", ":")
    keys = ("name", "description", "inputSchema")
    core = [{key: tool[key] for key in keys} for tool in listed]
    whole = [{key: tool[key] for key in (*keys, "outputSchema")} for tool in listed]
    assert len(json.dumps(core, separators=compact)) <= 12_000
    assert len(json.dumps(whole, separators=compact)) <= 22_000
    assert all(len(tool["description"]) < 2_000 for tool in listed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.requirement("serving:surface")
@pytest.mark.parametrize("spec", load_specs(), ids=lambda spec: spec.name)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_arbitrary_arguments_are_validated_or_explained(spec, data):
    names = st.sampled_from([*spec.arguments.model_fields, "nope", "__class__", ""])
    sent = data.draw(st.dictionaries(names, JSON, max_size=4))
    try:
        spec.arguments.read(sent)
    except Exception as error:  # noqa: BLE001 -- any error has to be explained
        text = explain_error(error, tuple(spec.arguments.model_fields))
        assert text
        assert len(text) < 2_500

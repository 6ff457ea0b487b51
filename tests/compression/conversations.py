"""Hypothesis strategies for conversations in both shapes, and checks of message lists.

A tidy conversation is valid for a provider: turns alternate, and each call is followed by its
result. A rough one is as homes hold them: results that are late, missing, duplicate or without a
call, empty and multi-part messages, markers, images, and summaries of this program and of Hermes in
any place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from hypothesis import strategies as st

from session_core.compression.ranges import CompressionLimits
from session_core.compression.summary_message import SUMMARY_END, SUMMARY_NOTE, SUMMARY_PREFIX

Messages = list[dict[str, Any]]
Shape = Literal["openai", "anthropic"]

LONG_PREFIX = "[CONTEXT COMPACTION — REFERENCE ONLY] Words that differ by release:"
MERGED = (
    "[PRIOR CONTEXT — for reference only; not a new message]\nwhat was asked\n\n"
    f"[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{LONG_PREFIX}\nwhat was\n\n{SUMMARY_END}"
)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

SHAPES = st.sampled_from(("openai", "anthropic"))
TEXTS = st.one_of(
    st.sampled_from(
        (
            "fix the parser in src/app.py",
            "修复解析器,然后运行测试",
            "日本語の説明をここに書く" * 40,
            "x" * 6000,
            "a line of output\n" * 60,
            "it fails: Error 42 🙂",
        )
    ),
    st.text(min_size=1, max_size=80),
)


def make_call_message(
    shape: Shape, ids: Sequence[str], text: str | None, path: str = "a.py"
) -> dict[str, Any]:
    """An assistant message that calls a tool once for each id."""
    if shape == "openai":
        arguments = json.dumps({"path": path})
        function = {"name": "read_file", "arguments": arguments}
        calls = [{"id": it, "type": "function", "function": dict(function)} for it in ids]
        return {"role": "assistant", "content": text, "tool_calls": calls}
    said = [{"type": "text", "text": text}] if text else []
    uses = [
        {"type": "tool_use", "id": it, "name": "read_file", "input": {"path": path}} for it in ids
    ]
    return {"role": "assistant", "content": [*said, *uses]}


def make_result_messages(shape: Shape, results: Sequence[tuple[str | None, str]]) -> Messages:
    """The results of calls, as separate messages or as one."""
    if shape == "openai":
        return [
            {"role": "tool", "tool_call_id": it, "tool_name": "read_file", "content": text}
            for it, text in results
        ]
    found = [{"type": "tool_result", "tool_use_id": it, "content": text} for it, text in results]
    return [{"role": "user", "content": found}] if found else []


@st.composite
def tidy(draw: st.DrawFn, shape: Shape | None = None, max_turns: int = 12) -> Messages:
    """A conversation that both providers accept."""
    shape = shape or draw(SHAPES)
    messages: Messages = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": "be brief"})
    for _ in range(draw(st.integers(1, max_turns))):
        messages.append({"role": "user", "content": draw(TEXTS)})
        for _ in range(draw(st.integers(0, 3))):
            ids = [f"call_{len(messages)}_{i}" for i in range(draw(st.integers(1, 3)))]
            messages.append(make_call_message(shape, ids, draw(st.one_of(st.none(), TEXTS))))
            messages += make_result_messages(shape, [(it, draw(TEXTS)) for it in ids])
        messages.append({"role": "assistant", "content": draw(TEXTS)})
    return messages


@st.composite
def rough(draw: st.DrawFn, max_size: int = 20) -> Messages:
    """A conversation as homes hold them, in one shape or in both."""
    messages: Messages = []
    late: list[str | None] = []
    for _ in range(draw(st.integers(0, max_size))):
        beat = draw(st.sampled_from(_BEATS))
        messages += beat(draw, len(messages), late)
    return messages


@st.composite
def conversations(draw: st.DrawFn) -> Messages:
    """Any conversation."""
    return draw(st.one_of(tidy(), rough(), only_tools(), only_user()))


@st.composite
def only_tools(draw: st.DrawFn) -> Messages:
    """One request followed by a long run of tools, or tools alone."""
    shape = draw(SHAPES)
    messages: Messages = draw(st.sampled_from(([], [{"role": "user", "content": "go on"}])))[:]
    for i in range(draw(st.integers(1, 25))):
        messages.append(make_call_message(shape, [f"c{i}"], None))
        messages += make_result_messages(shape, [(f"c{i}", draw(TEXTS))])
    return messages


@st.composite
def only_user(draw: st.DrawFn) -> Messages:
    """User messages without an answer."""
    return [{"role": "user", "content": text} for text in draw(st.lists(TEXTS, max_size=25))]


def limits() -> st.SearchStrategy[CompressionLimits]:
    """Limits that short conversations exceed."""
    return st.builds(
        CompressionLimits,
        context_tokens=st.integers(100, 20_000),
        protect_first=st.integers(0, 4),
        protect_last=st.integers(0, 20),
        keep_last=st.one_of(st.none(), st.integers(0, 12)),
    )


Beat = Callable[[st.DrawFn, int, list[Any]], Messages]


def _said(draw: st.DrawFn, _at: int, _late: list[Any]) -> Messages:
    role = draw(st.sampled_from(("user", "assistant")))
    text = draw(TEXTS)
    parts = [{"type": "text", "text": text}, IMAGE]
    return [{"role": role, "content": draw(st.sampled_from((text, parts, text, [IMAGE])))}]


def _empty(draw: st.DrawFn, _at: int, _late: list[Any]) -> Messages:
    role = draw(st.sampled_from(("user", "assistant", "tool", "session_meta", "system", "odd")))
    return [{"role": role, "content": draw(st.sampled_from((None, "", [], {}, 7)))}]


def _round(draw: st.DrawFn, at: int, late: list[Any]) -> Messages:
    shape = draw(SHAPES)
    new = [f"call_{at}_{i}" for i in range(draw(st.integers(1, 4)))]
    ids = draw(st.sampled_from((new, new, new, ["again"])))
    results: list[tuple[str | None, str]] = []
    for it in ids:
        how = draw(st.sampled_from(("now", "now", "now", "late", "never", "twice", "unnamed")))
        late += [it] if how == "late" else []
        times = {"now": 1, "twice": 2, "unnamed": 1}.get(how, 0)
        results += [(None if how == "unnamed" else it, draw(TEXTS))] * times
    return [
        make_call_message(shape, ids, draw(st.one_of(st.none(), TEXTS))),
        *make_result_messages(shape, results),
    ]


def _late_result(draw: st.DrawFn, _at: int, late: list[Any]) -> Messages:
    known = late.pop(0) if late else draw(st.sampled_from(("nobody", None, "again")))
    return make_result_messages(draw(SHAPES), [(known, draw(TEXTS))])


def _summary(draw: st.DrawFn, _at: int, _late: list[Any]) -> Messages:
    role = draw(st.sampled_from(("user", "assistant")))
    forms = (
        f"{SUMMARY_PREFIX} what was",
        f"{LONG_PREFIX}\nwhat was\n\n{SUMMARY_END}",
        MERGED,
        SUMMARY_NOTE,
    )
    return [{"role": role, "content": draw(st.sampled_from(forms))}]


def _rubbish(draw: st.DrawFn, _at: int, _late: list[Any]) -> Messages:
    calls = draw(
        st.sampled_from(
            (
                [None, 7, {}, {"id": None}, {"function": "no"}],
                [{"id": "x", "function": {"name": None, "arguments": "{no json"}}],
                {"id": ["x"], "function": {"name": "f", "arguments": {"a": [1]}}},
                "text",
            )
        )
    )
    content = draw(st.sampled_from((None, [None, 3, {}, {"type": "tool_use"}], "said")))
    return [{"role": "assistant", "content": content, "tool_calls": calls}]


_BEATS: tuple[Beat, ...] = (
    _said,
    _said,
    _said,
    _round,
    _round,
    _round,
    _empty,
    _late_result,
    _summary,
    _rubbish,
)


def call_ids(message: Mapping[str, Any]) -> list[str]:
    """Return the ids that a message calls, in either shape."""
    return [part["id"] for part in _uses(message) if isinstance(part.get("id"), str)]


def result_ids(message: Mapping[str, Any]) -> list[Any]:
    """Return the ids that a message answers, in either shape."""
    if message.get("role") == "tool":
        return [message.get("tool_call_id")]
    return [part.get("tool_use_id") for part in _typed(message, "tool_result")]


def get_side(message: Mapping[str, Any]) -> str | None:
    """Return the speaker, with results as the user. None for messages that are no turn."""
    role = message.get("role")
    return {"user": "user", "tool": "user", "assistant": "assistant"}.get(str(role))


def match_results(messages: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return each result with the nearest call before it, by index."""
    called_at: dict[str, int] = {}
    found = []
    for index, message in enumerate(messages):
        found += [(called_at[it], index) for it in result_ids(message) if it in called_at]
        called_at.update(dict.fromkeys(call_ids(message), index))
    return found


def find_faults(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the reasons for which a strict provider would refuse a conversation."""
    turns = [message for message in messages if get_side(message)]
    found = [] if not turns or turns[0]["role"] == "user" else ["does not begin with the user"]
    open_ids: set[Any] = set()
    before: Mapping[str, Any] | None = None
    for message in turns:
        results = result_ids(message)
        block = before is not None and before["role"] == message["role"] == "tool"
        if before is not None and get_side(before) == get_side(message) and not block:
            found.append(f"two of {get_side(message)}")
        found += [f"result of nobody: {it}" for it in results if it not in open_ids]
        open_ids -= set(results)
        if not results:
            found += [f"no result: {it}" for it in sorted(open_ids)]
            open_ids = set()
        open_ids |= set(call_ids(message))
        before = message
    return found + [f"no result: {it}" for it in sorted(open_ids)]


def _uses(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if message.get("role") != "assistant":
        return
    calls = message.get("tool_calls")
    listed = calls if isinstance(calls, list) else [calls]
    yield from (call for call in listed if isinstance(call, dict))
    yield from _typed(message, "tool_use")


def _typed(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]

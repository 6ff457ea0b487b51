"""The tour of `demo`: tool calls, their answers and their times."""

from __future__ import annotations

import json
import time
from itertools import groupby
from typing import Any

from mcp import Client

from mcp_serve.cli import plan_output
from mcp_serve.cli.demo_home import sample
from mcp_serve.cli.terminal import Terminal, format_age, format_bytes, format_milliseconds
from mcp_serve.plain_text import to_plain_line
from session_core import SessionError

Answer = dict[str, Any]

_NEWEST_COUNT = 6
_PAGE_SIZE = 50
_SHOWN_COUNT = 4
_MAX_LINES = 2

_QUERIES = (
    ("a plain question", "what did we decide about the orders schema?"),
    ("an exact identifier", "orders_sync.flush_batch"),
    ("an error code", "ERR_POOL_4711"),
    ("two characters", "予算"),
    ("a word that was summarised away", "pager"),
    ("text beside a picture", "screenshot"),
    ("a word in an earlier part", "Alfama"),
)


class Tour:
    """The tour with a connected client."""

    def __init__(self, client: Client, out: Terminal) -> None:
        self._client = client
        self._out = out

    async def walk(self) -> None:
        """List, read, search, check, prune and restore."""
        await self._list_sessions()
        await self._read_session()
        await self._search_sessions()
        await self._show_stats()
        batch = await self._prune_home()
        await self._show_counts()
        await self._restore_batch(batch)
        await self._show_counts()

    async def _list_sessions(self) -> None:
        self._out.write_heading("What have I worked on?")
        listed = (await self._call_tool("sessions_list", limit=_NEWEST_COUNT))["sessions"]
        self._out.write_truncated(f"{'active':>7}  {'from':<9} {'msgs':>4}  title", "dim")
        for each in listed:
            title = to_plain_line(each["title"] or each["preview"] or "(empty)")
            age = format_age(each["last_active_at"])
            self._out.write_truncated(
                f"{age:>7}  {each['source']:<9} {each['messages']:>4}  {title}"
            )

    async def _read_session(self) -> None:
        self._out.write_heading("What was said in the long one?")
        answer = await self._call_tool(
            "sessions_read", session=sample.LONG_SESSION_ID, limit=_PAGE_SIZE
        )
        messages = answer["messages"]
        self._out.write_truncated(
            f"{len(messages)} messages; the last {_SHOWN_COUNT} of them:", "dim"
        )
        for each in messages[-_SHOWN_COUNT:]:
            self._out.write_block(
                f"{each['role']:<10}", to_plain_line(each["text"]), lines=_MAX_LINES
            )

    async def _search_sessions(self) -> None:
        self._out.write_heading("Where was that said?")
        for kind, query in _QUERIES:
            hits = (await self._call_tool("sessions_search", query=query))["hits"]
            best = f"{hits[0]['title']}: {hits[0]['snippet']}" if hits else "nothing found"
            self._out.write_block("   ", f"({kind}) {to_plain_line(best)}", lines=_MAX_LINES)

    async def _show_stats(self) -> None:
        self._out.write_heading("Is anything wrong?")
        answer = await self._call_tool("sessions_stats")
        self._out.write_block("", f"{_format_counts(answer)}, {format_bytes(answer['size']['db'])}")
        for each in answer["findings"]:
            mended = f" -> {each['tool']}" if each["tool"] else ""
            text = plan_output.describe_finding(
                each["code"], each["count"], to_plain_line(each["what"])
            )
            self._out.write_block("   ", text + mended)

    async def _prune_home(self) -> str:
        """Plan and apply; return the batch that undoes it."""
        self._out.write_heading("What would a cleanup remove? Nothing is changed yet.")
        planned = await self._call_tool("sessions_prune", what="all")
        size = planned["bytes"]
        freed = format_bytes(size["free_in_file"] + size["returned_to_disk"])
        said = f"A plan of {planned['count']} items that frees {freed}. By kind:"
        self._out.write_block("", said)
        kinds = groupby(planned["items"], key=lambda each: each["why"].split()[0])
        for first, *others in (list(kind) for _, kind in kinds):
            title = to_plain_line(first["title"] or first["id"])
            shown = f"{title}: {to_plain_line(first['why'])}"
            self._out.write_block(f"{1 + len(others):>5}  ", shown, lines=_MAX_LINES)
        self._out.write_heading("Apply exactly this plan; everything goes to the trash first.")
        applied = await self._call_tool("sessions_prune", plan=planned["plan"])
        skipped = f", {len(applied['skipped'])} skipped" if applied["skipped"] else ""
        said = f"{applied['outcome']}: {applied['removed']} removed{skipped}"
        self._out.write_block("", said)
        return str(applied["batch"])

    async def _restore_batch(self, batch: str) -> None:
        self._out.write_heading("Undo it.")
        answer = await self._call_tool("sessions_restore", batch=batch)
        self._out.write_block("", f"{answer['outcome']}: {answer['restored']} restored")

    async def _show_counts(self) -> None:
        answer = await self._call_tool("sessions_stats")
        self._out.write_block("", _format_counts(answer))

    async def _call_tool(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool and show the call with its time."""
        began = time.perf_counter()
        answer = await self._client.call_tool(tool, arguments)
        took = time.perf_counter() - began
        call = f"{tool} {json.dumps(arguments, ensure_ascii=False)}"
        self._out.write_both_sides(call, format_milliseconds(took))
        if answer.is_error or answer.structured_content is None:
            raise SessionError(f"{tool} failed: {answer.content}")
        return dict(answer.structured_content)


def _format_counts(answer: Answer) -> str:
    sessions = answer["sessions"]
    return (
        f"{sessions['total']:,} sessions ({sessions['open']:,} open), "
        f"{answer['messages']:,} messages"
    )

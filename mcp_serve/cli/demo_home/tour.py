"""The walk of `demo` through a home: what a client asks, what it is answered, how long it took."""

from __future__ import annotations

import json
import time
from itertools import groupby
from typing import Any

from mcp import Client

from mcp_serve.cli import plan_output
from mcp_serve.cli.demo_home import sample
from mcp_serve.cli.screen import Screen, milliseconds
from mcp_serve.cli.terminal import since
from mcp_serve.render import plain
from session_core import SessionError

Answer = dict[str, Any]

_NEWEST = 6
_PAGE = 50
_SHOWN = 4
_LINES = 2

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
    """The walk, with a client that is connected."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client = client
        self._screen = screen

    async def walk(self) -> None:
        """List, read, search, look what is wrong, tidy that, and take it back."""
        await self._list()
        await self._read()
        await self._search()
        await self._stats()
        batch = await self._tidy()
        await self._count()
        await self._restore(batch)
        await self._count()

    async def _list(self) -> None:
        self._screen.heading("What have I worked on?")
        listed = (await self._ask("sessions_list", limit=_NEWEST))["sessions"]
        self._screen.dim(f"{'active':>7}  {'from':<9} {'msgs':>4}  title")
        for each in listed:
            title = plain(each["title"] or each["preview"] or "(nothing in it)")
            age = since(each["last_active_at"])
            self._screen.line(f"{age:>7}  {each['source']:<9} {each['messages']:>4}  {title}")

    async def _read(self) -> None:
        self._screen.heading("What was said in the long one?")
        answer = await self._ask("sessions_read", session=sample.LONG, limit=_PAGE)
        messages = answer["messages"]
        self._screen.dim(f"{len(messages)} messages; the last {_SHOWN} of them:")
        for each in messages[-_SHOWN:]:
            self._screen.block(f"{each['role']:<10}", plain(each["text"]), lines=_LINES)

    async def _search(self) -> None:
        self._screen.heading("Where was that said?")
        for kind, query in _QUERIES:
            hits = (await self._ask("sessions_search", query=query))["hits"]
            best = f"{hits[0]['title']}: {hits[0]['snippet']}" if hits else "nothing found"
            self._screen.block("   ", f"({kind}) {plain(best)}", lines=_LINES)

    async def _stats(self) -> None:
        self._screen.heading("Is anything wrong in there?")
        answer = await self._ask("sessions_stats")
        self._screen.block("", f"{_counted(answer)}, {answer['size']['db'] / 1e6:.1f} MB")
        for each in answer["findings"]:
            mended = f" -> {each['tool']}" if each["tool"] else ""
            said = plan_output.said(each["code"], each["count"], plain(each["what"]))
            self._screen.block("   ", said + mended)

    async def _tidy(self) -> str:
        """Plan and apply; return what takes it back."""
        self._screen.heading("What would go, if all of it were tidied? Nothing is changed yet.")
        planned = await self._ask("sessions_prune", what="all")
        size = planned["bytes"]
        freed = (size["free_in_file"] + size["returned_to_disk"]) / 1e3
        said = f"A plan of {planned['count']} things, which frees {freed:,.0f} kB. Of each kind:"
        self._screen.block("", said)
        kinds = groupby(planned["items"], key=lambda each: each["why"].split()[0])
        for first, *others in (list(kind) for _, kind in kinds):
            title = plain(first["title"] or first["id"])
            shown = f"{title}: {plain(first['why'])}"
            self._screen.block(f"{1 + len(others):>5}  ", shown, lines=_LINES)
        self._screen.heading("Then exactly that; all of it goes into the trash first.")
        applied = await self._ask("sessions_prune", plan=planned["plan"])
        skipped = f", {len(applied['skipped'])} skipped" if applied["skipped"] else ""
        said = f"{applied['outcome']}: {applied['removed']} removed{skipped}"
        self._screen.block("", said)
        return str(applied["batch"])

    async def _restore(self, batch: str) -> None:
        self._screen.heading("And back again.")
        answer = await self._ask("sessions_restore", batch=batch)
        self._screen.block("", f"{answer['outcome']}: {answer['restored']} restored")

    async def _count(self) -> None:
        answer = await self._ask("sessions_stats")
        self._screen.block("", _counted(answer))

    async def _ask(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool, and show the call as a client writes it."""
        began = time.perf_counter()
        answer = await self._client.call_tool(tool, arguments)
        took = time.perf_counter() - began
        call = f"{tool} {json.dumps(arguments, ensure_ascii=False)}"
        self._screen.sides(call, milliseconds(took))
        if answer.is_error or answer.structured_content is None:
            raise SessionError(f"{tool} has failed: {answer.content}")
        return dict(answer.structured_content)


def _counted(answer: Answer) -> str:
    sessions = answer["sessions"]
    return (
        f"{sessions['total']:,} sessions ({sessions['open']:,} open), "
        f"{answer['messages']:,} messages"
    )

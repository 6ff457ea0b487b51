"""What a change would do and what it has done, as a person reads it.

A finding in a sentence: how many of what, in the singular where it is one.
"""

from __future__ import annotations

from rich.filesize import decimal

from mcp_serve.cli.errors import in_words
from mcp_serve.cli.terminal import Column, Terminal
from mcp_serve.cli.tool_calls import Answer

KINDS = {
    "prune sessions": ("Remove", "conversation"),
    "prune ghosts": ("Remove", "empty session"),
    "prune routes": ("Remove", "route"),
    "prune orphans": ("Remove", "leftover"),
    "prune index": ("Merge", "search index"),
    "prune trash": ("Empty for good", "batch"),
    "prune all": ("Remove", "thing"),
    "finalize sessions": ("End", "session"),
    "finalize expired": ("End", "expired session"),
    "finalize orphaned": ("End", "orphaned continuation"),
    "finalize abandoned": ("End", "abandoned session"),
    "compress": ("Compress", "message"),
    "restore": ("Bring back", "thing"),
    "edit": ("Change", "session"),
    "undo an import": ("Take an import back, and with it remove", "conversation"),
    "undo": ("Take a compression back, and with it drop", "session"),
}
"""Each kind of plan: what it does, to how many of what."""

NO_UNDO = ("prune index", "prune trash", "undo a compression")
"""What is not undone; its plan says why."""

_DELETES_ROWS = ("prune sessions", "prune ghosts", "prune all", "undo an import")
_REWRITES = ("prune index", "prune all")

_ITEMS = (Column("title", yields=True), Column("why", wraps=True), Column("id", copied=True))
_UNTITLED = (Column("why", wraps=True), Column("id", copied=True))
_LEFT = (Column("id", copied=True), Column("why", wraps=True))
_COUNTED = (Column("", right=True), Column("", wraps=True))


def words(kind: str, count: int) -> str:
    """Return what a plan of a kind does, such as `Remove 3 routes`."""
    known = (name for name in KINDS if kind.startswith(name))
    does, thing = KINDS[next(known, "prune all")]
    if kind == "prune index":
        return f"{does} the {thing}"
    several = "batches" if thing == "batch" else f"{thing}s"
    return f"{does} {count:,} {thing if count == 1 else several}"


def plan(out: Terminal, kind: str, found: Answer) -> None:
    """Show what a plan would do."""
    out.line(words(kind, found["count"]), "bold")
    if found["items"]:
        out.line()
        items(out, found)
    protected(out, found)
    room(out, kind, found["bytes"])
    for warning in found["warnings"]:
        out.line(f"Note: {in_words(warning)}.")


def items(out: Terminal, found: Answer) -> None:
    """Show the first things that a plan is about, and how many more there are."""
    titled = any(each["title"] for each in found["items"])
    rows = [
        [*([each["title"] or "(no title)"] if titled else []), each["why"], each["id"]]
        for each in found["items"]
    ]
    out.table(_ITEMS if titled else _UNTITLED, rows)
    more = found["count"] - len(found["items"])
    if more > 0:
        how = f"; --limit {found['count']} shows all" if found["plan"] else ""
        out.line(f"and {more:,} more{how}", "dim")


def protected(out: Terminal, found: Answer) -> None:
    """Show what stays although it was asked for, and why."""
    if found["protected"]:
        out.line()
        out.line("Kept:", "bold")
        out.table(
            _COUNTED,
            [[f"{each['count']:,}", each["why"]] for each in found["protected"]],
            bare=True,
        )


def room(out: Terminal, kind: str, size: Answer) -> None:
    """Show what it takes of the disk and gives back, and for how long it can be undone."""
    out.line()
    if size["returned_to_disk"]:
        out.line(f"It gives about {decimal(size['returned_to_disk'])} back to the disk.")
    if size["free_in_file"]:
        out.line(
            f"About {decimal(size['free_in_file'])} become free in the database file for new "
            "messages; the file keeps its size."
        )
    elif kind in _DELETES_ROWS and not size["returned_to_disk"]:
        out.line("The database file keeps its size.")
    if kind in _REWRITES and size["needed_now"]:
        out.line(f"It needs about {decimal(size['needed_now'])} of the disk while it works.")
    if not kind.startswith(NO_UNDO):
        trash = f"; the trash takes about {decimal(size['trash'])}" if size["trash"] else ""
        out.line(f"It can be undone for 30 days{trash}.")


def room_after(out: Terminal, size: Answer) -> None:
    """Show what was measured on the disk after a change."""
    freed, returned, trash = (size[name] for name in ("free_in_file", "returned_to_disk", "trash"))
    grown = size["needed_now"]
    parts = [
        *([f"the database and its log take about {decimal(grown)} more"] if grown else []),
        *([f"{decimal(returned)} went back to the disk"] if returned else []),
        *([f"{decimal(freed)} more of the file are free for new messages"] if freed else []),
        *([f"the trash takes {decimal(trash)}"] if trash else []),
    ]
    if parts:
        out.line(f"On the disk: {', '.join(parts)}.")


def skipped(out: Terminal, found: Answer) -> None:
    """Show what was left as it is."""
    left = found.get("skipped")
    if left:
        out.line()
        out.line(f"{len(left):,} left as they are:" if len(left) > 1 else "1 left as it is:")
        out.table(_LEFT, [[each["id"], each["why"]] for each in left])


_DONE = (("removed", "removed"), ("finalized", "ended"), ("restored", "brought back"))


def done(out: Terminal, kind: str, found: Answer) -> None:
    """Show what was done."""
    counted = [f"{found[name]:,} {said}" for name, said in _DONE if name in found]
    if kind == "prune index":
        counted = ["the search index is merged"]
    elif kind == "prune trash":
        counted = [f"{found['removed']:,} emptied"]
    elif kind == "undo an import":
        counted = [f"{found['restored']:,} removed"]
    rest = f"; {found['remaining']:,} to go" if found["remaining"] else ""
    end = "Done" if found["outcome"] == "applied" else "Stopped"
    out.line(f"{end}: {', '.join(counted)}{rest}.", "bold")
    skipped(out, found)
    if "bytes" in found:
        room_after(out, found["bytes"])


_ABOUT_ONE = (
    *("unreadable", "broken_entries", "free_pages", "long_log", "no_database"),
    *("engine_fault", "damaged", "search_index_damaged", "search_index_incomplete"),
    "blocked_index",
)
"""Findings that are about one thing, which nobody counts."""

_OF_ONE = {
    "abandoned": "conversation that never ended and was not active for 30 days",
    "old_sessions": "conversation that ended and was not active for 90 days",
    "orphaned_continuations": "continuation that never ran",
    "expired": "session of a chat that its policy has ended",
    "ghosts": "empty session",
    "never_ended": "session that never ended",
    "broken_parents": "session whose parent is not there",
    "duplicate_titles": "title of several sessions",
    "dangling_routes": "route to a session that is not there",
    "foreign_routes": "route of a folder that is gone",
    "stale_routes": "route to a session that has ended",
    "dead_locks": "lock of a compression that ran out",
    "orphaned_files": "file of a session that is not there",
}
"""What there is one of; what is told behind a semicolon stays as it is."""


def said(code: str, count: int, what: str) -> str:
    """Return a finding as a sentence begins."""
    if code in _ABOUT_ONE:
        return what
    if count == 1 and code in _OF_ONE:
        _, semicolon, rest = what.partition(";")
        what = _OF_ONE[code] + semicolon + rest
    return f"{count:,} {what}"

"""Plans, results and findings as text for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from mcp_serve.cli.command_errors import translate_tool_text
from mcp_serve.cli.terminal import TableColumn, Terminal, format_bytes, format_number
from mcp_serve.cli.tool_calls import Answer
from session_core.maintenance import PLAN_KINDS

_VERBS_WITHOUT_PLANS = {"restore": ("Restore", "item"), "edit": ("Change", "session")}
"""The action and the noun of verbs that change data without a plan."""

_ITEM_COLUMNS = (
    TableColumn("title", yields=True),
    TableColumn("msgs", right=True, optional=1),
    TableColumn("why", wraps=True),
    TableColumn("id", copied=True),
)
_UNTITLED_COLUMNS = (TableColumn("why", wraps=True), TableColumn("id", copied=True))
_SKIPPED_COLUMNS = (TableColumn("id", copied=True), TableColumn("why", wraps=True))
_COUNT_COLUMNS = (
    *(TableColumn("", right=True), TableColumn("", wraps=True)),
    TableColumn("", wraps=True),
)
_TOTALS_MARGIN = len("  by source  ")
_DAY_S = 86_400.0


def describe_plan(kind: str, count: int) -> str:
    """Return a description of a plan, such as `Remove 3 routes`."""
    plan_kind = PLAN_KINDS.get(kind)
    default = ("Change", "item") if plan_kind is None else (plan_kind.action, plan_kind.noun)
    action, noun = _VERBS_WITHOUT_PLANS.get(kind, default)
    if kind == "prune index":
        return f"{action} the {noun}"
    plural = "batches" if noun == "batch" else f"{noun}s"
    return f"{action} {count:,} {noun if count == 1 else plural}"


def show_plan(out: Terminal, kind: str, answer: Answer) -> None:
    """Show the items of a plan, then its totals, protection, space and warnings."""
    out.write_line(describe_plan(kind, answer["count"]), "bold")
    if answer.get("items"):
        out.write_line()
        show_items(out, answer)
    if "totals" in answer:
        _show_totals(out, answer["totals"])
    show_protected(out, answer)
    show_space(out, kind, answer["bytes"])
    for note in [answer["note"]] if "note" in answer else []:
        out.write_line(translate_tool_text(note))
    for warning in answer["warnings"]:
        out.write_line(f"Note: {translate_tool_text(warning)}.")


def _show_totals(out: Terminal, totals: Answer) -> None:
    """Show messages and bytes, and the number of items by source and by age."""
    out.write_line()
    messages = format_number(totals["messages"], "message")
    out.write_line(f"In total: {messages}, about {format_bytes(totals['bytes'])}", "bold")
    for name in ("by_source", "by_age"):
        counts = (f"{label or '(none)'} {count:,}" for label, count in totals.get(name, {}).items())
        text = ", ".join(counts)
        if text:
            out.write_block(f"  {name.replace('_', ' ')}  ".ljust(_TOTALS_MARGIN), text)


AGE_LABELS = (
    (30, "under 30 days:"),
    (90, "30 to 90 days:"),
    (365, "90 days to a year:"),
    (math.inf, "over a year:"),
)
"""The ages of the last activity in days, each with the label of those below."""


def count_ages(moments: Iterable[float], now: float) -> dict[str, int]:
    """Return the number of last activities of each age, the youngest first."""
    counts = Counter(
        next(label for days, label in AGE_LABELS if now - moment < days * _DAY_S)
        for moment in moments
    )
    return {label: counts[label] for _, label in AGE_LABELS if counts[label]}


def show_items(out: Terminal, answer: Answer) -> None:
    """Show the first items of a plan and the number of further items."""
    titled = any(item["title"] for item in answer["items"])
    rows = [
        [*(_format_item_cells(item) if titled else []), item["why"], item["id"]]
        for item in answer["items"]
    ]
    out.write_table(_ITEM_COLUMNS if titled else _UNTITLED_COLUMNS, rows)
    hidden_count = answer["count"] - len(answer["items"])
    if hidden_count > 0:
        how = f"; --limit {answer['count']} shows all" if answer["plan"] else ""
        out.write_line(f"and {hidden_count:,} more{how}", "dim")


def _format_item_cells(item: Answer) -> list[str]:
    messages = f"{item['messages']:,}" if "messages" in item else ""
    return [item["title"] or "(no title)", messages]


def show_protected(out: Terminal, answer: Answer) -> None:
    """Show the number of protected items by reason, and the first items or their chats."""
    if answer.get("protected"):
        out.write_line()
        out.write_line("Protected", "bold")
        rows = [
            [f"{entry['count']:,}", entry["why"], _name_protected(entry)]
            for entry in answer["protected"]
        ]
        out.write_table(_COUNT_COLUMNS, rows, bare=True)


def _name_protected(protected: Answer) -> str:
    """Return the chats of protected sessions if they have any, else their ids."""
    names = protected.get("chats") or protected.get("ids", [])
    hidden_count = protected["count"] - len(names)
    return ", ".join([*names, *([f"{hidden_count:,} more"] if names and hidden_count > 0 else [])])


def show_space(out: Terminal, kind: str, size: Answer) -> None:
    """Show the disk space that a plan needs and frees, and if it can be undone."""
    plan_kind = PLAN_KINDS.get(kind)
    out.write_line()
    if size["returned_to_disk"]:
        out.write_line(f"Returns about {format_bytes(size['returned_to_disk'])} to the disk.")
    if size["free_in_file"]:
        out.write_line(
            f"Frees about {format_bytes(size['free_in_file'])} inside the database file for new "
            "messages; the file keeps its size."
        )
    elif plan_kind is not None and plan_kind.deletes_rows and not size["returned_to_disk"]:
        out.write_line("The database file keeps its size.")
    if plan_kind is not None and plan_kind.rewrites_file and size["needed_now"]:
        out.write_line(
            f"Needs about {format_bytes(size['needed_now'])} of disk space while it runs."
        )
    if plan_kind is None or plan_kind.has_undo:
        trash = f"; the trash takes about {format_bytes(size['trash'])}" if size["trash"] else ""
        out.write_line(f"Can be undone for 30 days{trash}.")


def show_space_change(out: Terminal, size: Answer) -> None:
    """Show the measured change of disk space."""
    freed, returned, trash = (size[name] for name in ("free_in_file", "returned_to_disk", "trash"))
    grown = size["needed_now"]
    parts = [
        *([f"the database and its log grew by about {format_bytes(grown)}"] if grown else []),
        *([f"{format_bytes(returned)} returned to the disk"] if returned else []),
        *([f"{format_bytes(freed)} freed inside the file"] if freed else []),
        *([f"the trash takes {format_bytes(trash)}"] if trash else []),
    ]
    if parts:
        out.write_line(f"On the disk: {', '.join(parts)}.")


def show_skipped(out: Terminal, answer: Answer) -> None:
    """Show the skipped items with their reasons."""
    skipped = answer.get("skipped")
    if skipped:
        out.write_line()
        out.write_line(f"{len(skipped):,} skipped:")
        out.write_table(_SKIPPED_COLUMNS, [[item["id"], item["why"]] for item in skipped])


_RESULT_LABELS = (("removed", "removed"), ("finalized", "ended"), ("restored", "restored"))


def show_result(out: Terminal, kind: str, answer: Answer) -> None:
    """Show the result of an applied plan."""
    counted = [f"{answer[name]:,} {label}" for name, label in _RESULT_LABELS if name in answer]
    if kind == "prune index":
        counted = ["the search index is merged"]
    elif kind == "prune trash":
        counted = [f"{answer['removed']:,} deleted"]
    elif kind == "undo an import":
        counted = [f"{answer['restored']:,} removed"]
    rest = f"; {answer['remaining']:,} remaining" if answer["remaining"] else ""
    end = "Done" if answer["outcome"] == "applied" else "Stopped"
    out.write_line(f"{end}: {', '.join(counted)}{rest}.", "bold")
    show_skipped(out, answer)
    if "bytes" in answer:
        show_space_change(out, answer["bytes"])


_UNCOUNTED_FINDINGS = (
    *("unreadable", "broken_entries", "free_pages", "long_log", "no_database"),
    *("engine_fault", "damaged", "search_index_damaged", "search_index_incomplete"),
    *("blocked_index", "unknown_layout"),
)
"""Findings about a single object, shown without a count."""

_SINGULAR_FINDINGS = {
    "abandoned": "conversation that never ended and was not active for 30 days",
    "old_sessions": "conversation that ended and was not active for 90 days",
    "orphaned_continuations": "continuation that never ran",
    "expired": "session of a chat that its policy has ended",
    "ghosts": "empty session",
    "never_ended": "session that never ended",
    "broken_parents": "session whose parent is missing",
    "duplicate_titles": "title used by several sessions",
    "dangling_routes": "route to a missing session",
    "foreign_routes": "route of a deleted folder",
    "stale_routes": "route to a session that has ended",
    "dead_locks": "expired lock of a compression",
    "orphaned_files": "file of a missing session",
}
"""Singular forms; the part of a finding after a semicolon stays."""


def describe_finding(code: str, count: int, what: str) -> str:
    """Return a finding as a sentence without a period."""
    if code in _UNCOUNTED_FINDINGS:
        return what
    if count == 1 and code in _SINGULAR_FINDINGS:
        _, semicolon, rest = what.partition(";")
        what = _SINGULAR_FINDINGS[code] + semicolon + rest
    return f"{count:,} {what}"

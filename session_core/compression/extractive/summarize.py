"""Extractive summaries: statements, verbatim, within a number of characters.

The result is deterministic. A statement is a sentence or a line with its linked statements. Of a
line with little but names, the summary may contain only the facts and the words next to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from session_core.compression.chat_messages import Message
from session_core.compression.extractive import select, statements, written_form
from session_core.compression.extractive.select import SelectedItem
from session_core.compression.extractive.statements import Statement, StatementSet
from session_core.compression.extractive.written_form import HEADINGS, Section

EMPTY_SUMMARY = "Nothing was said."
NO_ROOM_SUMMARY = "What was said does not fit here."

_MIN_HEADED_BUDGET = 600
_MIN_NUMBERED_BUDGET = 3000
"""The minimum length of a summary with message ids, which take room from statements."""

_BRIEF_RATIO = 2.0

_MAX_FALLBACK_ITEMS = 10
"""The number of statements to list if no statement is essential."""


def summarize(messages: Iterable[Message], budget_chars: int) -> str:
    """Return a summary of a range within a budget.

    Earlier summaries in the range are parsed into their statements.
    """
    return build_summary(statements.read_statements(messages), budget_chars)


def build_summary(statement_set: StatementSet, budget_chars: int) -> str:
    """Return a summary of statements within a budget."""
    return write_summary(statement_set, choose_items(statement_set, budget_chars), budget_chars)


def choose_items(statement_set: StatementSet, budget_chars: int) -> list[SelectedItem]:
    """Return the statements that a summary within a budget contains."""
    header = _write_header(statement_set, budget_chars)
    return select.select_items(
        statement_set.current,
        budget_chars - len(header),
        numbered=budget_chars >= _MIN_NUMBERED_BUDGET,
        brief=_is_brief(statement_set, budget_chars),
    )


def write_summary(
    statement_set: StatementSet, chosen: Sequence[SelectedItem], budget_chars: int
) -> str:
    """Return the text of a summary of chosen statements."""
    if not chosen:
        text = NO_ROOM_SUMMARY if statement_set.current else EMPTY_SUMMARY
        return text[: max(budget_chars, 0)]
    return _write_header(statement_set, budget_chars) + "\n".join(
        _render_sections(chosen, brief=_is_brief(statement_set, budget_chars))
    )


def list_essential_texts(
    chosen: Iterable[SelectedItem],
    clean: Callable[[str], str] = str,
    others: Iterable[Statement] = (),
) -> list[str]:
    """Return the texts that every summary must contain, the most worthy first.

    These are the texts of essential statements that `clean` does not change. If there are none, the
    best other statements follow: chosen statements, or `others` if `clean` changes all chosen
    statements.
    """
    candidates = _sort_clean_statements((item.statement for item in chosen), clean)
    essential = [statement for statement in candidates if statement.is_essential]
    best = essential or (candidates or _sort_clean_statements(others, clean))[:_MAX_FALLBACK_ITEMS]
    texts = [text for statement in best for text in _list_texts(statement)]
    return [text for text in texts if clean(text) == text]


def _list_texts(statement: Statement) -> Iterator[str]:
    """Yield the text of a statement, and of its parts that still hold."""
    yield statement.text
    yield from (line.text for line in statement.old_parts if line.label != "previously")
    yield from (part.text for label, part in statement.parts if label != "previously")


def _sort_clean_statements(
    candidates: Iterable[Statement], clean: Callable[[str], str]
) -> list[Statement]:
    unchanged = [statement for statement in candidates if clean(statement.text) == statement.text]
    return sorted(unchanged, key=lambda statement: -statement.worth)


def _is_brief(statement_set: StatementSet, budget_chars: int) -> bool:
    """Return whether a short summary cannot hold all statements, so that each character counts."""
    if budget_chars >= _MIN_NUMBERED_BUDGET:
        return False
    return (
        sum(len(statement.text) for statement in statement_set.current)
        > _BRIEF_RATIO * budget_chars
    )


def _write_header(statement_set: StatementSet, budget_chars: int) -> str:
    """Return the first line of a summary, or an empty text for a very short summary."""
    if budget_chars < _MIN_HEADED_BUDGET:
        return ""
    marked = any(statement.message_id is not None for statement in statement_set.statements)
    legend = marked and budget_chars >= _MIN_NUMBERED_BUDGET
    return f"{written_form.write_header(statement_set.counted, legend=legend)}\n"


def _render_sections(chosen: Iterable[SelectedItem], *, brief: bool) -> Iterator[str]:
    lines: dict[Section, list[str]] = {kind: [] for kind in HEADINGS}
    for item in chosen:
        section = written_form.choose_section(item.statement.section, brief=brief)
        lines[section].append(item.written)
    for kind, written in lines.items():
        if written:
            yield "\n".join((written_form.write_heading(kind), *written))

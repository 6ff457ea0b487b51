"""How often a search index of Hermes merges what it has gathered, while very much is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from session_core.state.sqlite import extension, index
from session_core.state.sqlite.handle import Handle, quoted

_USUAL = 4
_SELDOM = 8
"""So many segments are merged into one: an entry is written anew a third less often."""


@contextmanager
def seldom(handle: Handle) -> Iterator[None]:
    """Indexes merge more at a time inside, and as they did before behind it.

    That is a setting of theirs, and the transaction leaves it as it found it: in memory by setting
    what is usual, and stored by nothing. Where somebody has chosen another it stays at that.
    """
    tables = [] if index.is_ours(handle) else _unset(handle)
    for table in tables:
        _set(handle, table, _SELDOM)
    yield
    for table in tables:
        _set(handle, table, _USUAL)
        handle.run(f"DELETE FROM {_settings(table)} WHERE k = 'automerge'")  # noqa: S608 -- from the schema, quoted


def _unset(handle: Handle) -> list[str]:
    """Return the indexes for which nobody has chosen how often they merge."""
    tables = handle.schema.get("index_tables")
    if tables is None:
        tables = extension.list_usable(handle)
        handle.schema["index_tables"] = tables
    asked = "SELECT 1 FROM {} WHERE k = 'automerge'"
    return [each for each in tables if handle.value(asked.format(_settings(each))) is None]


def _set(handle: Handle, table: str, count: int) -> None:
    name = quoted(table)
    handle.run(f"INSERT INTO {name}({name}, rank) VALUES ('automerge', ?)", (count,))  # noqa: S608 -- from the schema, quoted


def _settings(table: str) -> str:
    return quoted(f"{table}_config")

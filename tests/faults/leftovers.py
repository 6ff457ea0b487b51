"""The remains of a fault in a home as a text. Equal texts have the same continuation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.faults import state
from tests.faults.ledger import KEPT

_DRAWN_PATTERN = re.compile(r"\b(?:[spb]-[2-9a-z]{8,20}|\d{8}_\d{6}_[0-9a-f]{8})\b")
"""Handles of plans, batches and steps, and the ids of new sessions."""

_IGNORED_COLUMNS = frozenset({"pid", "started_at", "data", "bytes"})


def describe_leftovers(home: Path, content: Mapping[str, str]) -> str:
    """Return all data that decides how a home continues: content, marks, the ledger and files.

    Random handles and ids, and the process of the writer, are replaced by equal names.
    """
    found = {
        **content,
        "marks": "",
        "names": repr(sorted(map(str, _list_file_names(home)))),
    }
    with state.open_connection(home / "state.db") as opened:
        marks = opened.execute("SELECT * FROM state_meta WHERE key LIKE 'mcp_sessions:%'")
        found["marks"] = json.dumps(sorted(marks.fetchall()))
    if (home / KEPT / "ledger.db").exists():
        with state.open_connection(home / KEPT / "ledger.db") as opened:
            found |= {
                f"ledger {table}": _read_ledger_table(opened, table)
                for table in state.list_tables(opened)
            }
    numbers: dict[str, str] = {}
    text = json.dumps(found, sort_keys=True)
    return _DRAWN_PATTERN.sub(lambda at: numbers.setdefault(at[0], f"drawn {len(numbers)}"), text)


def _list_file_names(home: Path) -> Iterator[Path]:
    for path in home.rglob("*"):
        if not path.name.endswith(("-shm", "-wal")):
            yield path.relative_to(home)


def _read_ledger_table(opened: Any, table: str) -> str:
    names = [name for (name,) in opened.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    columns = ", ".join(f'"{name}"' for name in names if name not in _IGNORED_COLUMNS)
    found = opened.execute(f'SELECT {columns} FROM "{table}"')  # noqa: S608 -- names that were read
    rows = (json.dumps(row, default=repr) for row in found)
    return json.dumps(sorted(rows, key=lambda row: _DRAWN_PATTERN.sub("drawn", row)))

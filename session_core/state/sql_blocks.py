"""SQL in named blocks of .sql files.

A line `-- name: verb_noun` begins a block.
"""

from __future__ import annotations

import re
from importlib.resources import files

_BLOCK_HEADER = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_DEFAULT_PACKAGE = "session_core.state.sqlite"


class SqlBlock(str):
    """A statement with its name, by which an engine can run its own text instead."""

    __slots__ = ("key",)

    key: tuple[str, str]
    """The file and the name of the block."""


def load_blocks(name: str, package: str = _DEFAULT_PACKAGE) -> dict[str, SqlBlock]:
    """Return the blocks of a file by their names."""
    parts = _BLOCK_HEADER.split(read_script(name, package))
    return {
        key: _make_block(name, key, body)
        for key, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _make_block(file: str, name: str, body: str) -> SqlBlock:
    block = SqlBlock(body.strip())
    block.key = file, name
    return block


def read_script(name: str, package: str = _DEFAULT_PACKAGE) -> str:
    """Return the text of a file."""
    return files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def split_statements(name: str, package: str = _DEFAULT_PACKAGE) -> list[str]:
    """Split a script into its statements, to run them in a transaction."""
    return split_block(read_script(name, package))


def split_block(block: str) -> list[str]:
    """Split a block into its statements."""
    lines = [line for line in block.splitlines() if not line.startswith("--")]
    return [part.strip() for part in re.split(r";\s*\n", "\n".join(lines) + "\n") if part.strip()]

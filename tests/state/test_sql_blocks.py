"""Named SQL blocks: each of them is used, and no two have the same statement."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import session_core
from session_core.state import sql_blocks

ROOT = Path(session_core.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.sql") if "-- name:" in path.read_text("utf-8"))
_TEXT = re.compile(r'"([a-z_]+(?:\{\w+\}[a-z_]*)*)"')
_PREFIX = re.compile(r'startswith\("([a-z_]+_)"\)')
_LOADED = re.compile(r'load_blocks\("(\w+)"')


@cache
def load_block_names(path: Path) -> dict[str, str]:
    package = ".".join(("session_core", *path.parent.relative_to(ROOT).parts))
    return sql_blocks.load_blocks(path.stem, package)


@cache
def read_source(module: Path) -> str:
    return module.read_text("utf-8")


def find_loaded_file(module: Path, stem: str) -> Path:
    """Return the nearest file of that name: next to a module or in a folder above it."""
    files = (folder / f"{stem}.sql" for folder in module.parents if folder.is_relative_to(ROOT))
    return next(file for file in files if file in FILES)


def has_block_name(module: str, name: str) -> bool:
    """Whether a module contains the name as a string, composes it, or selects its prefix."""
    if any(name.startswith(prefix) for prefix in _PREFIX.findall(module)):
        return True
    return compile_texts(module).fullmatch(name) is not None


@cache
def compile_texts(module: str) -> re.Pattern[str]:
    """Return the pattern of all strings in a module that may name or compose a block."""
    texts = sorted(set(_TEXT.findall(module)))
    patterns = (re.sub(r"\\\{\w+\\\}", "[a-z]+", re.escape(text)) for text in texts)
    return re.compile("|".join(patterns) or "(?!)")


def list_block_users(path: Path, name: str) -> list[str]:
    """Return the modules that load the file of a block, or use its name from elsewhere."""
    users = []
    for module in sorted(path.parent.rglob("*.py")):
        source = read_source(module)
        files = [find_loaded_file(module, stem) for stem in _LOADED.findall(source)]
        own = path in files or not any(name in load_block_names(file) for file in files)
        if own and has_block_name(source, name):
            users.append(module.name)
    return users


def replaces_shared_block(path: Path, name: str) -> bool:
    """Whether PostgreSQL has its own text here for a block that the shared code uses by name."""
    shared = (path.parents[1] / "sqlite" / path.name, ROOT / "ledger" / path.name)
    return path.parent.name == "postgres" and any(
        name in load_block_names(file) for file in shared if file in FILES
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_sql_blocks_are_each_used(path: Path) -> None:
    unused = [
        name
        for name in load_block_names(path)
        if not replaces_shared_block(path, name) and not list_block_users(path, name)
    ]
    assert unused == []


def test_sql_blocks_have_distinct_statements() -> None:
    statements = Counter(
        (path.parent, re.sub(r":\w+|\?\d*", "?", " ".join(statement.split())))
        for path in FILES
        for statement in load_block_names(path).values()
    )
    assert [statement for statement, count in statements.items() if count > 1] == []

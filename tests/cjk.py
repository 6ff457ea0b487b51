"""The CJK index of newer Hermes homes: the index, its tokenizer, and a process that loads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.hermes_schema import list_cjk_statements
from tests.homes import connect

INDEX, TOKENIZER = "messages_fts_cjk", "cjk_unicode61"
SOURCE = Path(__file__).with_name("cjk_tokenizer.c")


def add_cjk_index(path: Path) -> None:
    """Add the index to a Hermes database, with a SQLite that lacks its tokenizer.

    The tokenizer of the fixture splits as unicode61 does, so the index is made with unicode61 and
    its schema is changed afterwards.
    """
    with connect(path) as connection:
        connection.execute("BEGIN")
        for statement in list_cjk_statements("unicode61"):
            connection.execute(statement)
        connection.execute(f"INSERT INTO {INDEX}({INDEX}) VALUES ('rebuild')")  # noqa: S608
        connection.execute("COMMIT")
    block_index(path)


def block_index(path: Path, name: str = INDEX) -> None:
    """Make an index use a tokenizer that this SQLite does not have."""
    with connect(path) as connection:
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'unicode61', ?) WHERE name = ?",
            (TOKENIZER, name),
        )
        connection.execute(f"PRAGMA schema_version={version + 1}")
        connection.execute("PRAGMA writable_schema=OFF")


def compile_tokenizer(home: Path) -> Path:
    """Compile the extension into a home, writable by its user only.

    It needs gcc and sqlite3ext.h.
    """
    folder = home / "lib"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    library = folder / "libfts5_cjk.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE]
    subprocess.run(command, check=True)
    library.chmod(0o644)
    return library

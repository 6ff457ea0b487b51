"""SQL in named blocks: `-- name: verb_noun` begins one, in the .sql files of this folder."""

from __future__ import annotations

import re
from importlib.resources import files

_HEAD = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(name: str) -> dict[str, str]:
    """Return the blocks of one file by their names."""
    parts = _HEAD.split(script(name))
    return {key: body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=True)}


def script(name: str) -> str:
    """Return a whole file."""
    return files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def statements(name: str) -> list[str]:
    """Return the statements of a script one by one, as a transaction wants them."""
    lines = [line for line in script(name).splitlines() if not line.startswith("--")]
    return [part.strip() for part in re.split(r";\s*\n", "\n".join(lines) + "\n") if part.strip()]

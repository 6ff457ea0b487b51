"""SQL in named blocks: `-- name: verb_noun` begins one, in the .sql files of a package."""

from __future__ import annotations

import re
from importlib.resources import files

_HEAD = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_HERE = "session_core.state.sqlite"


def load(name: str, package: str = _HERE) -> dict[str, str]:
    """Return the blocks of one file by their names."""
    parts = _HEAD.split(script(name, package))
    return {key: body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=True)}


def script(name: str, package: str = _HERE) -> str:
    """Return a whole file."""
    return files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def statements(name: str, package: str = _HERE) -> list[str]:
    """Return the statements of a script one by one, as a transaction wants them."""
    lines = [line for line in script(name, package).splitlines() if not line.startswith("--")]
    return [part.strip() for part in re.split(r";\s*\n", "\n".join(lines) + "\n") if part.strip()]

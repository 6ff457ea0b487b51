"""The bearer token of a home: from the environment, else from its state folder, made there once."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from session_core import Denied, StateFolder

VARIABLE = "MCP_SESSIONS_TOKEN"

_FILE = "token"
_BYTES = 32
_LEAST = 16
_PRIVATE = 0o600


def token_of(db_path: Path) -> str:
    """Return the token of a home.

    Raises:
        Denied: that of the environment is too short to be one.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        if len(given) < _LEAST or not given.isascii():
            raise Denied(f"{VARIABLE} is no token: at least {_LEAST} ASCII characters")
        return given
    folder = StateFolder(db_path)
    found = folder.find()
    return (found and _read(found / _FILE)) or _made(folder.make() / _FILE)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None


def _made(path: Path) -> str:
    """Make a token, unless another process was faster."""
    token = secrets.token_urlsafe(_BYTES)
    whole = path.with_name(f".{_FILE}_{secrets.token_hex(4)}")
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        os.link(whole, path)
    except FileExistsError:
        token = _read(path) or token
    finally:
        whole.unlink()
    return token

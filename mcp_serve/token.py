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
        Denied: what is to be one is too short, or may not be read.
    """
    return found(db_path) or _made(StateFolder(db_path).make() / _FILE)


def found(db_path: Path) -> str | None:
    """Return the token of a home where there is one; none is made.

    Raises:
        Denied: as above.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return _checked(given, f"{VARIABLE} is no token", "set it anew, or not at all")
    folder = StateFolder(db_path).find()
    return _read(folder / _FILE) if folder else None


def _checked(given: str, wrong: str, following: str) -> str:
    if len(given) < _LEAST or not (given.isascii() and given.isprintable()):
        raise Denied(f"{wrong}: it has at least {_LEAST} ASCII characters; {following}")
    return given


def _read(path: Path) -> str | None:
    """Return the token of a file, None where there is none; what else is in it opens nothing."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(f"{path} may not be read: {error.strerror}; mend that or remove it") from error
    return _checked(text, f"{path} holds no token", "remove it, and a new one is made")


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

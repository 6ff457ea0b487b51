"""The bearer token of a home: from the environment, else from its state folder, made there once."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from mcp_serve.files import read_file, write_new
from session_core import Denied, SessionError, StateFolder

VARIABLE = "MCP_SESSIONS_TOKEN"

_FILE = "token"
_BYTES = 32
_LEAST = 16
_PRIVATE = 0o600


def token_of(folder: StateFolder) -> str:
    """Return the token of a home, by its state folder.

    Raises:
        Denied: what is to be one is too short, or may not be read or made.
    """
    return found(folder) or _made(_folder_of(folder) / _FILE)


def found(folder: StateFolder) -> str | None:
    """Return the token of a home where there is one; none is made.

    Raises:
        Denied: as above.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return _checked(given, f"{VARIABLE} is no token", "set it anew, or not at all")
    place = folder.find()
    return _read(place / _FILE) if place else None


def _folder_of(folder: StateFolder) -> Path:
    try:
        return folder.make()
    except SessionError as error:
        raise type(error)(f"{error}; or set {VARIABLE}, which needs no file") from error


def _checked(given: str, wrong: str, following: str) -> str:
    if len(given) < _LEAST or not (given.isascii() and given.isprintable()):
        raise Denied(f"{wrong}: it has at least {_LEAST} ASCII characters; {following}")
    return given


def _read(path: Path) -> str | None:
    """Return the token of a file, None where there is none; what else is in it opens nothing."""
    try:
        text = read_file(path).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(f"{path} may not be read: {error.strerror}; mend that or remove it") from error
    return _checked(text, f"{path} holds no token", "remove it, and a new one is made")


def _made(path: Path) -> str:
    """Make a token, unless another process was faster."""
    token = secrets.token_urlsafe(_BYTES)
    try:
        write_new(path, [f"{token}\n".encode()], prefix=f".{_FILE}_", mode=_PRIVATE)
    except FileExistsError:
        stored = _read(path)
        if stored is None:
            raise Denied(f"{path} is a link to nothing; remove it, then start again") from None
        return stored
    return token

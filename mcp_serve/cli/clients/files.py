"""A configuration file of another program: read, and replaced whole, with a copy of what it was."""

from __future__ import annotations

import codecs
import difflib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mcp_serve.files import read_file, write_atomic
from session_core import Conflict, Denied

_BEFORE = ".before-mcp-sessions"
_NEW = 0o600
"""Such a file may hold keys of other servers."""

_MOST_BYTES = 1 << 26
"""More than any client keeps; some keep a history in this file."""


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A file as it was read; one that is not there is empty."""

    path: Path
    data: bytes | None

    @classmethod
    def read(cls, path: Path) -> ConfigurationFile:
        """Read it.

        Raises:
            Denied: it may not be read.
        """
        try:
            return cls(path, read_file(path, _MOST_BYTES))
        except FileNotFoundError:
            return cls(path, None)
        except OSError as error:
            raise Denied(f"{path} cannot be read: {error.strerror}") from error

    @property
    def marked(self) -> bool:
        """Whether it begins with the mark that some editors put before a text."""
        return (self.data or b"").startswith(codecs.BOM_UTF8)

    @property
    def text(self) -> str:
        """What is in it, without the mark.

        Raises:
            Denied: it is no UTF-8.
        """
        try:
            return (self.data or b"").removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            raise Denied(f"{self.path} is no text in UTF-8; save it as such") from error

    @property
    def copy(self) -> Path:
        """Where it is kept as it was before the first change."""
        return self.path.with_name(self.path.name + _BEFORE)

    def difference(self, text: str) -> list[str]:
        """Return what would be changed, as lines."""
        before, after = self.text.splitlines(), text.splitlines()
        return list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2))[2:]

    def replace(self, text: str, *, keep: bool) -> None:
        """Put another text in its place; `keep` what it was, unless something is kept already.

        Raises:
            Conflict: somebody else has changed it meanwhile.
            Denied: it may not be written, or a path in the text is none in UTF-8.
        """
        # Dotfile managers link such a file out of its folder: the link stays, wherever it leads,
        # and its target is replaced. No other file that we write is replaced through such a link.
        place = Path(os.path.realpath(self.path))
        mark = codecs.BOM_UTF8 if self.marked else b""
        try:
            data = mark + text.encode()
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = _mode(place)
            if keep and self.data is not None and not os.path.lexists(self.copy):
                _write(self.copy, self.data, mode)
            if ConfigurationFile.read(self.path).data != self.data:
                raise Conflict(f"{self.path} was changed meanwhile; try again")
            _write(place, data, mode)
        except UnicodeEncodeError as error:
            raise Denied("what is to be started has a path that is no text") from error
        except OSError as error:
            raise Denied(f"{self.path} cannot be written: {error.strerror}") from error

    def forget(self) -> None:
        """Keep no longer what it was: it is so again.

        Raises:
            Denied: it may not be removed.
        """
        try:
            self.copy.unlink(missing_ok=True)
        except OSError as error:
            raise Denied(f"{self.copy} cannot be removed: {error.strerror}") from error

    def remove(self) -> None:
        """Remove it: nothing is left in it, and it was not there before; a link to it was.

        Raises:
            Denied: it may not be removed.
        """
        place = Path(os.path.realpath(self.path))
        try:
            _mode(place)
            place.unlink(missing_ok=True)
        except OSError as error:
            raise Denied(f"{self.path} cannot be removed: {error.strerror}") from error


def _write(path: Path, data: bytes, mode: int) -> None:
    write_atomic(path, [data], prefix=f".{path.name}_", mode=mode)


def _mode(place: Path) -> int:
    """Return the mode that it has, or is to have."""
    try:
        mode = stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        return _NEW
    if not mode & stat.S_IWUSR:
        raise PermissionError(None, "it is read-only")
    return mode

"""A configuration file of another program: read, and replaced whole, with a copy of what it was.

One change of one client's configuration, looked at before it is made.

What a client is to start: this very command, by a path that does not depend on its own.
"""

from __future__ import annotations

import argparse
import codecs
import difflib
import os
import shutil
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_serve.cli.clients import formats
from mcp_serve.cli.clients.jsonc import MalformedConfiguration
from mcp_serve.cli.clients.places import ClientProgram
from mcp_serve.files import read_file, write_atomic
from session_core import Conflict, Denied, SessionError, find_home

_COPY_SUFFIX = ".before-mcp-sessions"
_NEW_FILE_MODE = 0o600
"""Such a file may hold keys of other servers."""

_MAX_BYTES = 1 << 26
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
            return cls(path, read_file(path, _MAX_BYTES))
        except FileNotFoundError:
            return cls(path, None)
        except OSError as error:
            raise Denied(f"cannot read {path}: {error.strerror}") from error

    @property
    def has_bom(self) -> bool:
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
            raise Denied(f"{self.path} is not valid UTF-8; save it as UTF-8") from error

    @property
    def copy_path(self) -> Path:
        """Where it is kept as it was before the first change."""
        return self.path.with_name(self.path.name + _COPY_SUFFIX)

    def list_differences(self, text: str) -> list[str]:
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
        mark = codecs.BOM_UTF8 if self.has_bom else b""
        try:
            data = mark + text.encode()
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = _choose_mode(place)
            if keep and self.data is not None and not os.path.lexists(self.copy_path):
                _write_file(self.copy_path, self.data, mode)
            if ConfigurationFile.read(self.path).data != self.data:
                raise Conflict(f"{self.path} was changed by another program; try again")
            _write_file(place, data, mode)
        except UnicodeEncodeError as error:
            raise Denied("the path of the command is not valid UTF-8") from error
        except OSError as error:
            raise Denied(f"cannot write {self.path}: {error.strerror}") from error

    def remove_copy(self) -> None:
        """Keep no longer what it was: it is so again.

        Raises:
            Denied: it may not be removed.
        """
        try:
            self.copy_path.unlink(missing_ok=True)
        except OSError as error:
            raise Denied(f"cannot remove {self.copy_path}: {error.strerror}") from error

    def remove(self) -> None:
        """Remove it: nothing is left in it, and it was not there before; a link to it was.

        Raises:
            Denied: it may not be removed.
        """
        place = Path(os.path.realpath(self.path))
        try:
            _choose_mode(place)
            place.unlink(missing_ok=True)
        except OSError as error:
            raise Denied(f"cannot remove {self.path}: {error.strerror}") from error


def _write_file(path: Path, data: bytes, mode: int) -> None:
    write_atomic(path, [data], prefix=f".{path.name}_", mode=mode)


def _choose_mode(place: Path) -> int:
    """Return the mode that it has, or is to have."""
    try:
        mode = stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        return _NEW_FILE_MODE
    if not mode & stat.S_IWUSR:
        raise PermissionError(None, "it is read-only")
    return mode


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """What a file says, and what it is to say."""

    client: ClientProgram
    file: ConfigurationFile
    text: str
    is_ours: bool = False
    """Whether nothing but our own entry is in it, so that there is nothing to keep."""
    is_as_it_was: bool = False
    """Whether it is to be what was kept, to the byte."""

    @property
    def is_unneeded(self) -> bool:
        """Whether it says that already."""
        return self.text == self.file.text

    @property
    def is_removal(self) -> bool:
        """Whether nothing is left of a file that was not there before."""
        return not self.file.copy_path.exists() and _is_blank(self.text)

    def apply(self) -> None:
        """Make it."""
        if self.is_removal:
            self.file.remove()
        else:
            self.file.replace(self.text, keep=not self.is_ours)
        if self.is_as_it_was:
            self.file.remove_copy()


def build_addition(
    client: ClientProgram, path: Path, name: str, entry: dict[str, Any]
) -> ConfigurationChange:
    """Return the change that puts a server into a configuration.

    Raises:
        Denied: another program stands there by this name, or the file is not what it should be.
    """
    file, found = _read_entry(client, path, name)
    if found is not None and not is_our_entry(found):
        raise Denied(f"{path} has another server named {name}; choose another --name")
    form = formats.choose_format(path)
    with_it = _report_malformed(
        file, lambda: formats.add_server(form, file.text, client.table, name, entry)
    )
    return ConfigurationChange(
        client, file, with_it, is_ours=_has_only_our_entry(client, file, name, found)
    )


def build_removal(client: ClientProgram, path: Path, name: str) -> ConfigurationChange | None:
    """Return the change that takes it out; None where it is not in there."""
    file, found = _read_entry(client, path, name)
    if found is None:
        return None
    if not is_our_entry(found):
        raise Denied(f"{path} has another server named {name}; choose another --name")
    form = formats.choose_format(path)
    before = _find_original_text(client, file, name, found)
    if before is not None:
        return ConfigurationChange(client, file, before, is_as_it_was=True)
    without = _report_malformed(
        file, lambda: formats.remove_server(form, file.text, client.table, name)
    )
    return ConfigurationChange(client, file, without, is_ours=_is_blank(without))


def _find_original_text(
    client: ClientProgram, file: ConfigurationFile, name: str, found: dict[str, Any]
) -> str | None:
    """Return the text that was kept, where nothing but this entry has come to it since.

    An empty file, an empty table and a comma at the end are so as they were, to the byte.
    """
    form = formats.choose_format(file.path)
    with suppress(SessionError, MalformedConfiguration):
        kept = ConfigurationFile.read(file.copy_path)
        is_older = formats.find_server(form, kept.text, client.table, name) is None
        if is_older and kept.data is not None and kept.has_bom == file.has_bom:
            again = formats.add_server(form, kept.text, client.table, name, found)
            return kept.text if again == file.text else None
    return None


def _has_only_our_entry(
    client: ClientProgram, file: ConfigurationFile, name: str, found: Any
) -> bool:
    """Whether a file has nothing in it but the entry that we have made."""
    form = formats.choose_format(file.path)
    return found is not None and _is_blank(
        _report_malformed(file, lambda: formats.remove_server(form, file.text, client.table, name))
    )


def _is_blank(text: str) -> bool:
    return text.strip() in ("", "{}")


def find_entry(client: ClientProgram, path: Path, name: str) -> Any:
    """Return what stands there by a name."""
    return _read_entry(client, path, name)[1]


def find_our_entries(client: ClientProgram, path: Path) -> dict[str, Any]:
    """Return the entries of a configuration that start this program, by their names."""
    file = ConfigurationFile.read(path)
    form = formats.choose_format(path)
    there = _report_malformed(file, lambda: formats.list_servers(form, file.text, client.table))
    return {name: entry for name, entry in there.items() if is_our_entry(entry)}


def _read_entry(client: ClientProgram, path: Path, name: str) -> tuple[ConfigurationFile, Any]:
    file = ConfigurationFile.read(path)
    form = formats.choose_format(path)
    found = _report_malformed(
        file, lambda: formats.find_server(form, file.text, client.table, name)
    )
    return file, found


def _report_malformed(file: ConfigurationFile, look: Any) -> Any:
    try:
        return look()
    except MalformedConfiguration as error:
        raise Denied(
            f"cannot change {file.path}: {error}; fix it, or add the output of --print by hand"
        ) from error


PROGRAM_NAME = "mcp-sessions"
HOME_VARIABLES = ("MCP_SESSIONS_HOME", "HERMES_HOME")
"""What names a home in the environment."""


def find_command(*, shared: bool) -> list[str]:
    """Return how we are started; a `shared` configuration names no folder of this machine."""
    found = shutil.which(PROGRAM_NAME)
    if shared and found:
        return [PROGRAM_NAME]
    if _is_temporary_environment():
        return ["uvx" if shared else shutil.which("uvx") or "uvx", PROGRAM_NAME]
    started = Path(sys.argv[0])
    if started.stem == PROGRAM_NAME and started.is_file():
        return [str(started.absolute())]
    return [found] if found else [sys.executable, "-m", "mcp_serve.cli.main"]


def build_arguments(options: argparse.Namespace) -> list[str]:
    """Return what follows: the home and the limits that were asked for.

    A client does not have the variables of this shell, so that the home that one of them names is
    said too; not in a configuration that is shared, whose other readers have another one.
    """
    given = ["serve"]
    home = find_home(options.home)
    if options.home or (home.found_by in HOME_VARIABLES and not options.project):
        given += ["--home", str(home.path)]
    for profile in options.profile:
        given += ["--profile", profile]
    if options.all_profiles:
        given.append("--all-profiles")
    if options.read_only:
        given.append("--read-only")
    return given


def is_our_entry(entry: Any) -> bool:
    """Whether it is this program that an entry starts."""
    return isinstance(entry, dict) and any(map(_is_our_program, get_command_line(entry)))


def get_command_line(entry: dict[str, Any]) -> list[str]:
    """Return the command line of an entry, whether it stands in one list or in two."""
    started = entry.get("command")
    found = [*(started if isinstance(started, list) else [started]), *_to_list(entry.get("args"))]
    return [word for word in found if isinstance(word, str)]


def _is_our_program(word: str) -> bool:
    name = word.replace("\\", "/").rpartition("/")[2]
    return (
        name.removesuffix(".exe").partition("==")[0] == PROGRAM_NAME or word == "mcp_serve.cli.main"
    )


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_temporary_environment() -> bool:
    """Whether this environment is one that `uvx` made, which may be gone tomorrow."""
    return any(part.startswith("archive-v") for part in Path(sys.prefix).parts)

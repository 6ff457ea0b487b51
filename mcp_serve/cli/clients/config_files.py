"""Configuration files of clients: reading, atomic replacement, and the entry of the server."""

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

from mcp_serve.atomic_files import read_file, write_atomic
from mcp_serve.cli.clients import formats
from mcp_serve.cli.clients.jsonc import MalformedConfiguration
from mcp_serve.cli.clients.supported_clients import ClientProgram
from session_core import (
    Conflict,
    Denied,
    Home,
    SessionError,
    Unsupported,
    find_home,
)
from session_core.state import DatabaseAddress

_COPY_SUFFIX = ".before-mcp-sessions"
_NEW_FILE_MODE = 0o600
"""Private, since the file may hold keys of other servers."""

_MAX_BYTES = 1 << 26
"""A bound on the size; some clients keep a history in this file."""


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A file with the bytes that were read, or None for a missing file."""

    path: Path
    data: bytes | None

    @classmethod
    def read(cls, path: Path) -> ConfigurationFile:
        """Read a file.

        Raises:
            Denied: It cannot be read.
        """
        try:
            return cls(path, read_file(path, _MAX_BYTES))
        except FileNotFoundError:
            return cls(path, None)
        except OSError as error:
            raise Denied(f"cannot read {path}: {error.strerror}") from error

    @property
    def has_bom(self) -> bool:
        """True if the file begins with a byte order mark."""
        return (self.data or b"").startswith(codecs.BOM_UTF8)

    @property
    def text(self) -> str:
        """The text without the byte order mark.

        Raises:
            Denied: The file is not valid UTF-8.
        """
        try:
            return (self.data or b"").removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError as error:
            raise Denied(f"{self.path} is not valid UTF-8; save it as UTF-8") from error

    @property
    def copy_path(self) -> Path:
        """The path of the copy that is made before the first change."""
        return self.path.with_name(self.path.name + _COPY_SUFFIX)

    def list_differences(self, text: str) -> list[str]:
        """Return the lines of a unified diff to another text."""
        before, after = self.text.splitlines(), text.splitlines()
        return list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=2))[2:]

    def replace(self, text: str, *, keep: bool) -> None:
        """Replace the file atomically.

        With `keep`, copy the original first unless a copy exists.

        Raises:
            Conflict: Another program changed the file after it was read.
            Denied: It cannot be written, or a path in the text is not valid UTF-8.
        """
        # Dotfile managers replace such a file by a link. The link stays and its target is
        # replaced; no other file is written through a link.
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
        """Remove the copy, after the original text was restored.

        Raises:
            Denied: It cannot be removed.
        """
        try:
            self.copy_path.unlink(missing_ok=True)
        except OSError as error:
            raise Denied(f"cannot remove {self.copy_path}: {error.strerror}") from error

    def remove(self) -> None:
        """Remove a file that this program created.

        A link to it stays.

        Raises:
            Denied: It cannot be removed.
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
    """Return the mode of an existing file, or the mode for a new file."""
    try:
        mode = stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        return _NEW_FILE_MODE
    if not mode & stat.S_IWUSR:
        raise PermissionError(None, "it is read-only")
    return mode


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """A configuration file and its new text."""

    client: ClientProgram
    file: ConfigurationFile
    text: str
    is_ours: bool = False
    """Whether the file holds only our entry, so that no copy is needed."""
    is_as_it_was: bool = False
    """Whether the new text is the copy, byte for byte."""

    @property
    def is_unneeded(self) -> bool:
        """True if the file has this text already."""
        return self.text == self.file.text

    @property
    def is_removal(self) -> bool:
        """True if the change leaves an empty file that this program created."""
        return not self.file.copy_path.exists() and _is_blank(self.text)

    def apply(self) -> None:
        """Write or remove the file, and remove the copy after a restoration."""
        if self.is_removal:
            self.file.remove()
        else:
            self.file.replace(self.text, keep=not self.is_ours)
        if self.is_as_it_was:
            self.file.remove_copy()


def build_addition(
    client: ClientProgram, path: Path, name: str, entry: dict[str, Any]
) -> ConfigurationChange:
    """Return the change that adds a server to a configuration.

    Raises:
        Denied: Another server has this name, or the file is malformed.
    """
    file, existing = _read_entry(client, path, name)
    if existing is not None and not is_our_entry(existing):
        raise Denied(f"{path} has another server named {name}; choose another --name")
    form = formats.choose_format(path)
    text = _parse_or_deny(
        file, lambda: formats.add_server(form, file.text, client.table, name, entry)
    )
    return ConfigurationChange(
        client, file, text, is_ours=_has_only_our_entry(client, file, name, existing)
    )


def build_removal(client: ClientProgram, path: Path, name: str) -> ConfigurationChange | None:
    """Return the change that removes a server, or None if it is not in the configuration."""
    file, existing = _read_entry(client, path, name)
    if existing is None:
        return None
    if not is_our_entry(existing):
        raise Denied(f"{path} has another server named {name}; choose another --name")
    form = formats.choose_format(path)
    before = _find_original_text(client, file, name, existing)
    if before is not None:
        return ConfigurationChange(client, file, before, is_as_it_was=True)
    without = _parse_or_deny(
        file, lambda: formats.remove_server(form, file.text, client.table, name)
    )
    return ConfigurationChange(client, file, without, is_ours=_is_blank(without))


def _find_original_text(
    client: ClientProgram, file: ConfigurationFile, name: str, entry: dict[str, Any]
) -> str | None:
    """Return the text of the copy if only our entry was added since, else None.

    Restoring the copy brings back empty tables and trailing commas byte for byte.
    """
    form = formats.choose_format(file.path)
    with suppress(SessionError, MalformedConfiguration):
        original = ConfigurationFile.read(file.copy_path)
        is_older = formats.find_server(form, original.text, client.table, name) is None
        if is_older and original.data is not None and original.has_bom == file.has_bom:
            readded_text = formats.add_server(form, original.text, client.table, name, entry)
            return original.text if readded_text == file.text else None
    return None


def _has_only_our_entry(
    client: ClientProgram, file: ConfigurationFile, name: str, entry: Any
) -> bool:
    """Return True if a file holds nothing but our entry."""
    form = formats.choose_format(file.path)
    return entry is not None and _is_blank(
        _parse_or_deny(file, lambda: formats.remove_server(form, file.text, client.table, name))
    )


def _is_blank(text: str) -> bool:
    return text.strip() in ("", "{}")


def find_entry(client: ClientProgram, path: Path, name: str) -> Any:
    """Return the entry of a server name, or None."""
    return _read_entry(client, path, name)[1]


def find_our_entries(client: ClientProgram, path: Path) -> dict[str, Any]:
    """Return the entries of a configuration that start this program, by name."""
    file = ConfigurationFile.read(path)
    form = formats.choose_format(path)
    servers = _parse_or_deny(file, lambda: formats.list_servers(form, file.text, client.table))
    return {name: entry for name, entry in servers.items() if is_our_entry(entry)}


def _read_entry(client: ClientProgram, path: Path, name: str) -> tuple[ConfigurationFile, Any]:
    file = ConfigurationFile.read(path)
    form = formats.choose_format(path)
    entry = _parse_or_deny(file, lambda: formats.find_server(form, file.text, client.table, name))
    return file, entry


def _parse_or_deny(file: ConfigurationFile, read: Any) -> Any:
    """Return the result of `read`, and raise `Denied` for a malformed configuration."""
    try:
        return read()
    except MalformedConfiguration as error:
        raise Denied(
            f"cannot change {file.path}: {error}; fix it, or add the output of --print by hand"
        ) from error


PROGRAM_NAME = "mcp-sessions"
HOME_VARIABLES = ("MCP_SESSIONS_HOME", "HERMES_HOME")
"""Environment variables that name a home."""


def find_command(*, shared: bool) -> list[str]:
    """Return the command that starts this program.

    If `shared` is True, return the name by which other users can start it too.

    Raises:
        Unsupported: The program runs from an environment that is deleted some day.
    """
    # The package is not published: `uvx mcp-sessions` would start any package that
    # another person publishes under this name.
    if shared:
        return [PROGRAM_NAME]
    installed = shutil.which(PROGRAM_NAME)
    started = Path(sys.argv[0])
    if _is_temporary(started):
        if installed is None or _is_temporary(Path(installed)):
            raise Unsupported(
                f"{started} is in a temporary environment, which is deleted some day; install "
                f"{PROGRAM_NAME} for good, for example with `uv tool install` or `pipx install`"
            )
        return [installed]
    if started.stem == PROGRAM_NAME and started.is_file():
        return [str(started.absolute())]
    return [installed] if installed else [sys.executable, "-m", "mcp_serve.cli.main"]


def build_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of the command: its verb, the home and the given limits."""
    # Clients do not inherit the variables of this shell, so a home that a variable names becomes an
    # argument. Other users of a project configuration have other homes.
    arguments = ["serve"]
    home = find_home(options.home)
    if options.home or (home.found_by in HOME_VARIABLES and not options.project):
        arguments += ["--home", _get_home_argument(home)]
    for store in options.store:
        arguments += ["--store", store]
    if options.all_profiles:
        arguments.append("--all-profiles")
    if options.read_only:
        arguments.append("--read-only")
    return arguments


def _get_home_argument(home: Home) -> str:
    """Return the path or the address of a home for a command line.

    Raises:
        Unsupported: the address may have a password, which the file would hold.
    """
    if not isinstance(home.place, DatabaseAddress):
        return str(home.place)
    if not home.place.can_be_shown:
        raise Unsupported(
            "the address has a password, which would stand in the configuration of the client; "
            "put it into a password file or a service file, and name the home with "
            "'postgresql://?service=NAME'"
        )
    return home.place.address


def is_our_entry(entry: Any) -> bool:
    """Return True if an entry starts this program."""
    return isinstance(entry, dict) and any(map(_is_our_program, get_command_line(entry)))


def get_command_line(entry: dict[str, Any]) -> list[str]:
    """Return the command line of an entry, stored as one list or as command and arguments."""
    command = entry.get("command")
    words = [*(command if isinstance(command, list) else [command]), *_to_list(entry.get("args"))]
    return [word for word in words if isinstance(word, str)]


def _is_our_program(word: str) -> bool:
    name = word.replace("\\", "/").rpartition("/")[2]
    return (
        name.removesuffix(".exe").partition("==")[0] == PROGRAM_NAME or word == "mcp_serve.cli.main"
    )


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_temporary(path: Path) -> bool:
    """Return True for a path in a temporary environment of `uvx`."""
    return any(part.startswith("archive-v") for part in path.absolute().parts)

"""One change of one client's configuration, looked at before it is made."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_serve.cli.clients import formats, server
from mcp_serve.cli.clients.files import ConfigurationFile
from mcp_serve.cli.clients.jsonc import Malformed
from mcp_serve.cli.clients.places import Client
from session_core import Denied, SessionError


@dataclass(frozen=True, slots=True)
class Change:
    """What a file says, and what it is to say."""

    client: Client
    file: ConfigurationFile
    text: str
    is_ours: bool = False
    """Whether nothing but our own entry is in it, so that there is nothing to keep."""
    is_as_it_was: bool = False
    """Whether it is to be what was kept, to the byte."""

    @property
    def is_none(self) -> bool:
        """Whether it says that already."""
        return self.text == self.file.text

    @property
    def leaves_nothing(self) -> bool:
        """Whether nothing is left of a file that was not there before."""
        return not self.file.copy.exists() and _is_blank(self.text)

    def make(self) -> None:
        """Make it."""
        if self.leaves_nothing:
            self.file.remove()
        else:
            self.file.replace(self.text, keep=not self.is_ours)
        if self.is_as_it_was:
            self.file.forget()


def adding(client: Client, path: Path, name: str, entry: dict[str, Any]) -> Change:
    """Return the change that puts a server into a configuration.

    Raises:
        Denied: another program stands there by this name, or the file is not what it should be.
    """
    file, found = _look(client, path, name)
    if found is not None and not server.is_ours(found):
        raise Denied(f"{path} has another server named {name}; choose a name by --name")
    form = formats.format_of(path)
    with_it = _mended(file, lambda: formats.with_entry(form, file.text, client.table, name, entry))
    return Change(client, file, with_it, is_ours=_is_ours(client, file, name, found))


def removing(client: Client, path: Path, name: str) -> Change | None:
    """Return the change that takes it out; None where it is not in there."""
    file, found = _look(client, path, name)
    if found is None:
        return None
    if not server.is_ours(found):
        raise Denied(f"{path} has another server named {name}; choose a name by --name")
    form = formats.format_of(path)
    before = _before(client, file, name, found)
    if before is not None:
        return Change(client, file, before, is_as_it_was=True)
    without = _mended(file, lambda: formats.without_entry(form, file.text, client.table, name))
    return Change(client, file, without, is_ours=_is_blank(without))


def _before(
    client: Client, file: ConfigurationFile, name: str, found: dict[str, Any]
) -> str | None:
    """Return the text that was kept, where nothing but this entry has come to it since.

    An empty file, an empty table and a comma at the end are so as they were, to the byte.
    """
    form = formats.format_of(file.path)
    with suppress(SessionError, Malformed):
        kept = ConfigurationFile.read(file.copy)
        is_older = formats.entry_of(form, kept.text, client.table, name) is None
        if is_older and kept.data is not None and kept.marked == file.marked:
            again = formats.with_entry(form, kept.text, client.table, name, found)
            return kept.text if again == file.text else None
    return None


def _is_ours(client: Client, file: ConfigurationFile, name: str, found: Any) -> bool:
    """Whether a file has nothing in it but the entry that we have made."""
    form = formats.format_of(file.path)
    return found is not None and _is_blank(
        _mended(file, lambda: formats.without_entry(form, file.text, client.table, name))
    )


def _is_blank(text: str) -> bool:
    return text.strip() in ("", "{}")


def entry_in(client: Client, path: Path, name: str) -> Any:
    """Return what stands there by a name."""
    return _look(client, path, name)[1]


def ours_in(client: Client, path: Path) -> dict[str, Any]:
    """Return the entries of a configuration that start this program, by their names."""
    file = ConfigurationFile.read(path)
    form = formats.format_of(path)
    there = _mended(file, lambda: formats.servers_of(form, file.text, client.table))
    return {name: entry for name, entry in there.items() if server.is_ours(entry)}


def _look(client: Client, path: Path, name: str) -> tuple[ConfigurationFile, Any]:
    file = ConfigurationFile.read(path)
    form = formats.format_of(path)
    found = _mended(file, lambda: formats.entry_of(form, file.text, client.table, name))
    return file, found


def _mended(file: ConfigurationFile, look: Any) -> Any:
    try:
        return look()
    except Malformed as error:
        raise Denied(
            f"{file.path} cannot be changed: {error}; mend it, or add by hand what --print shows"
        ) from error

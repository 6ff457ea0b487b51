"""A server in the text of a configuration: read, put there, taken away; the rest stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

from mcp_serve.cli.clients import jsonc
from mcp_serve.cli.clients.jsonc import Malformed


class Format(Protocol):
    """How servers stand in a text, by table and name."""

    def value(self, text: str) -> Any:
        """Return all that it says."""

    def put(self, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
        """Return it with a server, whose own other keys stay."""

    def drop(self, text: str, table: str, name: str) -> str:
        """Return it without a server, and without a table in which nothing is left, no comment."""


def format_of(path: Path) -> Format:
    """Return the format of a file."""
    return Toml() if path.suffix == ".toml" else Jsonc()


def entry_of(form: Format, text: str, table: str, name: str) -> Any:
    """Return what stands there for a server; None where nothing does."""
    return servers_of(form, text, table).get(name)


def servers_of(form: Format, text: str, table: str) -> dict[str, Any]:
    """Return all servers by their names."""
    servers = _object(form.value(text)).get(table)
    return {} if servers is None else _object(servers)


def with_entry(form: Format, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text with a server, and nothing else changed."""
    wanted = deepcopy(_object(form.value(text)))
    servers = wanted[table] = _object(wanted.get(table) or {})
    servers[name] = {**_object(servers.get(name) or {}), **entry}
    return _checked(form, [wanted], lambda: form.put(text, table, name, entry))


def without_entry(form: Format, text: str, table: str, name: str) -> str:
    """Return the text without a server, and nothing else changed."""
    wanted = deepcopy(_object(form.value(text)))
    servers = _object(wanted.get(table, {}))
    servers.pop(name, None)
    bare = {key: value for key, value in wanted.items() if key != table or servers}
    return _checked(form, (wanted, bare), lambda: form.drop(text, table, name))


def _checked(form: Format, wanted: Sequence[Any], change: Callable[[], str]) -> str:
    """Return what a change makes, if it says what is wanted: it is somebody's own file."""
    text = change()
    if form.value(text) not in wanted:
        raise Malformed("it has a form that cannot be changed in place")
    return text


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed("it has something else where its servers stand")
    return value


class Jsonc:
    """JSON, with or without comments."""

    def value(self, text: str) -> Any:
        """Return all that it says."""
        return jsonc.value(text)

    def put(self, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
        """Return it with a server."""
        if jsonc.value(text).get(table, {}) is None:
            return jsonc.put(text, (table,), {name: entry})
        if entry_of(self, text, table, name) is None:
            return jsonc.put(text, (table, name), entry)
        for key, value in entry.items():
            if entry_of(self, text, table, name).get(key) != value:
                text = jsonc.put(text, (table, name, key), value)
        return text

    def drop(self, text: str, table: str, name: str) -> str:
        """Return it without a server."""
        text = jsonc.drop(text, (table, name))
        return jsonc.drop(text, (table,)) if jsonc.is_blank(text, table) else text


class Toml:
    """TOML, by a library that keeps comments and order."""

    def value(self, text: str) -> Any:
        """Return all that it says."""
        with _malformed():
            return _tomlkit().parse(text).unwrap()

    def put(self, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
        """Return it with a server."""
        toml = _tomlkit()
        with _malformed():
            whole = toml.parse(text)
            servers = whole.setdefault(table, toml.table(is_super_table=True))
            if name not in servers:
                inline = isinstance(servers, toml.items.InlineTable)
                servers[name] = toml.inline_table() if inline else toml.table()
            servers[name].update(entry)
            return _ended_alike(text, toml.dumps(whole))

    def drop(self, text: str, table: str, name: str) -> str:
        """Return it without a server."""
        toml = _tomlkit()
        with _malformed():
            whole = toml.parse(text)
            del whole[table][name]
            if not whole[table] and "#" not in whole[table].as_string():
                whole.remove(table)
            return _ended_alike(text, toml.dumps(whole))


def _ended_alike(before: str, text: str) -> str:
    """Return a text whose lines end as those before did, where these ended alike."""
    windows = "\r\n" in before and _LONE.search(before) is None
    return _LONE.sub("\r\n", text) if windows else text


_LONE = re.compile(r"(?<!\r)\n")


@contextmanager
def _malformed() -> Iterator[None]:
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 -- for one client of ten

    try:
        yield
    except TOMLKitError as error:
        raise Malformed(str(error)) from error
    except (ValueError, AttributeError) as error:
        # Of tables that stand in pieces it knows some forms and fails at others.
        raise Malformed("it has a form that cannot be changed in place") from error


def _tomlkit() -> Any:
    import tomlkit  # noqa: PLC0415 -- as above

    return tomlkit

"""Read and edit the servers in a configuration text, and keep the rest of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

from mcp_serve.cli.clients import jsonc
from mcp_serve.cli.clients.jsonc import MalformedConfiguration


class ConfigurationFormat(Protocol):
    """A text format that stores servers by table and name."""

    def parse_text(self, text: str) -> Any:
        """Return the parsed document."""

    def set_server(self, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
        """Return the text with a server added or updated, and with other keys of its entry kept."""

    def delete_server(self, text: str, table: str, name: str) -> str:
        """Return the text without a server, and without its table if the table becomes blank."""


def choose_format(path: Path) -> ConfigurationFormat:
    """Return the format of a file."""
    return TomlFormat() if path.suffix == ".toml" else JsoncFormat()


def find_server(form: ConfigurationFormat, text: str, table: str, name: str) -> Any:
    """Return the entry of a server, or None."""
    return list_servers(form, text, table).get(name)


def list_servers(form: ConfigurationFormat, text: str, table: str) -> dict[str, Any]:
    """Return all servers by name."""
    servers = _require_object(form.parse_text(text)).get(table)
    return {} if servers is None else _require_object(servers)


def add_server(
    form: ConfigurationFormat, text: str, table: str, name: str, entry: dict[str, Any]
) -> str:
    """Return the text with a server added and nothing else changed."""
    expected = deepcopy(_require_object(form.parse_text(text)))
    servers = expected[table] = _require_object(expected.get(table) or {})
    servers[name] = {**_require_object(servers.get(name) or {}), **entry}
    return _check_edited_text(form, [expected], lambda: form.set_server(text, table, name, entry))


def remove_server(form: ConfigurationFormat, text: str, table: str, name: str) -> str:
    """Return the text with a server removed and nothing else changed."""
    expected = deepcopy(_require_object(form.parse_text(text)))
    servers = _require_object(expected.get(table, {}))
    servers.pop(name, None)
    bare = {key: value for key, value in expected.items() if key != table or servers}
    return _check_edited_text(form, (expected, bare), lambda: form.delete_server(text, table, name))


def _check_edited_text(
    form: ConfigurationFormat, expected: Sequence[Any], change: Callable[[], str]
) -> str:
    """Return the edited text after checking that it parses to an expected document."""
    text = change()
    if form.parse_text(text) not in expected:
        raise MalformedConfiguration("its layout cannot be edited in place")
    return text


def _require_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedConfiguration("its table of servers is not an object")
    return value


class JsoncFormat:
    """JSON, with or without comments."""

    def parse_text(self, text: str) -> Any:
        """Return the parsed document."""
        return jsonc.parse_text(text)

    def set_server(self, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
        """Return the text with a server added or updated."""
        if jsonc.parse_text(text).get(table, {}) is None:
            return jsonc.set_value(text, (table,), {name: entry})
        if find_server(self, text, table, name) is None:
            return jsonc.set_value(text, (table, name), entry)
        for key, value in entry.items():
            if find_server(self, text, table, name).get(key) != value:
                text = jsonc.set_value(text, (table, name, key), value)
        return text

    def delete_server(self, text: str, table: str, name: str) -> str:
        """Return the text without a server."""
        text = jsonc.delete_value(text, (table, name))
        return jsonc.delete_value(text, (table,)) if jsonc.is_blank(text, table) else text


class TomlFormat:
    """TOML, by a library that keeps comments and order."""

    def parse_text(self, text: str) -> Any:
        """Return the parsed document."""
        with _translate_toml_errors():
            return _import_tomlkit().parse(text).unwrap()

    def set_server(self, text: str, table: str, name: str, entry: dict[str, Any]) -> str:
        """Return the text with a server added or updated."""
        toml = _import_tomlkit()
        with _translate_toml_errors():
            document = toml.parse(text)
            servers = document.setdefault(table, toml.table(is_super_table=True))
            if name not in servers:
                inline = isinstance(servers, toml.items.InlineTable)
                servers[name] = toml.inline_table() if inline else toml.table()
            servers[name].update(entry)
            return _match_line_endings(text, toml.dumps(document))

    def delete_server(self, text: str, table: str, name: str) -> str:
        """Return the text without a server."""
        toml = _import_tomlkit()
        with _translate_toml_errors():
            document = toml.parse(text)
            del document[table][name]
            if not document[table] and "#" not in document[table].as_string():
                document.remove(table)
            return _match_line_endings(text, toml.dumps(document))


def _match_line_endings(before: str, text: str) -> str:
    """Return a text with CRLF line endings if the original used only those."""
    windows = "\r\n" in before and _LONE_NEWLINE.search(before) is None
    return _LONE_NEWLINE.sub("\r\n", text) if windows else text


_LONE_NEWLINE = re.compile(r"(?<!\r)\n")


@contextmanager
def _translate_toml_errors() -> Iterator[None]:
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 -- only one client uses TOML

    try:
        yield
    except TOMLKitError as error:
        raise MalformedConfiguration(str(error)) from error
    except (ValueError, AttributeError) as error:
        # tomlkit fails on some layouts of dotted and split tables.
        raise MalformedConfiguration("its layout cannot be edited in place") from error


def _import_tomlkit() -> Any:
    import tomlkit  # noqa: PLC0415 -- only one client uses TOML

    return tomlkit

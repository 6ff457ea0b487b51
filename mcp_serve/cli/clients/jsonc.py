"""JSON with comments and trailing commas, edited in place.

The text is scanned for positions and never rendered again, so the rest is kept byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_BLANK_PATTERN = re.compile(r"(?:\s+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING_PATTERN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD_PATTERN = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_INDENT_PATTERN = re.compile(r"(?:^|\n)([ \t]*)$")

_DEFAULT_INDENT = "  "


class MalformedConfiguration(ValueError):
    """The text is not valid JSON, or does not have the expected layout."""


@dataclass(slots=True)
class JsonNode:
    """A value with its position, and the members of an object."""

    start: int
    end: int
    value: Any
    members: list[JsonMember] | None = None

    def find_member(self, key: str) -> JsonMember | None:
        """Return the last member with a key, which is the member that counts."""
        matches = [member for member in self.members or () if member.key == key]
        return matches[-1] if matches else None


@dataclass(slots=True)
class JsonMember:
    """A member of an object."""

    key: str
    start: int
    node: JsonNode


def parse_text(text: str) -> Any:
    """Return the parsed value, which is an empty object for a blank text.

    Raises:
        MalformedConfiguration: The text is not valid.
    """
    return _scan_text(text).value


def set_value(text: str, path: Sequence[str], new: Any) -> str:
    """Return the text with a value set at a path, and with missing objects created."""
    if not _BLANK_PATTERN.sub("", text, count=1):
        # After a line comment, the braces need a new line.
        text += ("" if text.endswith("\n") or not text.strip() else _detect_newline(text)) + "{}"
        text += _detect_newline(text)
    node, rest = _scan_text(text), list(path)
    while rest:
        if node.members is None:
            raise MalformedConfiguration(
                f"{'.'.join(path[: -len(rest)]) or 'the whole'} is not an object"
            )
        member = node.find_member(rest[0])
        if member is None:
            break
        node = member.node
        del rest[0]
    if not rest:
        indent = _find_indent(text, _find_line_start(text, node.start))
        return text[: node.start] + _render_value(text, new, indent) + text[node.end :]
    for key in reversed(rest[1:]):
        new = {key: new}
    return _insert_member(text, node, rest[0], new)


def is_blank(text: str, key: str) -> bool:
    """Return True if an object at the root is blank, without comments."""
    member = _scan_text(text).find_member(key)
    return member is not None and not text[member.node.start + 1 : member.node.end - 1].strip()


def delete_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the value at a path, or the same text if there is none."""
    node = _scan_text(text)
    for key in path[:-1]:
        member = node.find_member(key)
        if member is None:
            return text
        node = member.node
    last = node.find_member(path[-1])
    return text if last is None else _remove_member(text, node, last)


def _insert_member(text: str, node: JsonNode, key: str, new: Any) -> str:
    """Return the text with a member appended to an object."""
    close = node.end - 1
    inner = text[node.start + 1 : close]
    label = json.dumps(key, ensure_ascii=False) + ": "
    last = node.members[-1] if node.members else None
    # An object that its owner keeps on one line stays there.
    if last is not None and "\n" not in inner:
        comma = "" if _find_comma(text, last.node.end) is not None else ", "
        return text[:close].rstrip() + comma + label + json.dumps(new) + text[close:]
    newline = _detect_newline(text)
    indent = (
        _find_indent(text, last.start)
        if last
        else _find_opening_indent(text, node) + _detect_indent(text)
    )
    line = newline + indent + label + _render_value(text, new, indent)
    end = len(text[:close].rstrip()) if inner.strip() else node.start + 1
    if last is None:
        return text[:end] + line + newline + _find_opening_indent(text, node) + text[close:]
    if _find_comma(text, last.node.end) is not None:
        return text[:end] + line + "," + text[end:]
    return text[: last.node.end] + "," + text[last.node.end : end] + line + text[end:]


def _remove_member(text: str, node: JsonNode, member: JsonMember) -> str:
    """Return the text without a member and its comma."""
    members = node.members or []
    at = members.index(member)
    lead = len(text[: member.start].rstrip())
    comma = _find_comma(text, member.node.end)
    end = member.node.end if comma is None else comma + 1
    # The last member goes with the comma before it: not every client accepts a trailing one.
    if comma is None and at > 0:
        before = _find_comma(text, members[at - 1].node.end)
        if before is not None:
            return text[:before] + text[before + 1 : lead] + text[end:]
    text, close = text[:lead] + text[end:], node.end - 1 - (end - lead)
    if not text[node.start + 1 : close].strip():
        return text[: node.start + 1] + text[close:]
    return text


def _find_comma(text: str, at: int) -> int | None:
    """Return the position of the comma after a value, or None."""
    at = _skip_blank(text, at)
    return at if text[at : at + 1] == "," else None


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK_PATTERN.match(text, at)
    return match.end() if match else at


def _render_value(text: str, new: Any, indent: str) -> str:
    lines = json.dumps(new, indent=_detect_indent(text), ensure_ascii=False)
    return lines.replace("\n", _detect_newline(text) + indent)


def _detect_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _detect_indent(text: str) -> str:
    """Return the indentation of one level, taken from the first member."""
    members = _scan_text(text).members
    return (_find_indent(text, members[0].start) if members else "") or _DEFAULT_INDENT


def _find_opening_indent(text: str, node: JsonNode) -> str:
    """Return the indentation of the line on which an object begins."""
    return _find_indent(text, _find_line_start(text, node.start))


def _find_line_start(text: str, at: int) -> int:
    """Return the position of the first character of a line that is not blank."""
    start = text.rfind("\n", 0, at) + 1
    return start + len(text[start:at]) - len(text[start:at].lstrip(" \t"))


def _find_indent(text: str, at: int) -> str:
    """Return the blank text before a position on its line, else an empty string."""
    match = _INDENT_PATTERN.search(text[:at])
    return match[1] if match else ""


def _scan_text(text: str) -> JsonNode:
    scan = _Scanner(text)
    try:
        return scan.scan_document()
    except RecursionError as error:
        raise MalformedConfiguration("it is nested too deeply") from error


@dataclass(slots=True)
class _Scanner:
    """A scanner with a current position."""

    text: str
    at: int = field(default=0)

    def scan_document(self) -> JsonNode:
        self._skip_blank()
        if self.at == len(self.text):
            return JsonNode(self.at, self.at, {}, [])
        node = self._scan_value()
        self._skip_blank()
        if self.at != len(self.text):
            raise self._make_error("unexpected text after the end")
        return node

    def _scan_value(self) -> JsonNode:
        start = self.at
        sign = self.text[start : start + 1]
        if sign == "{":
            return self._scan_object(start)
        if sign == "[":
            return self._scan_array(start)
        value = self._scan_word(_STRING_PATTERN if sign == '"' else _WORD_PATTERN)
        return JsonNode(start, self.at, value)

    def _scan_object(self, start: int) -> JsonNode:
        members: list[JsonMember] = []
        self._skip_character()
        while not self._take_close("}"):
            at = self.at
            key = self._scan_word(_STRING_PATTERN)
            self._skip_blank()
            self._expect_sign(":")
            self._skip_blank()
            members.append(JsonMember(key, at, self._scan_value()))
            self._take_separator("}")
        value = {member.key: member.node.value for member in members}
        return JsonNode(start, self.at, value, members)

    def _scan_array(self, start: int) -> JsonNode:
        values = []
        self._skip_character()
        while not self._take_close("]"):
            values.append(self._scan_value().value)
            self._take_separator("]")
        return JsonNode(start, self.at, values)

    def _scan_word(self, form: re.Pattern[str]) -> Any:
        match = form.match(self.text, self.at)
        if match is None:
            raise self._make_error("expected a value")
        try:
            # The pattern only finds the end; JSON decides which escapes and numbers are valid.
            value = json.loads(match[0])
        except ValueError as error:
            raise self._make_error("expected a value") from error
        self.at = match.end()
        return value

    def _take_close(self, close: str) -> bool:
        if self.text[self.at : self.at + 1] != close:
            return False
        self.at += 1
        return True

    def _take_separator(self, close: str) -> None:
        self._skip_blank()
        if self.text[self.at : self.at + 1] == ",":
            self._skip_character()
        elif self.text[self.at : self.at + 1] != close:
            raise self._make_error(f"expected a comma or {close}")

    def _expect_sign(self, sign: str) -> None:
        if self.text[self.at : self.at + 1] != sign:
            raise self._make_error(f"expected {sign}")
        self.at += 1

    def _skip_character(self) -> None:
        self.at += 1
        self._skip_blank()

    def _skip_blank(self) -> None:
        self.at = _skip_blank(self.text, self.at)

    def _make_error(self, what: str) -> MalformedConfiguration:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return MalformedConfiguration(f"line {line}, column {column}: {what}")

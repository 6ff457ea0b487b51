"""JSON as people write it, with comments and commas at the end, edited in place.

A text is scanned for where things stand, never parsed and written anew: what is not touched stays
as it was, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_BLANK = re.compile(r"(?:\s+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_INDENT = re.compile(r"(?:^|\n)([ \t]*)$")

_UNIT = "  "


class Malformed(ValueError):
    """It is no JSON, or not of the form that is wanted."""


@dataclass(slots=True)
class Node:
    """A value and where it stands; an object has members."""

    start: int
    end: int
    value: Any
    members: list[Member] | None = None

    def member(self, key: str) -> Member | None:
        """Return the member that counts: the last one of that name."""
        named = [each for each in self.members or () if each.key == key]
        return named[-1] if named else None


@dataclass(slots=True)
class Member:
    """A name in an object, and its value."""

    key: str
    start: int
    node: Node


def value(text: str) -> Any:
    """Return what a text says; one without anything is an empty object.

    Raises:
        Malformed: it says nothing whole.
    """
    return _scan(text).value


def put(text: str, path: Sequence[str], new: Any) -> str:
    """Return the text with a value at a path; objects on the way are made."""
    if not _BLANK.sub("", text, count=1):
        # Behind a comment that ends with its line it would be one more word of it.
        text += ("" if text.endswith("\n") or not text.strip() else _newline(text)) + "{}"
        text += _newline(text)
    node, rest = _scan(text), list(path)
    while rest:
        if node.members is None:
            raise Malformed(f"{'.'.join(path[: -len(rest)]) or 'the whole'} is no object")
        found = node.member(rest[0])
        if found is None:
            break
        node = found.node
        del rest[0]
    if not rest:
        indent = _indent_at(text, _line_start(text, node.start))
        return text[: node.start] + _rendered(text, new, indent) + text[node.end :]
    for key in reversed(rest[1:]):
        new = {key: new}
    return _inserted(text, node, rest[0], new)


def is_blank(text: str, key: str) -> bool:
    """Whether an object at the root has nothing in it, not even a comment."""
    found = _scan(text).member(key)
    return found is not None and not text[found.node.start + 1 : found.node.end - 1].strip()


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without what is at a path; where nothing is, the text."""
    node = _scan(text)
    for key in path[:-1]:
        found = node.member(key)
        if found is None:
            return text
        node = found.node
    gone = node.member(path[-1])
    return text if gone is None else _removed(text, node, gone)


def _inserted(text: str, node: Node, key: str, new: Any) -> str:
    """Return the text with one more member, at the end of an object."""
    close = node.end - 1
    inner = text[node.start + 1 : close]
    named = json.dumps(key, ensure_ascii=False) + ": "
    last = node.members[-1] if node.members else None
    if last is not None and "\n" not in inner:
        comma = "" if _comma(text, last.node.end) is not None else ", "
        return text[:close].rstrip() + comma + named + json.dumps(new) + text[close:]
    newline = _newline(text)
    indent = _indent_at(text, last.start) if last else _outer(text, node) + _unit(text)
    made = newline + indent + named + _rendered(text, new, indent)
    behind = len(text[:close].rstrip()) if inner.strip() else node.start + 1
    if last is None:
        return text[:behind] + made + newline + _outer(text, node) + text[close:]
    if _comma(text, last.node.end) is not None:
        return text[:behind] + made + "," + text[behind:]
    return text[: last.node.end] + "," + text[last.node.end : behind] + made + text[behind:]


def _removed(text: str, node: Node, gone: Member) -> str:
    """Return the text without a member, and without the comma that goes with it."""
    members = node.members or []
    at = members.index(gone)
    lead = len(text[: gone.start].rstrip())
    comma = _comma(text, gone.node.end)
    end = gone.node.end if comma is None else comma + 1
    if comma is None and at > 0:
        before = _comma(text, members[at - 1].node.end)
        if before is not None:
            return text[:before] + text[before + 1 : lead] + text[end:]
    text, close = text[:lead] + text[end:], node.end - 1 - (end - lead)
    if not text[node.start + 1 : close].strip():
        return text[: node.start + 1] + text[close:]
    return text


def _comma(text: str, at: int) -> int | None:
    """Return where the comma behind a value is."""
    at = _behind_blank(text, at)
    return at if text[at : at + 1] == "," else None


def _behind_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _rendered(text: str, new: Any, indent: str) -> str:
    lines = json.dumps(new, indent=_unit(text), ensure_ascii=False)
    return lines.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return by what one level is moved in, as the first member shows it."""
    members = _scan(text).members
    return (_indent_at(text, members[0].start) if members else "") or _UNIT


def _outer(text: str, node: Node) -> str:
    """Return the indentation of the line on which an object begins."""
    return _indent_at(text, _line_start(text, node.start))


def _line_start(text: str, at: int) -> int:
    """Return where the first sign of a line is that is not blank."""
    start = text.rfind("\n", 0, at) + 1
    return start + len(text[start:at]) - len(text[start:at].lstrip(" \t"))


def _indent_at(text: str, at: int) -> str:
    """Return what stands before a place on its line, where that is blank."""
    found = _INDENT.search(text[:at])
    return found[1] if found else ""


def _scan(text: str) -> Node:
    scan = _Scan(text)
    try:
        return scan.whole()
    except RecursionError as error:
        raise Malformed("it is nested too deeply") from error


@dataclass(slots=True)
class _Scan:
    """A place in a text that moves on."""

    text: str
    at: int = field(default=0)

    def whole(self) -> Node:
        self._skip()
        if self.at == len(self.text):
            return Node(self.at, self.at, {}, [])
        node = self._node()
        self._skip()
        if self.at != len(self.text):
            raise self._malformed("something behind the end")
        return node

    def _node(self) -> Node:
        start = self.at
        sign = self.text[start : start + 1]
        if sign == "{":
            return self._object(start)
        if sign == "[":
            return self._array(start)
        read = self._word(_STRING if sign == '"' else _WORD)
        return Node(start, self.at, read)

    def _object(self, start: int) -> Node:
        members: list[Member] = []
        self._step()
        while not self._ends("}"):
            at = self.at
            key = self._word(_STRING)
            self._skip()
            self._expect(":")
            self._skip()
            members.append(Member(key, at, self._node()))
            self._separate("}")
        read = {member.key: member.node.value for member in members}
        return Node(start, self.at, read, members)

    def _array(self, start: int) -> Node:
        read = []
        self._step()
        while not self._ends("]"):
            read.append(self._node().value)
            self._separate("]")
        return Node(start, self.at, read)

    def _word(self, form: re.Pattern[str]) -> Any:
        found = form.match(self.text, self.at)
        if found is None:
            raise self._malformed("no value")
        try:
            read = json.loads(found[0])
        except ValueError as error:
            raise self._malformed("no value") from error
        self.at = found.end()
        return read

    def _ends(self, close: str) -> bool:
        if self.text[self.at : self.at + 1] != close:
            return False
        self.at += 1
        return True

    def _separate(self, close: str) -> None:
        self._skip()
        if self.text[self.at : self.at + 1] == ",":
            self._step()
        elif self.text[self.at : self.at + 1] != close:
            raise self._malformed(f"no comma and no {close}")

    def _expect(self, sign: str) -> None:
        if self.text[self.at : self.at + 1] != sign:
            raise self._malformed(f"no {sign}")
        self.at += 1

    def _step(self) -> None:
        self.at += 1
        self._skip()

    def _skip(self) -> None:
        self.at = _behind_blank(self.text, self.at)

    def _malformed(self, what: str) -> Malformed:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return Malformed(f"line {line}, column {column}: {what}")

"""What a person typed, understood: words, phrases, prefixes, AND, OR, NOT; and what it matches.

Operators act in upper case only. What does not parse is searched as the words it consists of, so no
text is an error. The matcher says on decoded text what an index can only say of its own copy, and
every engine uses this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Literal, Union

from session_core.state import searchable

MAX_LENGTH = 2048
MAX_LEAVES = 48
_MAX_DEPTH = 24
_OPERATORS = frozenset(("AND", "OR", "NOT"))
_LEXER = re.compile(r'"[^"]*"\*?|[^\s"]+')
_GLUED = re.compile(r'^(?:[^"]|"[^"]*")*?(?:[^\s("]"[^"]*"|"[^"]*"[^\s)*"])')
"""A quotation mark in the middle of a word opens no phrase."""

_QUOTES = str.maketrans({"\x00": " ", "\u201c": '"', "\u201d": '"', "\u201e": '"'})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word, or words in a row; with `prefix` the last one may go on."""

    text: str
    prefix: bool = False

    @property
    def words(self) -> list[str]:
        """The folded words of it."""
        return searchable.words(self.text)


@dataclass(frozen=True, slots=True)
class Not:
    """What must not match."""

    part: Node


@dataclass(frozen=True, slots=True)
class And:
    """What must all match; at least one part is no `Not`."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Of which one must match; no part is a `Not`."""

    parts: tuple[Node, ...]


Node = Union[Leaf, Not, And, Or]  # noqa: UP007 -- Python 3.10 has no forward `X | Y`
Kind = Literal["words", "syntax", "text", "literal", "empty"]


@dataclass(frozen=True, slots=True)
class Query:
    """A typed query: `words` may be loosened, `syntax` means what it says, `text` did not parse.

    A `literal` has no letter or digit in it and can only be looked for as it is.
    """

    text: str
    kind: Kind
    node: Node | None = None


def parse(typed: str) -> Query:
    """Understand what was typed; anything can be."""
    text = " ".join(typed[:MAX_LENGTH].translate(_QUOTES).split())
    if not text:
        return Query("", "empty")
    tokens = _LEXER.findall(text)
    balanced = text.count('"') % 2 == 0 and not _GLUED.search(text)
    operators = any(token in _OPERATORS for token in tokens)
    if balanced and operators:
        node = _Parser(tokens).parse()
        if node is not None:
            return Query(text, "syntax", node)
    leaves = list(_plain_leaves(tokens))[:MAX_LEAVES]
    if not leaves:
        return Query(text, "literal", Leaf(text))
    node = leaves[0] if len(leaves) == 1 else And(tuple(leaves))
    if operators or not balanced:
        return Query(text, "text", node)
    typed_syntax = any(leaf.prefix for leaf in leaves) or '"' in text
    return Query(text, "syntax" if typed_syntax else "words", node)


def leaves(node: Node | None, *, negative: bool = False) -> Iterator[Leaf]:
    """Yield the leaves that a match may show; with `negative` those under NOT too."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, Not):
        if negative:
            yield from leaves(node.part, negative=True)
    elif node is not None:
        for part in node.parts:
            yield from leaves(part, negative=negative)


def as_prefixes(node: Node, *, except_for: Container[str] = ()) -> Node:
    """Return the same with every word as a prefix, but for some."""
    if isinstance(node, Leaf):
        return node if node.text.lower() in except_for else Leaf(node.text, prefix=True)
    if isinstance(node, Not):
        return node
    return type(node)(tuple(as_prefixes(part, except_for=except_for) for part in node.parts))


def expression(
    node: Node, word: Callable[[Leaf], str | None], *, exact: bool = False
) -> str | None:
    """Return an FTS5 expression, None where a leaf that is needed has none.

    It may match more than the node does, where a leaf beside others has none; `exact` never.
    """
    if isinstance(node, Leaf):
        return word(node)
    if isinstance(node, Not):
        return None
    found = [
        expression(part, word, exact=exact) for part in node.parts if not isinstance(part, Not)
    ]
    known = [part for part in found if part is not None]
    if not known or (None in found and (exact or isinstance(node, Or))):
        return None
    if isinstance(node, Or):
        return f"({' OR '.join(known)})"
    positive = known[0] if len(known) == 1 else f"({' AND '.join(known)})"
    barred = [
        expression(part.part, word, exact=True) for part in node.parts if isinstance(part, Not)
    ]
    if exact and None in barred:
        return None
    excluded = [part for part in barred if part is not None]
    return f"({positive} NOT ({' OR '.join(excluded)}))" if excluded else positive


def quoted(text: str) -> str:
    """Return a text as an FTS5 string, in which nothing has a meaning."""
    return '"' + text.replace("\x00", " ").replace('"', '""') + '"'


class _Parser:
    """Recursive descent: or ← and (OR and)*, and ← unary (AND? unary)*; None where it is wrong."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = list(_without_parentheses(tokens))
        self._leaves = 0

    def parse(self) -> Node | None:
        self._at = 0
        try:
            node = self._either(0)
        except _SyntaxError:
            return None
        return node if self._at == len(self._tokens) and not isinstance(node, Not) else None

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _either(self, depth: int) -> Node:
        parts = [self._all(depth)]
        while self._peek() == "OR":
            self._at += 1
            parts.append(self._all(depth))
        if len(parts) == 1:
            return parts[0]
        if any(isinstance(part, Not) for part in parts):
            raise _SyntaxError
        return Or(tuple(parts))

    def _all(self, depth: int) -> Node:
        parts = [self._unary(depth)]
        while self._peek() not in (None, "OR", ")"):
            if self._peek() == "AND":
                self._at += 1
            parts.append(self._unary(depth))
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, Not) for part in parts):
            raise _SyntaxError
        return And(tuple(parts))

    def _unary(self, depth: int) -> Node:
        typed = self._peek()
        if typed is None or typed in ("AND", "OR", ")") or depth > _MAX_DEPTH:
            raise _SyntaxError
        self._at += 1
        if typed == "NOT":
            part = self._unary(depth + 1)
            if isinstance(part, Not):
                raise _SyntaxError
            return Not(part)
        if typed == "(":
            inner = self._either(depth + 1)
            if self._peek() != ")" or isinstance(inner, Not):
                raise _SyntaxError
            self._at += 1
            return inner
        found = _leaf(typed)
        self._leaves += 1
        if found is None or self._leaves > MAX_LEAVES:
            raise _SyntaxError
        return found


class _SyntaxError(Exception):
    pass


def _without_parentheses(tokens: list[str]) -> Iterator[str]:
    """Split parentheses from the ends of words; inside a word they are part of it."""
    for token in tokens:
        if token.startswith('"'):
            yield token
            continue
        inner = token.lstrip("(")
        yield from "(" * (len(token) - len(inner))
        closing = len(inner) - len(inner.rstrip(")"))
        closing = max(0, closing - inner.rstrip(")").count("("))
        if inner[: len(inner) - closing]:
            yield inner[: len(inner) - closing]
        yield from ")" * closing


def _plain_leaves(tokens: list[str]) -> Iterator[Leaf]:
    seen = set()
    for token in tokens:
        leaf = _leaf(token)
        if leaf is not None and leaf not in seen:
            seen.add(leaf)
            yield leaf


def _leaf(token: str) -> Leaf | None:
    """Return the leaf of a token, None if there is no letter, digit or emoji in it."""
    prefix = token.endswith("*") and not token.endswith("**")
    text = token.strip('"*') if token.startswith('"') else token.rstrip("*").replace('"', " ")
    text = text.strip()
    return Leaf(text, prefix) if searchable.words(text) else None

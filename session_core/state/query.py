"""Search queries: parsing, the words of plain questions, and matching of decoded text.

A query has words, phrases, prefixes, AND, OR, NOT (in upper case only). Text that does not parse is
searched as its words, so no query is an error. An index decides on its own copy of the text; the
matcher decides on the decoded text, and every engine uses it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Union

from session_core.state import search_text

MAX_QUERY_LENGTH = 2048
MAX_LEAVES = 48
_MAX_DEPTH = 24
_OPERATORS = frozenset(("AND", "OR", "NOT"))
_LEXER = re.compile(r'"[^"]*"\*?|[^\s"]+')
_GLUED_QUOTE = re.compile(r'^(?:[^"]|"[^"]*")*?(?:[^\s("]"[^"]*"|"[^"]*"[^\s)*"])')
"""Matches a quotation mark in the middle of a word, which opens no phrase."""

_EXCLUSION = re.compile(r"-(?![\d-])\w[^\s\"*]+")
"""Matches a word to exclude. A lone letter is rather an option of a command, as in `-m`."""

# SQLite ends a text at a NUL. Curly quotation marks open a phrase like straight ones.
_QUOTE_TABLE = str.maketrans({"\x00": " ", "\u201c": '"', "\u201d": '"', "\u201e": '"'})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word or a phrase. With `prefix`, its last word may continue."""

    text: str
    prefix: bool = False

    @property
    def words(self) -> list[str]:
        """The folded words of the leaf."""
        return search_text.split_words(self.text)


@dataclass(frozen=True, slots=True)
class Not:
    """A part that must not match."""

    part: Node


@dataclass(frozen=True, slots=True)
class And:
    """Parts that must all match. At least one part is not a `Not`."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Parts of which at least one must match. No part is a `Not`."""

    parts: tuple[Node, ...]


Node = Union[Leaf, Not, And, Or]  # noqa: UP007 -- Python 3.10 has no forward `X | Y`
QueryKind = Literal["words", "syntax", "text", "literal", "empty"]


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query.

    Plain `words` may be loosened, `syntax` is searched exactly, and `text` did not parse. A
    `literal` has no letter or digit and can only be searched for as it is. `excluded` are the words
    after a minus sign, which the node has as `Not`.
    """

    text: str
    kind: QueryKind
    node: Node | None = None
    excluded: tuple[Leaf, ...] = ()


def parse_query(query_text: str) -> Query:
    """Parse a query. Every text is a valid query."""
    text = " ".join(query_text[:MAX_QUERY_LENGTH].translate(_QUOTE_TABLE).split())
    if not text:
        return Query("", "empty")
    tokens = _LEXER.findall(text)
    balanced = text.count('"') % 2 == 0 and not _GLUED_QUOTE.search(text)
    operators = any(token in _OPERATORS for token in tokens)
    if balanced and operators:
        node = _Parser(tokens).parse()
        if node is not None:
            return Query(text, "syntax", node)
    if operators or not balanced:
        return _make_plain_query(text, tokens, "text")
    kept = [token for token in tokens if not _EXCLUSION.fullmatch(token)]
    if len(kept) == len(tokens):
        return _make_plain_query(text, tokens, "words")
    query = _make_plain_query(" ".join(kept), kept, "words")
    if query.node is None or query.kind == "literal":
        return _make_plain_query(text, tokens, "words")
    excluded = tuple(_iter_plain_leaves([token[1:] for token in tokens if token not in kept]))
    node = And((query.node, *map(Not, excluded[:MAX_LEAVES])))
    return replace(query, node=node, excluded=excluded[:MAX_LEAVES])


def _make_plain_query(text: str, tokens: list[str], kind: QueryKind) -> Query:
    """Build the query of words without operators.

    Quoted words and prefixes make its kind `syntax`.
    """
    leaves = list(_iter_plain_leaves(tokens))[:MAX_LEAVES]
    if not leaves:
        return Query(text, "literal", Leaf(text))
    node = leaves[0] if len(leaves) == 1 else And(tuple(leaves))
    typed_syntax = any(leaf.prefix for leaf in leaves) or '"' in text
    return Query(text, "syntax" if typed_syntax and kind == "words" else kind, node)


def iter_leaves(node: Node | None, *, negative: bool = False) -> Iterator[Leaf]:
    """Yield the leaves that a match can show.

    With `negative`, also yield the leaves below a `Not`.
    """
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, Not):
        if negative:
            yield from iter_leaves(node.part, negative=True)
    elif node is not None:
        for part in node.parts:
            yield from iter_leaves(part, negative=negative)


def add_prefixes(node: Node, *, except_for: Container[str] = ()) -> Node:
    """Return the node with every word as a prefix, except the words in `except_for`."""
    if isinstance(node, Leaf):
        return node if node.text.lower() in except_for else Leaf(node.text, prefix=True)
    if isinstance(node, Not):
        return node
    return type(node)(tuple(add_prefixes(part, except_for=except_for) for part in node.parts))


def build_match_expression(
    node: Node, word: Callable[[Leaf], str | None], *, exact: bool = False
) -> str | None:
    """Build an FTS5 expression, or return None if a needed leaf has no expression.

    The expression can match more than the node does if one of several leaves has no expression.
    With `exact` it never does.
    """
    if isinstance(node, Leaf):
        return word(node)
    if isinstance(node, Not):
        return None
    expressions = [
        build_match_expression(part, word, exact=exact)
        for part in node.parts
        if not isinstance(part, Not)
    ]
    present = [part for part in expressions if part is not None]
    if not present or (None in expressions and (exact or isinstance(node, Or))):
        return None
    if isinstance(node, Or):
        return f"({' OR '.join(present)})"
    positive = present[0] if len(present) == 1 else f"({' AND '.join(present)})"
    exclusions = [
        build_match_expression(part.part, word, exact=True)
        for part in node.parts
        if isinstance(part, Not)
    ]
    if exact and None in exclusions:
        return None
    excluded = [part for part in exclusions if part is not None]
    return f"({positive} NOT ({' OR '.join(excluded)}))" if excluded else positive


def quote_fts_string(text: str) -> str:
    """Quote a text as an FTS5 string, in which no character is an operator."""
    return '"' + text.replace("\x00", " ").replace('"', '""') + '"'


class _Parser:
    """Recursive descent parser of queries with operators.

    The grammar is: or ← and (OR and)*, and ← unary (AND? unary)*. A syntax error returns None.
    """

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = list(_split_parentheses(tokens))
        self._leaves = 0

    def parse(self) -> Node | None:
        self._at = 0
        try:
            node = self._parse_or(0)
        except _SyntaxError:
            return None
        return node if self._at == len(self._tokens) and not isinstance(node, Not) else None

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _parse_or(self, depth: int) -> Node:
        parts = [self._parse_and(depth)]
        while self._peek() == "OR":
            self._at += 1
            parts.append(self._parse_and(depth))
        if len(parts) == 1:
            return parts[0]
        # `a OR NOT b` matches nearly every message, which no index can list.
        if any(isinstance(part, Not) for part in parts):
            raise _SyntaxError
        return Or(tuple(parts))

    def _parse_and(self, depth: int) -> Node:
        parts = [self._parse_unary(depth)]
        while self._peek() not in (None, "OR", ")"):
            if self._peek() == "AND":
                self._at += 1
            parts.append(self._parse_unary(depth))
        if len(parts) == 1:
            return parts[0]
        # NOT has two operands in FTS5: there is nothing to exclude from.
        if all(isinstance(part, Not) for part in parts):
            raise _SyntaxError
        return And(tuple(parts))

    def _parse_unary(self, depth: int) -> Node:
        symbol = self._peek()
        if symbol is None or symbol in ("AND", "OR", ")") or depth > _MAX_DEPTH:
            raise _SyntaxError
        self._at += 1
        if symbol == "NOT":
            part = self._parse_unary(depth + 1)
            if isinstance(part, Not):
                raise _SyntaxError
            return Not(part)
        if symbol == "(":
            inner = self._parse_or(depth + 1)
            if self._peek() != ")" or isinstance(inner, Not):
                raise _SyntaxError
            self._at += 1
            return inner
        leaf = _parse_leaf(symbol)
        self._leaves += 1
        if leaf is None or self._leaves > MAX_LEAVES:
            raise _SyntaxError
        return leaf


class _SyntaxError(Exception):
    pass


def _split_parentheses(tokens: list[str]) -> Iterator[str]:
    """Split parentheses from the ends of words.

    Parentheses inside a word are part of it.
    """
    for token in tokens:
        # Parentheses inside a phrase are searched for as text.
        if token.startswith('"'):
            yield token
            continue
        inner = token.lstrip("(")
        yield from "(" * (len(token) - len(inner))
        closing = len(inner) - len(inner.rstrip(")"))
        # In `f(x)` the closing parenthesis belongs to the word.
        closing = max(0, closing - inner.rstrip(")").count("("))
        if inner[: len(inner) - closing]:
            yield inner[: len(inner) - closing]
        yield from ")" * closing


def _iter_plain_leaves(tokens: list[str]) -> Iterator[Leaf]:
    seen = set()
    for token in tokens:
        leaf = _parse_leaf(token)
        if leaf is not None and leaf not in seen:
            seen.add(leaf)
            yield leaf


def _parse_leaf(token: str) -> Leaf | None:
    """Return the leaf of a token, or None if it has no letter, digit or emoji."""
    prefix = token.endswith("*") and not token.endswith("**")
    text = token.strip('"*') if token.startswith('"') else token.rstrip("*").replace('"', " ")
    text = text.strip()
    return Leaf(text, prefix) if search_text.split_words(text) else None


_STOP_TEXT = """
a about after again all also am an and any anyone are as at be because been before being but by can
could did do does doing done ever every for from get got had has have he her here him his how i if
in into is it its just like made make many may me might more most much must my no nor not now of off
often on once one only or other our out over own please say should so some such than that the their
them then there these they this those through to too under until up us very was we went were what
when where which while who whom whose why will with would yes you your we've i've it's what's who's
how's let's don't didn't doesn't isn't can't said tell told know find show last ago
"""
_QUESTION_TEXT = """
what what's which who who's whose whom why how when where did do does is are was were can could
should has have
"""
_ENDINGS_TEXT = """
ization isation ations ation ments ment ings ing ions ion izes ized ize ised ise ies ied ers ed es
er ly s e y
"""
_FORM_ENDINGS_TEXT = """
e s es ed d ing er ers y ies ied ion ions ation ations ize ized ization ment ly
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
_QUESTION_WORDS = frozenset(_QUESTION_TEXT.split())
_ENDINGS = _ENDINGS_TEXT.split()
_FORM_ENDINGS = _FORM_ENDINGS_TEXT.split()
_SPACELESS_STOP_CHARS = frozenset(
    "的了是在我你他她它们吗呢吧么什怎哪谁和与就都也不这那有没很到说要去会着过给把被为"
    "のはがをにへとでもかな"
)
_VOWELS = "aeiou"
_MIN_QUESTION_WORDS = 4
_MIN_STEM_LENGTH = 3
_MIN_FORM_LENGTH = 4


def is_question(text: str) -> bool:
    """Return True if a text is a question, which a message with all its words may repeat."""
    words = text.lower().split()
    return len(words) >= _MIN_QUESTION_WORDS and (text.endswith("?") or words[0] in _QUESTION_WORDS)


def is_stop_word(piece: str) -> bool:
    """Return True if a piece is too common to distinguish messages."""
    if search_text.has_spaceless(piece):
        return any(char in _SPACELESS_STOP_CHARS for char in piece)
    return piece in STOP_WORDS or len(piece) == 1


def split_pieces(text: str, gram: int) -> Iterator[str]:
    """Yield the words of a text, an identifier whole and in its parts.

    Text in scripts without spaces comes in overlapping pieces.
    """
    rest = text = unicodedata.normalize("NFKC", text)
    for run in search_text.find_spaceless_runs(text):
        size = min(gram, len(run))
        yield from (run[at : at + size] for at in range(len(run) - size + 1))
        rest = rest.replace(run, " ")
    for part in rest.split():
        words = search_text.split_words(part)
        if len(words) > 1 and "'" not in part:
            yield part.lower()
        if len(words) == 1 and not part.isascii():
            yield part.lower()  # an index that does not fold has it as typed
        else:
            yield from words[:1] if "'" in part else words


def list_word_forms(piece: str) -> list[str]:
    """Return a word and its likely forms: decided, decide, decides, deciding."""
    if not (piece.isascii() and piece.isalpha() and len(piece) >= _MIN_FORM_LENGTH):
        return [piece]
    stems = {piece}
    for ending in _ENDINGS:
        stem = piece.removesuffix(ending)
        if stem != piece and len(stem) >= _MIN_STEM_LENGTH:
            stems.add(stem)
            # planned, plann, plan
            if stem[-1] == stem[-2] and stem[-1] not in "aeiouls":
                stems.add(stem[:-1])
            break
    forms = [piece]
    for stem in sorted(stems):
        forms += [stem, *(stem + form for form in _FORM_ENDINGS)]
        # plan, planned, planning
        if stem[-1] not in _VOWELS and stem[-2] in _VOWELS:
            forms += [stem + stem[-1] + form for form in ("ed", "ing", "er")]
    return list(dict.fromkeys(forms))


class LeafMatcher:
    """Finds one leaf in folded text.

    It compares consecutive folded words, as a word index does. A search with `in`, which is a
    memory search, comes first, and the words are compared only after a hit.
    """

    __slots__ = ("_again", "_lone", "_longest", "leaf", "words")

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.words = tuple(leaf.words) or ("\x00",)
        self._lone = [search_text.has_spaceless(word) for word in self.words]
        self._longest = max(self.words, key=len)
        self._again = _compute_prefix_function(self.words)

    @property
    def longest_piece(self) -> str:
        """A piece that every text with the leaf contains."""
        return self._longest

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return the bounds of the next match at or after `start`, or None."""
        if len(self.words) > 1:
            return self._find_phrase(folded, start)
        word, at = self._longest, start
        while (at := folded.find(word, at)) >= 0:
            end = at + len(word)
            if self._lone[0]:
                return at, end
            if at == 0 or not search_text.is_word_char(folded[at - 1]):
                is_open = self.leaf.prefix or end == len(folded)
                if is_open or not search_text.is_word_char(folded[end]):
                    return at, end
            at += 1
        return None

    def _find_phrase(self, folded: str, start: int) -> tuple[int, int] | None:
        """Return the bounds of the next match of a leaf of several words."""
        if self._longest not in folded:
            return None
        at, begins = start, list[int]()
        while True:
            if not begins:
                at = self._find_begin(folded, at)
                if at < 0:
                    return None
            matched = len(begins)
            end = self._find_end(folded, at, matched)
            if end is not None:
                begins.append(at)
                if len(begins) == len(self.words):
                    return begins[0], end
                at = _find_next_word(folded, end)
            elif begins:
                # No word of the text is read twice: the match may continue as a later one.
                del begins[: matched - self._again[matched]]
            else:
                at += 1

    def count_matches(self, folded: str) -> int:
        """Count the occurrences of the leaf approximately. Return 0 only if it does not occur."""
        return folded.count(self._longest) if self.find(folded) else 0

    def _find_begin(self, folded: str, at: int) -> int:
        """Return the next possible position of the first word, or -1."""
        at = folded.find(self.words[0], at)
        while at > 0 and not self._lone[0] and search_text.is_word_char(folded[at - 1]):
            at = folded.find(self.words[0], at + 1)
        return at

    def _find_end(self, folded: str, at: int, number: int) -> int | None:
        """Return the end of the word with this number if it begins at `at`, or None."""
        if not folded.startswith(self.words[number], at):
            return None
        end = at + len(self.words[number])
        if self._lone[number] or (self.leaf.prefix and number == len(self.words) - 1):
            return end
        return None if end < len(folded) and search_text.is_word_char(folded[end]) else end


def _find_next_word(folded: str, at: int) -> int:
    """Return the beginning of the next word."""
    while at < len(folded) and search_text.is_separator(folded[at]):
        at += 1
    return at


def _compute_prefix_function(words: Sequence[str]) -> list[int]:
    """Return the failure function of Knuth, Morris and Pratt over words."""
    lengths = [0] * len(words)
    for count in range(2, len(words)):
        shared = lengths[count - 1]
        while shared and words[shared] != words[count - 1]:
            shared = lengths[shared]
        lengths[count] = shared + (words[shared] == words[count - 1])
    return lengths


@lru_cache(maxsize=512)
def compile_leaf(leaf: Leaf) -> LeafMatcher:
    """Return the matcher of a leaf."""
    return LeafMatcher(leaf)


def is_match(node: Node, folded: str) -> bool:
    """Return True if folded text matches a node."""
    if isinstance(node, Leaf):
        return compile_leaf(node).find(folded) is not None
    if isinstance(node, Not):
        return not is_match(node.part, folded)
    if isinstance(node, And):
        return all(is_match(part, folded) for part in node.parts)
    return any(is_match(part, folded) for part in node.parts)


def find_needle(node: Node) -> str:
    """Return a piece that every matching text contains, or an empty text."""
    if isinstance(node, Leaf):
        return compile_leaf(node).longest_piece
    if isinstance(node, And):
        return max(map(find_needle, node.parts), key=len)
    return ""


def make_word_start_test(needle: str) -> Callable[[str], bool]:
    """Return a predicate that finds a folded needle at the beginning of a word."""

    def begins_word(folded: str) -> bool:
        at = folded.find(needle)
        while at > 0 and search_text.is_word_char(folded[at - 1]):
            at = folded.find(needle, at + 1)
        return at >= 0

    return begins_word

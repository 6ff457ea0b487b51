"""How much of a home the two indexes of Hermes have: up to where, of which rows, how much of each.

It is looked at, never told by a version: a layout may be older or newer than its schema.

How words are looked up in the two indexes of a Hermes home, and what those hide.

Its word index has a run of Han as one word, its trigram index nothing shorter than three
characters, and both have multi-part content and arguments of tools as ASCII-escaped JSON. So a
short piece is looked up by the trigrams that begin with it, and an escaped one by its codes. What
is found is a superset, to be verified on decoded text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from session_core.state import query as queries
from session_core.state import search_text
from session_core.state.query import And, Leaf, Node, Not, Or
from session_core.state.sqlite import fts, sql_blocks
from session_core.state.sqlite.connection import Handle

SQL = sql_blocks.load("search")

BROKEN = "search_index_broken"
"""Set in `seen` once an index could not be read: everything is read row by row then."""

_CUT = re.compile(r"substr\s*\((?:[^()]|\([^()]*\))*,\s*1\s*,\s*(\d+)\s*\)", re.IGNORECASE)
"""How a trigger, or the view that an index is of, cuts a text short."""

_CUT_ROWS = (
    "coalesce(m.role = 'tool'"
    " AND (length(CAST(m.content AS BLOB)) > {} OR instr(m.content, char(0))), 0)"
)


def index_end(handle: Handle) -> int:
    """Return up to which message the word index goes; NOTHING if it is not there or has holes."""
    if handle.seen.get(BROKEN) or not handle.has("messages_fts_docsize"):
        return fts.NOTHING
    found = handle.seen.get("word_index_end")
    if found is None:
        end = None if _is_rebuilding(handle) else handle.value(SQL["get_word_index_end"])
        found = handle.seen["word_index_end"] = fts.NOTHING if end is None else end
    return int(found)


def _is_rebuilding(handle: Handle) -> bool:
    """Whether the index has holes that Hermes has not got to fill yet."""
    if not handle.has("state_meta"):
        return False
    marks = dict(handle.values(SQL["list_marks"]))
    if marks.get("fts_stale") not in (None, "", "0"):
        return True
    try:
        high, done = (
            int(marks.get(f"fts_rebuild_{key}") or -1) for key in ("high_water", "progress")
        )
    except ValueError:
        return True
    return high > done


def has_trigrams(handle: Handle) -> bool:
    """Whether there is a trigram index."""
    return handle.has("messages_fts_trigram")


def lacks_trigrams(handle: Handle) -> bool:
    """Whether the trigram index leaves rows out, as in newer homes.

    It has nothing there of what tools said, of arguments, and of sessions nobody talks in.
    """
    partial = handle.seen.get("partial_trigrams")
    if partial is None:
        partial = handle.seen["partial_trigrams"] = bool(handle.value(SQL["has_partial_trigrams"]))
    return bool(partial) and handle.has("messages_fts_trigram_docsize")


def cut_rows(handle: Handle) -> str | None:
    """Return a condition on rows of which only the beginning is indexed, None if there are none.

    Newer homes cut what tools said, and SQLite cuts it at the marker of multi-part content.
    """
    if "cut_rows" not in handle.seen:
        lengths = _CUT.findall(handle.value(SQL["get_indexed_text"]) or "")
        longest = min(map(int, lengths), default=None)
        handle.seen["cut_rows"] = None if longest is None else _CUT_ROWS.format(longest)
    found: str | None = handle.seen["cut_rows"]
    return found


WORDS, TRIGRAMS = "list_word_ids", "list_trigram_ids"

MULTI_PART = 'content : ^ "json"'
"""What only a row with the marker of multi-part content begins with, or one that says json."""

GRAM = 3
_CODED_ROW = '("json" OR "function")'
"""What every row of multi-part content, and every row that calls a tool, has in the word index."""

_CODE = re.compile(r"\\u([0-9a-f]{4})")
_BEFORE = re.compile(r"\\(u[0-9a-fA-F]{4})(?=[0-9A-Za-z])")
_NO_WORD = re.compile(r"^[\W_]+(?=.)")
_GLUED = "glued_codes"
_MOST_NEWER = 2000
_MOST_GRAMS = 400
_WORDS_VOCABULARY = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.ms_words USING fts5vocab(main, messages_fts, row)"
)
_VOCABULARY = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS temp.ms_vocabulary"
    " USING fts5vocab(main, messages_fts_trigram, row)"
)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A statement that lists ids, newest first, and what it is to match."""

    block: str
    match: str

    def finds_any(self, handle: Handle) -> bool:
        """Whether there is a match at all."""
        bounds = {"match": self.match, "low": fts.MIN_ID, "high": fts.MAX_ID, "count": 1}
        return bool(handle.value(SQL[self.block], bounds) != "[]")


def word(leaf: Leaf) -> str | None:
    """Return what the word index is asked for a leaf, None for what it has as one long word."""
    if search_text.has_spaceless(leaf.text):
        return None
    star = "*" if leaf.prefix else ""
    forms = [queries.quoted(form) + star for form in search_text.spellings(leaf.text)]
    return forms[0] if len(forms) == 1 else f"({' OR '.join(forms)})"


def inner(node: Node) -> str | None:
    """Return what the trigram index is asked for words, None if one is too short for it."""

    def gram(leaf: Leaf) -> str | None:
        return queries.quoted(leaf.text) if len(leaf.text) >= GRAM else None

    return queries.expression(_without_not(node), gram)


def lookups(handle: Handle, node: Node, *, coded: bool) -> list[Lookup]:
    """Return lookups whose union holds every match, none where there is no such union.

    Without `coded`, words that JSON hides may be missed.
    """
    positive = _without_not(node)
    match = queries.expression(positive, word)
    if match is not None:
        hidden = _hidden(handle, positive) if coded else None
        return [Lookup(WORDS, one) for one in (match, hidden) if one is not None]
    if isinstance(positive, Leaf):
        return _of_spaceless(handle, positive)
    parts = [lookups(handle, part, coded=coded) for part in getattr(positive, "parts", ())]
    if isinstance(positive, Or):
        return [lookup for part in parts for lookup in part] if all(parts) else []
    # Long pieces are rarer than short ones.
    return max(
        filter(None, parts), key=lambda part: min(len(one.match) for one in part), default=[]
    )


def of_substring(handle: Handle, needle: str) -> list[Lookup]:
    """Return the lookups of a substring: as it is, and as JSON has it once and twice encoded."""
    found: list[Lookup] = []
    for spelling in search_text.spellings(needle):
        match = _trigrams(handle, spelling)
        if match is None:
            return []
        found += [Lookup(TRIGRAMS, match)] if match else []
        found += [Lookup(TRIGRAMS, queries.quoted(one)) for one in _encodings(spelling)]
        escaped = _escaped_phrase(spelling)
        found += [Lookup(WORDS, escaped)] if escaped else []
    return found


def _of_spaceless(handle: Handle, leaf: Leaf) -> list[Lookup]:
    run = max(search_text.runs(leaf.text), key=len, default="")
    if not run or not has_trigrams(handle):
        return []
    found = of_substring(handle, run)
    return [*found, Lookup(WORDS, queries.quoted(run) + "*")] if found else []


def _without_not(node: Node) -> Node:
    if not isinstance(node, (And, Or)):
        return node
    parts = tuple(_without_not(part) for part in node.parts if not isinstance(part, Not))
    return parts[0] if len(parts) == 1 else type(node)(parts)


def _hidden(handle: Handle, node: Node) -> str | None:
    """Return what finds words that JSON hides, None if it hides none of them."""
    hidden: dict[Leaf, str] = {}
    glue = _glue(handle)
    for leaf in set(queries.leaves(node)):
        plain = word(leaf)
        probe = Lookup(WORDS, _as_hidden(_start(leaf), glue))
        if plain is not None and probe.finds_any(handle):
            hidden[leaf] = f"({plain} OR {_as_hidden(leaf, glue)})"
    if not hidden:
        return None
    match = queries.expression(node, lambda leaf: hidden.get(leaf) or word(leaf))
    return None if match is None else f"({match} AND {_CODED_ROW})"


def _start(leaf: Leaf) -> Leaf:
    """Return the first word of a leaf, which is the one that JSON hides."""
    words = leaf.words if leaf.text.isascii() else ()
    return Leaf(words[0]) if len(words) > 1 else leaf


def _as_hidden(leaf: Leaf, glue: Sequence[str]) -> str:
    """Return what the word index is asked for a leaf as JSON hides it.

    An escaped character before a word is part of the word there, as `n` or `u201c`; what is not
    ASCII is a row of codes, with the case as it was typed. A sign that only the index takes for a
    letter (one of private use) is a word of its own where it is not escaped.
    """
    text = _NO_WORD.sub("", leaf.text)
    if text.isascii():
        befores = glue if leaf.text.isascii() else ("", *glue)
        phrases, star = [f"{before}{text}" for before in befores], "*" if leaf.prefix else ""
    else:
        forms = dict.fromkeys((text, text.lower(), text.upper(), text.capitalize()))
        befores = ("", *glue) if text[0].isascii() else ("",)
        phrases, star = [f"{one}{_as_words(form)}" for form in forms for one in befores], "*"
    return f"({' OR '.join(queries.quoted(phrase) + star for phrase in phrases)})"


def _as_words(text: str) -> str:
    return _CODE.sub(r" u\1", json.dumps(text)[1:-1]).strip()


def _glue(handle: Handle) -> list[str]:
    """Return what stands before a word as part of it: escapes, and the codes that do so here."""
    end = index_end(handle)
    last, codes = handle.kept.get(_GLUED, (None, set()))
    if last is None or end - last >= _MOST_NEWER:
        handle.run(_WORDS_VOCABULARY)
        codes = {code for (code,) in handle.values(SQL["list_glued_codes"])}
    elif end > last:
        newer = handle.values(SQL["list_escaped"], (last, end))
        codes |= {code.lower() for row in newer for text in row for code in _BEFORE.findall(text)}
    handle.kept[_GLUED] = end, codes
    return ["n", "t", "r", "b", "f", *sorted(codes)]


def _trigrams(handle: Handle, needle: str) -> str | None:
    """Return what the trigram index is asked for a substring.

    Empty if nothing there can have it, None if it is in too many to ask.
    """
    if len(needle) >= GRAM:
        return queries.quoted(needle)
    lowered = needle.lower()
    handle.run(_VOCABULARY)
    found = handle.values(
        "SELECT term FROM temp.ms_vocabulary WHERE term >= ? AND term < ? LIMIT ?",
        (lowered, lowered + "\U0010ffff", _MOST_GRAMS),
    )
    if len(found) == _MOST_GRAMS:
        return None
    return " OR ".join(queries.quoted(term) for (term,) in found)


def _encodings(needle: str) -> Iterator[str]:
    """Yield a substring as JSON inside JSON has it, where that differs; some escape a slash."""
    once = json.dumps(needle)[1:-1]
    codings = (once, once.replace("/", "\\/"))
    for coded in dict.fromkeys((*codings, *(json.dumps(one)[1:-1] for one in codings))):
        if coded != needle:
            yield coded


def _escaped_phrase(text: str) -> str | None:
    """Return what the word index is asked for an escaped piece, None if nothing is escaped."""
    coded = json.dumps(text)[1:-1]
    if _CODE.sub("", coded):
        return None
    return queries.quoted(" ".join(f"u{code}" for code in _CODE.findall(coded))) + "*"

"""A text as a person or a program would read it, with the original place of each character.

Terminal sequences and invisible characters are removed, escapes of JSON and URLs are decoded, and
lines wrapped by a terminal or an encoder are joined. Redaction searches this view and the text
itself, and maps matches back.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator

# Characters that a renderer may ignore according to Unicode, and combining accents.
_INVISIBLE = (
    "\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9a\x9c-\x9f"

_AFTER_CSI = "(?:[0-?]{0,99}[ -/]{0,9}[@-~])?"
_AFTER_ESCAPE = (
    r"(?:\[[0-?]{0,99}[ -/]{0,9}[@-~]|[\]PX^_][^\x07\x1b\x9c]{0,999}(?:\x07|\x1b\\|\x9c)"
    r"|[ -/]{1,9}[0-~]|[78=>])?"
)
# A sequence that a terminal obeys instead of showing it.
TERMINAL = f"\x1b{_AFTER_ESCAPE}|\x9b{_AFTER_CSI}"

_HEX = "[0-9a-fA-F]"
_NEXT_BYTE = f"%[89abAB]{_HEX}"


# A bare color sequence after an escaped ESC is not removed here: ESC would take the next character.
_NO_ESCAPE_BEFORE = (
    r"(?<!\\u001[bB]\[)(?<!\\x1[bB]\[)(?<!%1[bB]\[)(?<!\\033\[)(?<!\\e\[)"
    r"(?<!&#27;\[)(?<!&#x1[bB];\[)"
)


def _compile_disguises(unseen: str) -> re.Pattern[str]:
    """Return a pattern for characters that are read as other characters, or not at all.

    Every alternative begins with one character of one set, so that other text is skipped fast.
    """
    return re.compile(
        rf"[\x1b\x9b\\%&\[^{unseen}](?:"
        rf"(?<=\\)\\*(?:(?P<sign>[nrtbf\"'/])|u(?P<unicode>{_HEX}{{4}})|x(?P<byte>{_HEX}{{2}})"
        r"|(?P<esc>033|e(?=\[))|(?P<line>\r?\n)|)"
        rf"|(?<=%)(?P<percent>[0-7]{_HEX}|[cCdD]{_HEX}{_NEXT_BYTE}"
        rf"|[eE]{_HEX}(?:{_NEXT_BYTE}){{2}}|[fF][0-7](?:{_NEXT_BYTE}){{3}})"
        r"|(?<=&)(?:#(?P<decimal>\d{1,6})|#[xX](?P<hex>[0-9a-fA-F]{1,5})"
        r"|(?P<entity>quot|apos|amp|lt|gt));"
        rf"|(?P<gone>(?<=\x1b){_AFTER_ESCAPE}|(?<=\x9b){_AFTER_CSI}"
        rf"|(?<=\^)\[\[[0-?]{{0,99}}[@-~]|(?<=\[){_NO_ESCAPE_BEFORE}"
        r"(?:\d{1,3}(?:;\d{1,3}){0,8}[mKGHJ](?:\[K)?|m\[K)"
        rf"|(?<=[{unseen}])))"
    )


_DISGUISES, _ASCII_DISGUISES = (
    _compile_disguises(_CONTROLS + _INVISIBLE),
    _compile_disguises(_CONTROLS),
)
_ESCAPE_SIGNS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ENTITIES = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}

# A character that the next one overprints, as manuals print bold.
_OVERSTRUCK = re.compile("[^\n\x08]\x08(?=[^\n\x08])")

_INDENT = r"[ \t]{0,40}(?:[>|+\u2502][ \t]{0,4})?"
# The beginning of an independent line: a file position, a date, a setting.
_OTHER_LINE = r"(?:[\w./\-]{1,200}\.\w{1,8}:\d|\d{4}-\d\d-\d\d|[A-Z][A-Z0-9_]{2,40}=[^=\s])"

_WRAP = re.compile(rf"\n(?<=[^\n]{{60}}\n){_INDENT}(?!{_OTHER_LINE})(?=\S)")
_LONG_WORD_AHEAD = r"(?=[^\s\\]{8})(?=[^\s\\]{0,200}\d)(?=[^\s\\]{0,200}[A-Za-z])"
# A line break that may split a prefix, or leave too little of a token to recognise it.
_PREFIX_WRAP = re.compile(_WRAP.pattern + _LONG_WORD_AHEAD)

_ESCAPED_WRAP = re.compile(
    rf"\\n(?<=[^\n]{{60}}\\n)(?<=[\w+/=.\-\\]\\n)(?!{_OTHER_LINE}){_LONG_WORD_AHEAD}"
)
# The rest of a token on the next line; neither a word nor the name of the next setting.
_REST_PATTERN = re.compile(
    r"(?:(?=[A-Za-z0-9_+/.%~\-]{0,200}\d)|(?=[A-Za-z]{0,40}[a-z][A-Z]))"
    r"(?:[A-Za-z0-9_+/.%~\-]{1,9999}={0,2}|[A-Za-z0-9_+/.%~=\-]{40,9999})"
    r"(?:[\s\"'`,;)\]}&<@\u2026]|\Z)"
)

# Usual widths of wrapped lines.
_WRAP_WIDTHS = frozenset((60, 64, 65, 70, 72, 75, 76, 77, 78, 79, 80, 100, 119, 120, 132, 160))

# Escapes may be nested, as JSON within JSON is.
_MAX_ROUNDS = 3


class _Layer:
    """One pass of replacements, with the positions of each."""

    def __init__(self) -> None:
        self._view_starts = array("q")
        self._view_stops = array("q")
        self._starts = array("q")
        self._stops = array("q")
        self._pieces: list[str] = []
        self._length = 0

    def replace(self, text: str, start: int, stop: int, new: str) -> None:
        """Replace a span of the text.

        Spans come in order.
        """
        before = self._stops[-1] if self._stops else 0
        self._pieces += (text[before:start], new)
        self._length += start - before
        self._view_starts.append(self._length)
        self._length += len(new)
        self._view_stops.append(self._length)
        self._starts.append(start)
        self._stops.append(stop)

    def finish(self, text: str) -> str:
        """Return the text with all replacements."""
        if not self._stops:
            return text
        self._pieces.append(text[self._stops[-1] :])
        view = "".join(self._pieces)
        self._pieces.clear()
        return view

    def find_start(self, place: int) -> int:
        """Return the start in the text of a position in the view."""
        at = bisect_right(self._view_starts, place) - 1
        if at < 0:
            return place
        if place < self._view_stops[at]:
            return self._starts[at]
        return self._stops[at] + place - self._view_stops[at]

    def find_stop(self, place: int) -> int:
        """Return the end in the text of the character before a position in the view."""
        at = bisect_right(self._view_starts, place - 1) - 1
        if at < 0:
            return place
        if place <= self._view_stops[at]:
            return self._stops[at]
        return self._stops[at] + place - self._view_stops[at]


class NormalizedText:
    """The normalized view of a text, which maps spans back to the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._layers: list[_Layer] = []
        if "\x08" in text:
            self._apply_change(_remove_overstrikes)
        for _ in range(_MAX_ROUNDS):
            if not self._apply_change(_decode_escapes):
                break

    def join_lines(self) -> bool:
        """Join lines that were wrapped within a token, and return True if there are any."""
        return "\n" in self.text and self._apply_change(_join_wraps)

    def _apply_change(self, change: Callable[[str, _Layer], None]) -> bool:
        layer = _Layer()
        change(self.text, layer)
        view = layer.finish(self.text)
        if view is self.text:
            return False
        self.text = view
        self._layers.append(layer)
        return True

    def locate(self, start: int, stop: int) -> tuple[int, int]:
        """Return the span of the original text for a span of the view."""
        for layer in reversed(self._layers):
            start, stop = layer.find_start(start), layer.find_stop(stop)
        return start, stop


def _remove_overstrikes(text: str, layer: _Layer) -> None:
    for struck in _OVERSTRUCK.finditer(text):
        layer.replace(text, struck.start(), struck.end(), "")


def _decode_escapes(text: str, layer: _Layer) -> None:
    disguises = _ASCII_DISGUISES if text.isascii() else _DISGUISES
    for escape in disguises.finditer(text):
        new = _decode_escape(escape)
        if new != escape[0]:
            layer.replace(text, escape.start(), escape.end(), new)


def _decode_escape(escape: re.Match[str]) -> str:
    kind = escape.lastgroup
    value = escape[kind] if kind else ""
    if kind in ("gone", "line"):
        return ""
    if kind == "sign":
        return _ESCAPE_SIGNS.get(value, value)
    if kind == "percent":
        return bytes.fromhex(value.replace("%", "")).decode("utf-8", "replace")
    if kind in ("unicode", "byte", "hex"):
        return chr(int(value, 16))
    if kind == "decimal":
        return chr(int(value))
    if kind == "esc":
        return "\x1b"
    return _ENTITIES.get(value, "\\")


def _join_wraps(text: str, layer: _Layer) -> None:
    for start, stop in _find_wraps(_WRAP, text):
        layer.replace(text, start, stop, "")


def _find_wraps(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield line breaks within a token: after wide lines, before the rest of the token."""
    line = 0
    for wrap in pattern.finditer(text):
        line = text.rfind("\n", line, wrap.start()) + 1 or line
        start = wrap.start() - (text[wrap.start() - 1] == "\r")
        if text[start - 1].isspace():
            continue
        # A JSON string begins after a quote.
        quote = text.rfind('"', line, start) + 1
        if (
            start - line in _WRAP_WIDTHS
            or start - quote in _WRAP_WIDTHS
            or _REST_PATTERN.match(text, wrap.end())
        ):
            yield start, wrap.end()


_UNSEEN = re.compile(f"[\x1b\x9b{_CONTROLS}{_INVISIBLE}]")
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n"
_ESCAPES = re.compile(r"\\(?:[ux/\r\n]|033|e\[)")
_PERCENT = re.compile(f"%{_HEX}{{2}}")
_BARE_COLOR = re.compile(r"\[(?:\d{1,3}[;mKGHJ]|m\[K)")


def is_disguised(text: str) -> bool:
    """Return True if the view of a text may contain words that the text does not."""
    return bool(
        _has_unseen(text)
        or ("\\" in text and (_ESCAPES.search(text) or _ESCAPED_WRAP.search(text)))
        or ("%" in text and _PERCENT.search(text))
        or "&#" in text
        or ("[" in text and _BARE_COLOR.search(text))
        or ("\n" in text and next(_find_wraps(_PREFIX_WRAP, text), None))
    )


def can_view_differ(text: str) -> bool:
    """Return True if the view of a text may differ from the text."""
    return bool(
        "\\" in text
        or "&" in text
        or _has_unseen(text)
        or ("%" in text and _PERCENT.search(text))
        or ("[" in text and _BARE_COLOR.search(text))
        or ("\n" in text and next(_find_wraps(_WRAP, text), None))
    )


def _has_unseen(text: str) -> bool:
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return False
    return _UNSEEN.search(text) is not None

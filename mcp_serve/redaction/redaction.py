"""Redaction: remove secrets of known shapes from outgoing text.

The whole text is searched, also in its normalized view, and then cut. In a text that was cut
before, the beginning of a secret at its end is removed too. `clean_text` and `clean_value` also
remove terminal escapes, and arguments of the caller that an error quotes.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from mcp_serve.plain_text import to_plain_line, to_plain_text
from mcp_serve.redaction.normalized_text import NormalizedText, can_view_differ, is_disguised
from mcp_serve.redaction.secret_kinds import PHRASE, SHAPES, TOKENS, SecretShape

MARK = "[redacted"

Redact = Callable[[str], str]


class Secret(NamedTuple):
    """The span of a secret in a text, and its kind."""

    start: int
    stop: int
    kind: str


# Short texts such as titles and tool names repeat, so their results are cached.
_SHORT = 200

# Pages overlap and are read again, so the results of their latest texts are cached too.
MAX_CACHED_CHARS = 1_000_000
_MAX_CACHED_TEXT_CHARS = 50_000

# A longer text is read in many pages, each of which needs all secrets of the text.
_LONG = 200_000

# A secret may begin at the end of another one, and is found only after that was removed.
_MAX_PASSES = 4

# Characters of prefixes, rare characters first. A sign at the end of a prefix is best.
_SIGNS = "JAKWQGD$/dpc2_-."

_MIN_BODY_CHARS = 12
# Characters that may occur within a disguised or wrapped token: all but printable ASCII, and \ % &.
# A set of ASCII characters compiles fast.
_BROKEN = r"[^ -$'-\[\]-~]"


class _Prefix(NamedTuple):
    """A prefix of a kind of token."""

    kind: str
    text: str
    body: str


_PREFIXES = [
    _Prefix(token.kind, prefix, token.body) for token in TOKENS for prefix in token.prefixes.split()
]


def _build_token_pattern(prefix: _Prefix) -> str:
    """Return the pattern of a token.

    It begins with plain text, which is fastest to find.
    """
    plain = re.escape(prefix.text)
    return f"{plain}(?<![A-Za-z0-9]{plain}){prefix.body}"


def _choose_search_character(prefix: str) -> str:
    """Return the character of a prefix to search for, which is the last one if it is a sign."""
    last = prefix[-1]
    return last if last in "_-." else next(sign for sign in _SIGNS if sign in prefix)


def _compile_gate(sign: str, prefixes: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any prefix that contains a sign and precedes enough characters."""
    split = [prefix.rpartition(sign) for prefix in prefixes]
    around: dict[str, dict[str, list[str]]] = {}
    for before, _, rest in split:
        around.setdefault(rest, {}).setdefault(before[-1:], []).append(before)
    body = r"[\w\-.+/=$%]" if sign in "_-." else r"[\w\-]"
    choices = "|".join(
        f"{re.escape(rest)}(?={body}{{{_MIN_BODY_CHARS}}}|{body}{{4,}}{_BROKEN})"
        f"(?:{_build_lookbehind(sign + rest, by_last)})"
        for rest, by_last in around.items()
    )
    return re.compile(f"{re.escape(sign)}(?:{choices})")


def _build_lookbehind(end: str, by_last: Mapping[str, Iterable[str]]) -> str:
    """Return a pattern for any of these texts before `end`, grouped by their last character."""
    return "|".join(
        f"(?<={re.escape(last + end)})"
        f"(?:{'|'.join(f'(?<={re.escape(before + end)})' for before in sharing)})"
        for last, sharing in by_last.items()
    )


def _build_token_gates() -> list[tuple[str, re.Pattern[str], list[_Prefix]]]:
    """Return the prefixes grouped by a shared character, each with its gate."""
    by_sign: dict[str, list[_Prefix]] = {}
    for prefix in _PREFIXES:
        by_sign.setdefault(_choose_search_character(prefix.text), []).append(prefix)
    return [
        (sign, _compile_gate(sign, {prefix.text for prefix in sharing}), sharing)
        for sign, sharing in by_sign.items()
    ]


def _group_by_common(*, folded: bool) -> list[tuple[str, list[tuple[str, SecretShape]]]]:
    """Return hints and shapes grouped by a common substring.

    A text without the substring needs no further test of the group.
    """
    by_common: dict[str, list[tuple[str, SecretShape]]] = {}
    for shape in SHAPES:
        for hint in shape.hints.split() if shape.is_folded == folded else ():
            common = next((common for common in _COMMON if common in hint), hint)
            by_common.setdefault(common, []).append((hint, shape))
    return list(by_common.items())


_COMMON = (*"~/VA-", "key", "pass", "secret", "token", "auth", "=")
_GATES = _build_token_gates()
_EXACT, _FOLDED = _group_by_common(folded=False), _group_by_common(folded=True)
_FOLDED_ASCII = [group for group in _FOLDED if group[0].isascii()]

_compiled = lru_cache(maxsize=None)(re.compile)

# The end of a cut text that is searched for the beginning of a secret.
_TAIL_CHARS = 400


# The beginning of a secret, however short, at the end of a text.
_OPEN_PATTERN = (
    "(?:(?<![A-Za-z0-9])(?:"
    + "|".join(re.escape(prefix.text) for prefix in _PREFIXES)
    + r")[\w\-.+/=%!$]*"
    + r"|\bsk-[\w\-]*"
    + r"|\b[0-9a-f]{9,}(?:-(?:u(?:s\d?)?)?)?"
    + r"|(?=\S*\d)(?=\S*[a-z])(?=\S*[A-Z])[A-Za-z0-9]{9,}[\w.\-]*"
    + r"|[A-Za-z0-9]{14}\.atlasv1\.\S*|[\w~.\-]{3}\dQ~\S*"
    + r"|(?:hooks\.(?:slack|zapier)\.com|/api/webhooks|/webhookb2|softlayer\.com/soap)/\S*"
    + r"|(?i:\bbearer\s+)\S+"
    + r"|(?i:[?&][\w\-]*(?:token|key|sig|signature|secret|auth|code|password)=)\S+"
    + r"|\b[MNO](?=[\w\-]*\d)[\w\-]{11,26}(?:\.[\w\-]*){0,2}"
    + r"|-----? ?BEGIN [^\n]*(?:[\s\S]*)|\beyJ[\w\-.]*|\b\d{8,10}:[\w\-]*"
    + r"|(?<=://)[^\s/:@]+:[^\s/@]*"
    + r"|(?i:(?:key|secret|passw\w*|token|authorization)[\"']?\s*[:=]\s*"
    + r"(?:bearer|basic)?\s*[\"']?)\S*"
    + r"|(?i:(?:client-key-data|_?auth)[\"']{0,2}\s*[:=]\s*[\"']?)[A-Za-z0-9+/=]+"
    + rf"|(?i:{PHRASE}(?:\s*[=:\uff1a]|\s+(?:is|was|ist|lautet|est|es)\b):?\s*)\S+"
    + r")(?:\\+(?:u?[0-9a-fA-F]{0,3})|%[0-9a-fA-F]?|[\x1b\[][\d;\[]*)?[\"'\s;,.]*\Z"
)


def redact(text: str) -> str:
    """Return a text with each secret replaced by a mark."""
    return (_redact_short if len(text) <= _SHORT else LATEST_TEXTS.redact)(text)


class LatestTexts:
    """The results of the latest texts, up to a number of characters.

    A result depends on its text only, so it needs no revision of a message.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: OrderedDict[str, str] = OrderedDict()
        self.chars = 0

    def redact(self, text: str) -> str:
        """Return a text with each secret replaced by a mark."""
        with self._lock:
            result = self._results.get(text)
            if result is not None:
                self._results.move_to_end(text)
                return result
        result = _redact(text)
        if len(text) <= _MAX_CACHED_TEXT_CHARS:
            self._add(text, result)
        return result

    def _add(self, text: str, result: str) -> None:
        with self._lock:
            if text not in self._results:
                self._results[text] = result
                self.chars += len(text)
            while self.chars > MAX_CACHED_CHARS:
                oldest, _ = self._results.popitem(last=False)
                self.chars -= len(oldest)


LATEST_TEXTS = LatestTexts()


def _redact(text: str) -> str:
    secrets = find_secrets(text)
    if not secrets:
        return text
    pieces, place = list[str](), 0
    for secret in secrets:
        pieces += (text[place : secret.start], f"{MARK}: {secret.kind}]")
        place = secret.stop
    return "".join((*pieces, text[place:]))


_redact_short = lru_cache(maxsize=1024)(_redact)


def redact_cut(text: str) -> str:
    """Return a cut text without secrets and without the beginning of a secret at its end."""
    redacted = redact(text)
    if not redacted.endswith(("…", "...")):
        return redacted
    end = len(redacted) - (1 if redacted.endswith("…") else 3)
    start = _find_unfinished_secret(redacted[:end])
    return redacted if start is None else f"{redacted[:start]}{MARK}]{redacted[end:]}"


# Previews of a list come again with each call, and most of them are cut.
@lru_cache(maxsize=1024)
def _find_unfinished_secret(text: str) -> int | None:
    """Return the position where the beginning of a secret ends a text, or None."""
    begin = max(0, len(text) - _TAIL_CHARS)
    view = NormalizedText(text[begin:])
    view.join_lines()
    pattern = _compiled(_OPEN_PATTERN)
    opened = [pattern.search(text, begin)]
    if view.text != text:
        opened.append(pattern.search(view.text))
    starts = [
        match.start() if number == 0 else begin + view.locate(match.start(), match.end())[0]
        for number, match in enumerate(opened)
        if match
    ]
    return min(starts, default=None)


def skip_redaction(text: str) -> str:
    """Return a text unchanged, for servers without redaction."""
    return text


def find_secret_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of the secrets in a text."""
    return [(secret.start, secret.stop) for secret in find_secrets(text)]


def find_secrets(text: str) -> Sequence[Secret]:
    """Return the secrets in a text in order, without overlaps."""
    return _find_in_long(text) if len(text) > _LONG else _find_uncached(text)


def _find_uncached(text: str) -> list[Secret]:
    secrets: list[Secret] = []
    for _ in range(_MAX_PASSES):
        new_secrets = _search_text(text)
        if not new_secrets:
            break
        secrets = _merge_overlaps([*secrets, *new_secrets])
        text = _blank_secrets(text, secrets)
    return secrets


_find_in_long = lru_cache(maxsize=4)(_find_uncached)


def _search_text(text: str) -> list[Secret]:
    """Return the secrets found in a text and in its normalized views in one pass."""
    hinted = _select_patterns(text)
    secrets = list(_find_matches(hinted)) if hinted else []
    if not (can_view_differ(text) if hinted else is_disguised(text)):
        return secrets
    view = NormalizedText(text)
    if view.text is not text:
        secrets += _search_view(view)
    if view.join_lines():
        # Joining lines may hide a secret at a line end, so both views are searched.
        secrets += _search_view(view)
    return secrets


def _search_view(view: NormalizedText) -> list[Secret]:
    return [
        Secret(*view.locate(secret.start, secret.stop), secret.kind)
        for secret in _find_matches(_select_patterns(view.text))
    ]


def _find_matches(hinted: Mapping[str, tuple[str, str]]) -> Iterator[Secret]:
    for pattern, (kind, text) in hinted.items():
        compiled = _compiled(pattern)
        value = compiled.groupindex.get("value", 0)
        for match in compiled.finditer(text):
            start, stop = match.span(value)
            if stop > start:
                yield Secret(start, stop, kind)


def _select_patterns(text: str) -> dict[str, tuple[str, str]]:
    """Return the patterns that may match a text, each with kind and text to search."""
    hinted: dict[str, tuple[str, str]] = {}
    for sign, gate, prefixes in _GATES:
        if sign in text and gate.search(text):
            for prefix in prefixes:
                if prefix.text in text:
                    hinted[_build_token_pattern(prefix)] = prefix.kind, text
    for common, shapes in _EXACT:
        if common in text:
            _add_patterns(hinted, shapes, text)
    folded = _fold_case(text)
    for common, shapes in _FOLDED_ASCII if text.isascii() else _FOLDED:
        if common in folded:
            _add_patterns(hinted, shapes, folded)
    return hinted


def _add_patterns(
    hinted: dict[str, tuple[str, str]], shapes: Iterable[tuple[str, SecretShape]], text: str
) -> None:
    for hint, shape in shapes:
        if hint in text and not (shape.gate and not _compiled(shape.gate).search(text)):
            hinted[shape.pattern] = shape.kind, text


def _fold_case(text: str) -> str:
    """Return a text in lower case with the same positions."""
    folded = text.lower()
    if len(folded) == len(text):
        return folded
    return "".join(small if len(small := sign.lower()) == 1 else sign for sign in text)


def _merge_overlaps(secrets: list[Secret]) -> list[Secret]:
    """Return secrets in order, with overlapping secrets merged."""
    merged: list[Secret] = []
    for secret in sorted(secrets, key=lambda secret: (secret.start, -secret.stop)):
        if merged and secret.start < merged[-1].stop:
            if secret.stop > merged[-1].stop:
                merged[-1] = merged[-1]._replace(stop=secret.stop)
        else:
            merged.append(secret)
    return merged


def _blank_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """Return a text of the same length with the secrets replaced by brackets."""
    pieces, place = list[str](), 0
    for secret in secrets:
        pieces += (text[place : secret.start], "[", "]" * (secret.stop - secret.start - 1))
        place = secret.stop
    return "".join((*pieces, text[place:]))


# Characters between a secret and its name.
_SEPARATORS = re.compile(r"[\s=:@\"'`\\/]+")

# The shortest beginning of a secret that is removed.
_MIN_PART_CHARS = 8


def clean_text(text: str, passed: Any = None) -> str:
    """Return a text without terminal escapes and secrets.

    `passed` holds the arguments of the caller. An error may quote a secret of them cut short, which
    no pattern recognises any more: beginnings of these secrets are removed too.
    """
    cleaned = redact(to_plain_text(text))
    for secret in _list_secrets(passed):
        start = cleaned.find(secret[:_MIN_PART_CHARS])
        while start >= 0:
            pairs = zip(cleaned[start:], secret, strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            cleaned = f"{cleaned[:start]}{MARK}]{cleaned[start + length :]}"
            start = cleaned.find(secret[:_MIN_PART_CHARS], start + len(MARK) + 1)
    return cleaned


def clean_value(value: Any, passed: Any = None) -> Any:
    """Return a JSON value with all its texts cleaned."""
    if isinstance(value, str):
        return clean_text(value, passed)
    if isinstance(value, Mapping):
        return {clean_text(key, passed): clean_value(item, passed) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, passed) for item in value]
    return value


def _list_secrets(passed: Any) -> Iterator[str]:
    """Yield the secrets in arguments and their parts, as an error may quote them."""
    for text in {form for value in _list_texts(passed) for form in _list_forms(value)}:
        for start, stop in find_secret_spans(text):
            parts = _SEPARATORS.split(text[start:stop])
            if stop - start >= _MIN_PART_CHARS:
                yield text[start:stop]
            for part in parts:
                if len(part) >= _MIN_PART_CHARS and (
                    part is parts[-1] or any(map(str.isdigit, part))
                ):
                    yield part


def _list_forms(text: str) -> Iterator[str]:
    yield from (text, to_plain_text(text), to_plain_line(text))
    if not (text.isascii() and text.isprintable() and "\\" not in text):
        yield from (repr(text)[1:-1], json.dumps(text)[1:-1])


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _list_texts(key)
            yield from _list_texts(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _list_texts(item)

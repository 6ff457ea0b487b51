"""Addresses, paths, identifiers, numbers and shell commands, found by their form.

A command follows a prompt, is a code span, or begins with a known program.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

from session_core.compression.extractive import keywords, tokenize
from session_core.compression.extractive import patterns as p

NameKind = Literal["path", "url", "identifier", "number"]
FoundName = tuple[NameKind, int, int]

_TRAILING_SIGNS = ".,;:!?*~'\"”\u2019)]}"
_BRACKET_PAIRS = {")": "(", "]": "[", "}": "{"}
_MAX_NAME_CHARS = 200
_MIN_NUMBER_DIGITS = 6
_MIN_MIXED_CHARS = 4
_MIN_PLAIN_CHARS = 2
_NAME_SIGNS = "_=@$"


def find_names(line: str, start: int = 0) -> Iterator[FoundName]:
    """Yield the kind, start and end of each name after `start`."""
    taken = bytearray(len(line))
    for name in chain(_find_settings(line, start), _find_urls_and_paths(line, start)):
        _mark_taken(taken, name)
        yield name
    for match in p.TOKEN.finditer(line, start):
        first, last = match.span()
        token = match.group()
        if last - first < _MIN_PLAIN_CHARS or (
            any(taken[first:last]) and (taken[first] or "=" not in token)
        ):
            continue
        if token.isalpha() and (token[1:].islower() or token.isupper()):
            continue
        found_name = _classify_token(token, first)
        if found_name:
            _mark_taken(taken, found_name)
            yield found_name
    yield from _find_numbers(line, start, taken)


def _find_settings(line: str, start: int) -> Iterator[FoundName]:
    """Yield constants with their values, and network addresses in brackets."""
    if "_" in line or "=" in line:
        for match in p.SETTING.finditer(line, start):
            yield "number", match.start(), match.end()
    if "]:" in line:
        for match in p.BRACKETED_ADDRESS.finditer(line, start):
            yield "identifier", match.start(), match.end()


def _find_urls_and_paths(line: str, start: int) -> Iterator[FoundName]:
    """Yield names that may contain spaces or the characters that end a token."""
    if "://" in line or "www." in line or "mailto:" in line:
        for match in p.URL.finditer(line, start):
            yield "url", match.start(), match.start() + len(trim_name(match.group()))
    if "\\" in line:
        for match in p.WINDOWS_PATH.finditer(line, start):
            yield "path", match.start(), match.start() + len(trim_name(match.group()))
    if "/" in line or "\\" in line:
        for match in p.QUOTED_PATH.finditer(line, start):
            if " " in match.group(2):
                yield "path", match.start(2), match.end(2)
        if not line.isascii():
            yield from _find_wide_paths(line, start)


def _find_wide_paths(line: str, start: int) -> Iterator[FoundName]:
    """Yield paths with a folder or file name in a script without spaces."""
    for match in p.WIDE_PATH.finditer(line, start):
        text = match.group()
        tail = p.WIDE_TAIL.search(text)
        text = text[: tail.end()] if tail else text
        name = text.rpartition("/")[2]
        wide = p.SPACELESS_SIGN.search(name)
        if wide and not tail and "." not in name:
            text = text[: len(text) - len(name) + wide.start()]
        if p.SPACELESS_SIGN.search(text):
            yield "path", match.start(), match.start() + len(trim_name(text))


def trim_name(text: str) -> str:
    """Return a name without trailing punctuation. A closing bracket with its pair stays."""
    while text and text[-1] in _TRAILING_SIGNS:
        pair = _BRACKET_PAIRS.get(text[-1])
        if pair and text.count(pair) >= text.count(text[-1]):
            return text
        text = text[:-1]
    return text


def _mark_taken(taken: bytearray, name: FoundName) -> None:
    _, first, last = name
    taken[first:last] = b"\1" * (last - first)


def _classify_token(token: str, first: int) -> FoundName | None:
    bare = token.lstrip("*+!?:,'\"")
    first += len(token) - len(bare)
    bare = trim_name(bare)
    if not _MIN_PLAIN_CHARS <= len(bare) <= _MAX_NAME_CHARS:
        return None
    if "=" in bare[1:-1] and not bare.startswith("-"):
        return "identifier", first, first + len(bare)
    if is_path(bare):
        return "path", first, first + len(bare)
    if _is_identifier(bare):
        return "identifier", first, first + len(bare)
    return None


def is_path(token: str) -> bool:
    """Return whether a token has the form of a file or folder."""
    if "/" not in token and "\\" not in token:
        return p.FILE_NAME.fullmatch(token) is not None
    if not any(map(str.isalpha, token)) or "//" in token:
        return False
    if p.ROOTED_PATH.match(token):
        return len(token) > _MIN_PLAIN_CHARS
    parts = [part for part in token.replace("\\", "/").split("/") if part]
    if p.FILE_NAME.fullmatch(parts[-1]) or token.endswith("/"):
        return True
    return len(parts) > 2 and all(len(part) > 1 for part in parts)  # noqa: PLR2004 -- excludes `and/or`


def _is_identifier(token: str) -> bool:
    if token.isalpha():
        return not token.istitle() and _has_camel_case(token)
    digit = any(map(str.isdigit, token))
    letter = any(map(str.isalpha, token))
    if digit and letter:
        return len(token) >= _MIN_MIXED_CHARS and not p.NUMBER.fullmatch(token)
    if digit:
        return _is_code_name(token)
    return letter and _is_compound_name(token)


def _has_camel_case(token: str) -> bool:
    """Return whether a lower-case letter is followed by a capital, as in names in code."""
    return p.CAMEL_CASE.search(token) is not None


def _is_code_name(token: str) -> bool:
    if token[0] == "#" and token[1:].isdigit():
        return True
    return (token.isdigit() and len(token) >= _MIN_NUMBER_DIGITS) or token.count(".") > 1


def _is_compound_name(token: str) -> bool:
    inner = token.strip("_-.:/")
    if token[:2] == "--" or any(sign in inner for sign in _NAME_SIGNS) or "::" in inner:
        return len(inner) > 1
    if token[:2] == "__" or inner.count("-") > 1 or p.SLASHED_NAME.fullmatch(token):
        return True
    left, dot, right = inner.partition(".")
    return bool(dot) and min(len(left), len(right)) > 1 and not right[:1].isupper()


def _find_numbers(line: str, start: int, taken: bytearray) -> Iterator[FoundName]:
    for match in p.NUMBER.finditer(line, start):
        first, last = match.span()
        if ":" in match.group():  # a time, which counts nothing
            last = first + len(match.group().partition(" ")[0])
        if not taken[first] and (last - first > 1 or _is_setting_value(line, first)):
            yield "number", first, last


def _is_setting_value(line: str, first: int) -> bool:
    """Return whether the words before a single digit make it a value."""
    before = line[max(0, first - 12) : first]
    return not before[-2:-1].isdigit() and p.VALUE_PREFIX.search(before) is not None


Span = tuple[int, int]

PROGRAMS = frozenset(keywords.PROGRAMS.split())
"""Programs whose name is not an ordinary word."""

WORDLIKE_PROGRAMS = frozenset(keywords.WORDLIKE_PROGRAMS.split())
"""Programs whose name is an ordinary word, which are commands only next to a sign of a shell."""

_MAX_COMMAND_CHARS = 500


def find_commands(line: str, *, in_shell: bool = False) -> Iterator[Span]:
    """Yield the start and end of each command. In a shell block each line is a command."""
    prompt = p.PROMPT.match(line)
    if prompt:
        yield _limit_span(line, prompt.start(1), len(line))
    elif in_shell:
        if line.strip() and line.strip()[0] != "#":
            yield _limit_span(line, len(line) - len(line.lstrip()), len(line))
    elif is_command(line):
        yield _limit_span(line, _find_command_start(line), len(line))
    else:
        yield from _find_prose_commands(line)


def is_command(text: str) -> bool:
    """Return whether a text is a command: a program and its arguments."""
    start = p.COMMAND_START.match(text + " ")
    if not start:
        return False
    program = start.group(1).rpartition("/")[2]
    rest = text[start.end(1) :]
    if program in PROGRAMS:
        return _is_argument_list(rest)
    shell_like = program in WORDLIKE_PROGRAMS or start.group(1).startswith("./")
    return shell_like and p.SHELL_SIGN.search(rest) is not None


def _is_argument_list(rest: str) -> bool:
    """Return whether the text after a program is not an ordinary sentence."""
    words = rest.split()
    if not words or p.SHELL_SIGN.search(rest):
        return bool(words)
    return len(words) <= 3 and words[0].isascii() and words[0].islower()  # noqa: PLR2004 -- `git log`


def _find_command_start(line: str) -> int:
    start = p.COMMAND_START.match(line + " ")
    return (
        start.start(1)
        if start and "=" not in line[: start.start(1)]
        else len(line) - len(line.lstrip(" -*+`"))
    )


def _find_prose_commands(line: str) -> Iterator[Span]:
    spans = [
        match.span(1)
        for match in (p.CODE_SPAN.finditer(line) if "`" in line else ())
        if is_command(match.group(1)) or _is_run_instruction(line, match.start())
    ]
    yield from spans
    programs = PROGRAMS.intersection(line.split())
    for first, last in (
        _find_program_commands(line, programs) if programs else _find_instructed_commands(line)
    ):
        if not any(begin < last and first < end for begin, end in spans):
            yield first, last


def _is_run_instruction(line: str, at: int) -> bool:
    """Return whether the words before a code span instruct the reader to run it."""
    before = line[max(0, at - 24) : at]
    return any(match.end() >= len(before) - 1 for match in p.RUN_INSTRUCTION.finditer(before))


def _find_program_commands(line: str, programs: frozenset[str]) -> Iterator[Span]:
    for first, last in tokenize.find_sentence_spans(line):
        sentence = line[first:last]
        places = [at for program in programs if (at := _find_program(sentence, program)) >= 0]
        if places and is_command(sentence[min(places) :]):
            yield _limit_span(line, first + min(places), last)


def _find_program(sentence: str, program: str) -> int:
    at = f" {sentence} ".find(f" {program} ")
    return at if at >= 0 else -1


def _find_instructed_commands(line: str) -> Iterator[Span]:
    for match in p.RUN_INSTRUCTION.finditer(line):
        rest = line[match.end() :]
        if match.group() and is_command(rest):
            end = tokenize.find_sentence_spans(rest)[0][1]
            yield _limit_span(line, match.end(), match.end() + end)
            return


def _limit_span(line: str, first: int, last: int) -> Span:
    text = line[first:last].rstrip().rstrip("`").rstrip()
    if len(text) > _MAX_COMMAND_CHARS:
        text = text[:_MAX_COMMAND_CHARS].rsplit(None, 1)[0]
    elif text[-1:] in ".。" and text[-2:-1].isalnum():
        text = text[:-1]
    return first, first + len(text)

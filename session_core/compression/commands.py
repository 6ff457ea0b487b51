"""Shell commands in one piece of a line: behind a prompt, in a code span, or by their program."""

from __future__ import annotations

from collections.abc import Iterator

from session_core.compression import cues, sentences
from session_core.compression import patterns as p

Span = tuple[int, int]

PROGRAMS = frozenset(cues.PROGRAMS.split())
"""Programs whose name is no ordinary word."""

WORDLIKE_PROGRAMS = frozenset(cues.WORDLIKE_PROGRAMS.split())
"""Programs whose name is one: a command only beside a sign of a shell."""

_COMMAND_MAX = 500


def find(line: str, *, in_shell: bool = False) -> Iterator[Span]:
    """Yield the beginning and the end of each command; in a block of a shell a line is one."""
    prompt = p.PROMPT.match(line)
    if prompt:
        yield _bounded(line, prompt.start(1), len(line))
    elif in_shell:
        if line.strip() and line.strip()[0] != "#":
            yield _bounded(line, len(line) - len(line.lstrip()), len(line))
    elif is_command(line):
        yield _bounded(line, _begin(line), len(line))
    else:
        yield from _in_prose(line)


def is_command(text: str) -> bool:
    """Whether a text is a command as it stands: a program, and what one is given."""
    start = p.COMMAND_START.match(text + " ")
    if not start:
        return False
    program = start.group(1).rpartition("/")[2]
    rest = text[start.end(1) :]
    if program in PROGRAMS:
        return _is_given(rest)
    shell_like = program in WORDLIKE_PROGRAMS or start.group(1).startswith("./")
    return shell_like and p.SHELL_SIGN.search(rest) is not None


def _is_given(rest: str) -> bool:
    """Whether what is behind a program is no ordinary sentence about it."""
    words = rest.split()
    if not words or p.SHELL_SIGN.search(rest):
        return bool(words)
    return len(words) <= 3 and words[0].isascii() and words[0].islower()  # noqa: PLR2004 -- `git log`


def _begin(line: str) -> int:
    start = p.COMMAND_START.match(line + " ")
    return (
        start.start(1)
        if start and "=" not in line[: start.start(1)]
        else len(line) - len(line.lstrip(" -*+`"))
    )


def _in_prose(line: str) -> Iterator[Span]:
    spans = [
        match.span(1)
        for match in (p.CODE_SPAN.finditer(line) if "`" in line else ())
        if is_command(match.group(1)) or _is_told(line, match.start())
    ]
    yield from spans
    programs = PROGRAMS.intersection(line.split())
    for first, last in _by_program(line, programs) if programs else _by_order(line):
        if not any(begin < last and first < end for begin, end in spans):
            yield first, last


def _is_told(line: str, at: int) -> bool:
    """Whether the words before a code span say that it is to be run."""
    before = line[max(0, at - 24) : at]
    return any(match.end() >= len(before) - 1 for match in p.TOLD_TO.finditer(before))


def _by_program(line: str, programs: frozenset[str]) -> Iterator[Span]:
    for first, last in sentences.spans(line):
        sentence = line[first:last]
        places = [at for program in programs if (at := _place(sentence, program)) >= 0]
        if places and is_command(sentence[min(places) :]):
            yield _bounded(line, first + min(places), last)


def _place(sentence: str, program: str) -> int:
    at = f" {sentence} ".find(f" {program} ")
    return at if at >= 0 else -1


def _by_order(line: str) -> Iterator[Span]:
    for match in p.TOLD_TO.finditer(line):
        rest = line[match.end() :]
        if match.group() and is_command(rest):
            end = sentences.spans(rest)[0][1]
            yield _bounded(line, match.end(), match.end() + end)
            return


def _bounded(line: str, first: int, last: int) -> Span:
    text = line[first:last].rstrip().rstrip("`").rstrip()
    if len(text) > _COMMAND_MAX:
        text = text[:_COMMAND_MAX].rsplit(None, 1)[0]
    elif text[-1:] in ".。" and text[-2:-1].isalnum():
        text = text[:-1]
    return first, first + len(text)

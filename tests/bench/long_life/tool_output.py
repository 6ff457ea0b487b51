"""Tool calls whose results are worth nothing later: listings, logs, diffs, tests, traces, pages.

Some lines look like decisions, tasks or errors on purpose, as they do in real output.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

Call = tuple[str, str, str]
"""Name of the tool, arguments as JSON, result."""

_LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN", "ERROR")
_EVENTS = (
    "worker {n} picked up job {hex}",
    "cache miss for key {word}:{hex}",
    "retrying in {n} ms (attempt 2 of 5)",
    "TODO: remove this shim once everybody has upgraded",
    "connection from client {hex} closed after {n} requests",
    "decided to keep {n} idle handles",
    "slow call: {word}.load took {n} ms",
    "health check ok",
    "error: {word} returned an empty body, using the default",
    "rotated {word}.log, kept {n} files",
    "configuration reloaded, nothing changed",
    "fixed up {n} dangling references",
)
_WARNINGS = (
    "DeprecationWarning: {word}.get_all() is deprecated and will be removed in a later version",
    "FutureWarning: the default of `{word}` will change, pass it explicitly to silence this",
    "UserWarning: {word} is experimental, never use it in production",
    "ResourceWarning: unclosed file <_io.TextIOWrapper name='{hex}.tmp'>",
)
_CODE = (
    "value = self.{word}.get(key)",
    "if value is None:",
    "    raise LookupError(key)",
    "for entry in entries:",
    "    total += entry.weight * {n}",
    "# must not be called twice, see the comment above",
    "return Result(total, entries)",
    "log.debug('%s: %d entries', name, len(entries))",
    "with self.lock:",
    "    self.{word} = dict(sorted(value.items()))",
    "assert total >= 0, 'negative total'",
    "# FIXME: slow for large inputs",
)
_PROSE = (
    "This page explains how {word} is set up in a typical installation.",
    "We recommend to read the chapter about {word} before you change anything.",
    "Important: always make a copy before you upgrade.",
    "The committee decided to move the chapter to the appendix of the second edition.",
    "Users report that {word} and {word2} can be combined without problems.",
    "In most cases the defaults are a good choice, and nothing has to be done.",
    "Posted by a visitor: thanks, this solved it for me after hours of searching!",
    "The next meeting of the user group has not been scheduled yet.",
    "Cookies help us to deliver our services. Accept all or choose what you want.",
    "See also: {word}, {word2}, frequently asked questions, contact, imprint.",
    "If the error persists, turn it off and on again, then call the support line.",
    "Our readers voted this guide to {word} among the ten best of the year.",
)


class ToolOutput:
    """A source of tool calls that read and change nothing of note."""

    def __init__(
        self, rng: random.Random, words: list[str], files: list[str], *, is_office: bool
    ) -> None:
        self._random = rng
        self._words = words
        self._files = files
        self._contents = _PROSE if is_office else _CODE
        office: tuple[Callable[[], Call], ...] = (
            self._make_listing,
            self._make_source,
            self._make_matches,
            self._make_page,
            self._make_rows,
        )
        engineering: tuple[Callable[[], Call], ...] = (
            self._make_log,
            self._make_diff,
            self._make_tests,
            self._make_trace,
            self._make_history,
            self._make_table,
        )
        self._makers = office if is_office else office + engineering

    def make_call(self) -> Call:
        """Return one call with its result."""
        return self._random.choice(self._makers)()

    def _make_listing(self) -> Call:
        lines = [
            f"-rw-r--r-- 1 app app {self._number(7):>9} {self._day()} {self._word()}_{self._hex()}"
            for _ in range(self._random.randint(6, 24))
        ]
        return self._terminal(f"ls -la {self._folder()}", [f"total {self._number(5)}", *lines])

    def _make_log(self) -> Call:
        lines = [
            f"{self._time()} {self._random.choice(_LEVELS)} [{self._word()}] {self._fill(_EVENTS)}"
            for _ in range(self._random.randint(8, 26))
        ]
        return self._terminal(f"tail -n {len(lines)} {self._word()}.log", lines)

    def _make_diff(self) -> Call:
        path = self._file()
        lines = [f"diff --git a/{path} b/{path}", f"index {self._hex()}..{self._hex()} 100644"]
        for _ in range(self._random.randint(1, 3)):
            lines.append(
                f"@@ -{self._number(3)},7 +{self._number(3)},8 @@ def {self._word()}(self):"
            )
            lines += [
                f"{self._random.choice('  +-')}    {self._fill(_CODE)}"
                for _ in range(self._random.randint(6, 12))
            ]
        return self._terminal(f"git diff HEAD~1 -- {path}", lines)

    def _make_tests(self) -> Call:
        count = self._random.randint(6, 18)
        lines = [
            f"tests/test_{self._word()}.py::test_{self._word()}_{self._hex()[:3]} PASSED [{share}%]"
            for share in (100 * (index + 1) // count for index in range(count))
        ]
        lines += [f"  {self._fill(_WARNINGS)}" for _ in range(self._random.randint(1, 3))]
        lines.append(f"===== {self._number(3)} passed, 2 warnings in {self._number(2)}.4s =====")
        return self._terminal(f"run-tests {self._word()} -v", lines)

    def _make_trace(self) -> Call:
        lines = ["Traceback (most recent call last):"]
        for _ in range(self._random.randint(3, 8)):
            lines.append(f'  File "{self._file()}", line {self._number(3)}, in {self._word()}')
            lines.append(f"    {self._fill(_CODE).strip()}")
        lines.append(f"LookupError: '{self._hex()}' (handled, falling back to the default)")
        return self._terminal(f"replay --job {self._hex()}", lines)

    def _make_history(self) -> Call:
        subjects = ("Update", "Fix", "Remove", "Refactor", "Revert", "Document")
        lines = [
            f"{self._hex()} {self._random.choice(subjects)} {self._word()} of {self._word()}"
            for _ in range(self._random.randint(8, 22))
        ]
        return self._terminal(f"git log --oneline -{len(lines)}", lines)

    def _make_source(self) -> Call:
        path = self._file()
        lines = [
            f"{number:>4}|    {self._fill(self._contents)}"
            for number in range(1, self._random.randint(14, 34))
        ]
        return "read_file", _dump(path=path, limit=len(lines)), "\n".join(lines)

    def _make_matches(self) -> Call:
        word = self._word()
        matches = [
            {"path": self._file(), "line": int(self._number(3)), "text": self._fill(self._contents)}
            for _ in range(self._random.randint(5, 14))
        ]
        result = json.dumps({"matches": matches, "truncated": False}, indent=1)
        return "search_files", _dump(pattern=word), result

    def _make_page(self) -> Call:
        address = f"www.{self._word()}-guide.example/{self._hex()}"
        paragraphs = [
            " ".join(self._fill(_PROSE) for _ in range(self._random.randint(2, 5)))
            for _ in range(self._random.randint(3, 6))
        ]
        return "web_extract", _dump(url=address), "\n\n".join(paragraphs)

    def _make_rows(self) -> Call:
        rows = [
            {"id": self._hex(), "name": self._word(), "updated": self._time(), "ok": True}
            for _ in range(self._random.randint(5, 14))
        ]
        result = json.dumps({"status": "success", "rows": rows}, ensure_ascii=False)
        return "query", _dump(table=self._word(), order="updated"), result

    def _make_table(self) -> Call:
        lines = ["name              state     since       load"]
        lines += [
            f"{self._word()[:14]:<18}running   {self._number(2)} h       0.{self._number(2)}"
            for _ in range(self._random.randint(8, 20))
        ]
        return self._terminal("show-status --all", lines)

    def _terminal(self, command: str, lines: list[str]) -> Call:
        return "terminal", _dump(command=command), "\n".join(lines)

    def _fill(self, texts: tuple[str, ...]) -> str:
        return self._random.choice(texts).format(
            word=self._word(), word2=self._word(), n=self._number(2), hex=self._hex()
        )

    def _word(self) -> str:
        return self._random.choice(self._words)

    def _file(self) -> str:
        return self._random.choice(self._files)

    def _folder(self) -> str:
        return self._file().rpartition("/")[0] or "."

    def _hex(self) -> str:
        return f"{self._random.getrandbits(28):07x}"

    def _number(self, digits: int) -> str:
        return str(self._random.randint(10 ** (digits - 1), 10**digits - 1))

    def _time(self) -> str:
        rng = self._random
        return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"

    def _day(self) -> str:
        return f"{self._random.choice(('Jan', 'Feb', 'Nov'))} {self._random.randint(1, 28):>2}"


def _dump(**arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)

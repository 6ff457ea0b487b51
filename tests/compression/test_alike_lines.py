"""Lines that differ only in a location become one line with their number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from session_core.compression.extractive.alike_lines import collapse_lines
from session_core.compression.extractive.summarize import summarize

_WARNING = "SyntaxWarning: invalid escape sequence in a regular expression"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (
            "src/{n}/rules.py:{n}: {text}",
            f"9 × {_WARNING} (in 9 files)",  # noqa: RUF001
        ),
        ("lib\\forms.cpp({n},4): {text}", f"9 × {_WARNING} (in lib\\forms.cpp)"),  # noqa: RUF001
        ("rules.py:{n}:7: {text}", f"9 × {_WARNING} (in rules.py)"),  # noqa: RUF001
        (
            "{text} at src/part{n}.ts:12:7",
            f"9 × {_WARNING} at \N{HORIZONTAL ELLIPSIS} (in 9 files)",  # noqa: RUF001
        ),
    ],
)
def test_alike_lines_become_one_line(form: str, expected: str) -> None:
    lines = [form.format(n=n, text=_WARNING) for n in range(9)]
    assert list(collapse_lines(["begin", *lines, "end"], ())) == ["begin", expected, "end"]


@pytest.mark.parametrize(
    "lines",
    [
        [f"src/{n}/rules.py:{n}: {_WARNING}" for n in range(4)],
        [f"src/{n}/rules.py" for n in range(9)],
        [f"src/{n}/rules.py:3: error {n} of the parser" for n in range(9)],
        [f"worker {n} picked up a job" for n in range(9)],
    ],
)
def test_other_lines_stay(lines: list[str]) -> None:
    assert list(collapse_lines(lines, ())) == lines


def test_line_of_named_file_stays() -> None:
    lines = [f"src/part{n}.py:{n}: {_WARNING}" for n in range(9)]
    assert lines[3] in list(collapse_lines(lines, {"part3.py"}))


def test_summary_counts_alike_lines() -> None:
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "terminal", "arguments": json.dumps({"command": "pytest -q"})}  # type: ignore[assignment]
    text = "\n".join(f"/srv/shop/part{n}.py:{n}: {_WARNING}" for n in range(60))
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Run the tests before the release.", "id": 1},
        {"role": "assistant", "content": None, "tool_calls": [call], "id": 2},
        {"role": "tool", "tool_call_id": "c1", "content": text, "id": 3},
        {"role": "assistant", "content": "There are warnings about regular expressions.", "id": 4},
    ]
    summary = summarize(messages, 2000)
    assert [line for line in summary.splitlines() if "SyntaxWarning" in line] == [
        f"60 × {_WARNING} (in 60 files) (t)"  # noqa: RUF001
    ]

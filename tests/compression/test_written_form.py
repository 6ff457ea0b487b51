"""The written form of statements: it is read back, and no text can forge it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.compression.extractive import written_form
from session_core.compression.extractive.written_form import HEADINGS, WrittenLine

TEXTS = [
    "We keep the relay.",
    "Decided:",
    "- Decided:",
    "# Goal",
    "9 statements so far",
    "it ends like a mark (u12)",
    "and like a short one (t)",
    "reason: none was given",
]


def write(*lines: WrittenLine) -> str:
    header = written_form.write_header(len(lines), legend=False)
    parts = [header]
    for line in lines:
        assert line.kind
        parts += [written_form.write_heading(line.kind), written_form.write_line(line)]
    return "\n".join(parts)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", HEADINGS)
@pytest.mark.parametrize("number", [None, 4711])
def test_line_is_read_as_written(text, kind, number):
    line = WrittenLine(text, kind, "user", number)
    (found,) = written_form.read_summary(write(line)).lines
    assert (found.text.removeprefix("- "), found.kind) == (text.removeprefix("- "), kind)
    if number and found.author:
        assert (found.author, found.message_id) == ("user", number)


def test_parts_stay_with_their_line():
    parts = [
        WrittenLine("the disk was full", "problem", "assistant", 8, "cause"),
        WrittenLine("I emptied it", "problem", "user", 9, "fix"),
    ]
    line = WrittenLine("The export fails", "problem", "user", 7, parts=parts)
    assert written_form.read_summary(write(line)).lines == [line]


def test_header_counts_statements():
    assert written_form.read_summary("214 statements so far\nGoal:\nA library.").counted == 214
    assert written_form.read_summary("A library, of 214 statements so far").counted == 0


def test_foreign_summary_keeps_its_headings():
    summary = written_form.read_summary(
        "## Next steps\n- paint the door\n\n## Notes\nThe key is red."
    )
    assert [(line.text, line.heading) for line in summary.lines] == [
        ("paint the door", "Next steps"),
        ("The key is red.", "Notes"),
    ]


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
def test_written_form_is_stable(texts):
    lines = [WrittenLine(text, "decision", "user", 5) for text in texts]
    once = write(*lines)
    assert write(*written_form.read_summary(once).lines) == once

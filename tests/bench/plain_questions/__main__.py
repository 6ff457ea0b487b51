"""Measure both sets of questions: `python -m tests.bench.plain_questions [--messages N]`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from mcp_serve.stores.stores import ServedStores, ServerOptions
from session_core import _sqlite3
from tests.bench.plain_questions import measure, trees
from tests.bench.plain_questions.questions import (
    PlainQuestion,
    load_questions,
    make_conversations,
)
from tests.bench.questions import SCATTERED_COUNT, make_questions
from tests.bench.shapes import SEED


def measure_set(folder: Path, name: str, messages: int) -> measure.AnswerCounts:
    """Return the counts of one set over about so many messages.

    `folder` is the home folder of the user.
    """
    questions = _load_single_messages() if name == "single" else load_questions(name)
    conversations = make_conversations(questions, messages)
    store = trees.store_as_transcripts if name == "agents" else trees.store_in_home
    ids = store(folder, conversations)
    sessions = {
        item.question: ids[at] for at, item in enumerate(conversations) if item.question is not None
    }
    is_home = store is trees.store_in_home
    served = ServedStores(ServerOptions(home=str(folder) if is_home else None))
    try:
        return measure.ask_questions(served, questions, sessions)
    finally:
        served.close()


def _load_single_messages() -> list[PlainQuestion]:
    """Return the questions of the bench, each answered by one message."""
    return [
        PlainQuestion(
            item.text,
            item.answer[:60],
            turns=[("assistant", item.answer)],
            decoys=list(item.decoys[: -SCATTERED_COUNT - 1]),
        )
        for item in make_questions(SEED)
    ]


def main() -> None:
    """Print the counts of all sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--set", action="append", choices=("home", "agents", "single"))
    options = parser.parse_args()
    _sqlite3.choose_sqlite("standard")
    for name in options.set or ("home", "agents", "single"):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HOME"] = folder
            counts = measure_set(Path(folder), name, options.messages)
        print(name, *counts.render_lines(), sep="\n", flush=True)


if __name__ == "__main__":
    main()

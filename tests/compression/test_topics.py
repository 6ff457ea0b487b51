"""The weights of words are the same in each process."""

from __future__ import annotations

import os
import subprocess
import sys

ALIKE_TICKETS = """
from session_core.compression.extractive.summarize import summarize

texts = [f"ticket ABC-{n}: we decided to use port {8000 + n}. " + "well, " * 200 for n in range(50)]
messages = [{"role": "user", "content": text, "id": at} for at, text in enumerate(texts, 1)]
print(summarize(messages, 8000))
"""


def test_summary_is_the_same_in_each_process() -> None:
    """The order of a set of words depends on the seed of the process."""
    summaries = {
        subprocess.run(
            [sys.executable, "-c", ALIKE_TICKETS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    (summary,) = summaries
    assert summary.count("we decided to use port") > 5

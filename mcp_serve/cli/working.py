"""The work of a verb that changes something, as a tool has it of a client: `mcp_serve.work`.

The first Ctrl-C ends it between two steps, where the store is whole and the same plan goes on; the
next one interrupts the step, which whoever comes next takes up.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from mcp_serve.cli.progress import Bar
from mcp_serve.homes import CLIENT

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Self

_ENDING = "Ending behind this step"


class Working:
    """Entered for as long as something is changed; `words` say what, beside the bar."""

    client = f"{CLIENT} (terminal)"
    """How the log names who has changed something: no client of the server is named so."""

    def __init__(self, words: str) -> None:
        self._bar = Bar(words)
        self._cancelled = threading.Event()
        self._before: signal._HANDLER = signal.default_int_handler

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._cancel)
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()
        signal.signal(signal.SIGINT, self._before)

    def tell(self, done: int, total: int) -> None:
        """Say how far it is."""
        self._bar.tell(done, total)

    def is_cancelled(self) -> bool:
        """Whether it is to end."""
        return self._cancelled.is_set()

    def _cancel(self, _number: int, _frame: FrameType | None) -> None:
        self._cancelled.set()
        self._bar.words = _ENDING
        signal.signal(signal.SIGINT, self._before)

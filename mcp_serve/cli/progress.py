"""How far something is, for a person who waits: a bar with the time left, from a second on.

It goes to standard error, only where that is a terminal, and is gone when the work is done.

The work of a verb that changes something, as a tool has it of a client: `mcp_serve.progress`.

The first Ctrl-C ends it between two steps, where the store is whole and the same plan goes on; the
next one interrupts the step, which whoever comes next takes up.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mcp_serve.cli.output import clean_text
from mcp_serve.homes import CLIENT_NAME

if TYPE_CHECKING:
    from types import FrameType

    from rich.progress import Progress, Task, TaskID
    from typing_extensions import Self


_DELAY_S = 1.0


class ProgressBar:
    """Shown for as long as this is entered, once that was long."""

    def __init__(self, words: str, *, after_s: float = _DELAY_S) -> None:
        self.words = words
        self._lock = threading.Lock()
        self._timer = threading.Timer(after_s, self._start_display)
        self._timer.daemon = True
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._at: tuple[int, int] | None = None
        self._over = False

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._progress is not None:
                self._progress.stop()

    def report_progress(self, done: int, total: int) -> None:
        """Say how far it is."""
        with self._lock:
            self._at = done, total
            self._update_task()

    def _update_task(self) -> None:
        if self._progress is not None and self._task is not None and self._at is not None:
            done, total = self._at
            # Of one thing nobody knows how far it is before it is done.
            self._progress.update(self._task, completed=done, total=total if total > 1 else None)

    def _start_display(self) -> None:
        from rich.progress import (  # noqa: PLC0415 -- most work is over before it is shown
            BarColumn,
            Progress,
            ProgressColumn,
            TimeRemainingColumn,
        )

        class Words(ProgressColumn):
            """What is done just now: it is asked anew each time."""

            def render(_, task: Task) -> Text:  # noqa: N805 -- the bar is the one around it
                del task
                return Text(clean_text(self.words))

        class Count(ProgressColumn):
            """How much is done, where that is known."""

            def render(self, task: Task) -> Text:
                return Text(
                    "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f}"
                )

        with self._lock:
            if self._over:
                return
            columns = Words(), BarColumn(20), Count(), TimeRemainingColumn()
            console = Console(file=sys.stderr)
            self._progress = Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task("", total=None)
            self._update_task()
            self._progress.start()


_ENDING_LABEL = "Stopping after this step"


class TerminalProgress:
    """Entered for as long as something is changed; `words` say what, beside the bar."""

    client = f"{CLIENT_NAME} (terminal)"
    """How the log names who has changed something: no client of the server is named so."""

    def __init__(self, words: str) -> None:
        self._bar = ProgressBar(words)
        self._cancelled = threading.Event()
        self._before: signal._HANDLER = signal.default_int_handler

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._cancel)
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()
        signal.signal(signal.SIGINT, self._before)

    def report_progress(self, done: int, total: int) -> None:
        """Say how far it is."""
        self._bar.report_progress(done, total)

    def is_cancelled(self) -> bool:
        """Whether it is to end."""
        return self._cancelled.is_set()

    def _cancel(self, _number: int, _frame: FrameType | None) -> None:
        self._cancelled.set()
        self._bar.words = _ENDING_LABEL
        signal.signal(signal.SIGINT, self._before)

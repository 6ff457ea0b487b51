"""A progress bar on standard error, and cancellation by Ctrl-C.

The first Ctrl-C stops after the current step, where the home is consistent and the plan can be
continued. The second one interrupts the step; the next run completes or undoes it.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mcp_serve.cli.output import clean_text
from mcp_serve.progress import CLIENT_NAME

if TYPE_CHECKING:
    from types import FrameType

    from rich.progress import Progress, Task, TaskID
    from typing_extensions import Self


_DELAY_S = 1.0


class ProgressBar:
    """A progress bar that appears after a delay, only on a terminal."""

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
        """Report progress."""
        with self._lock:
            self._at = done, total
            self._update_task()

    def _update_task(self) -> None:
        if self._progress is not None and self._task is not None and self._at is not None:
            done, total = self._at
            # The progress of a single item is not known before it is done.
            self._progress.update(self._task, completed=done, total=total if total > 1 else None)

    def _start_display(self) -> None:
        from rich.progress import (  # noqa: PLC0415 -- most work ends before the bar is shown
            BarColumn,
            Progress,
            ProgressColumn,
            TimeRemainingColumn,
        )

        class Words(ProgressColumn):
            """The current label, read at each refresh."""

            def render(_, task: Task) -> Text:  # noqa: N805 -- `self` is the enclosing bar
                del task
                return Text(clean_text(self.words))

        class Count(ProgressColumn):
            """The completed count, and the total count if it is known."""

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
    """Progress and cancellation of a changing tool, labelled with `words`."""

    client = f"{CLIENT_NAME} (terminal)"
    """The client name in the audit log; no client of the server has it."""

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
        """Report progress."""
        self._bar.report_progress(done, total)

    def is_cancelled(self) -> bool:
        """Return True after the first Ctrl-C."""
        return self._cancelled.is_set()

    def _cancel(self, _number: int, _frame: FrameType | None) -> None:
        self._cancelled.set()
        self._bar.words = _ENDING_LABEL
        signal.signal(signal.SIGINT, self._before)

"""How far something is, for a person who waits: a bar with the time left, from a second on.

It goes to standard error, only where that is a terminal, and is gone when the work is done.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mcp_serve.cli.output import clean

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID
    from typing_extensions import Self

_AFTER_S = 1.0


class Bar:
    """Shown for as long as this is entered, once that was long."""

    def __init__(self, words: str, *, after_s: float = _AFTER_S) -> None:
        self.words = words
        self._lock = threading.Lock()
        self._timer = threading.Timer(after_s, self._show)
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

    def tell(self, done: int, total: int) -> None:
        """Say how far it is."""
        with self._lock:
            self._at = done, total
            self._update()

    def _update(self) -> None:
        if self._progress is not None and self._task is not None and self._at is not None:
            done, total = self._at
            # Of one thing nobody knows how far it is before it is done.
            self._progress.update(self._task, completed=done, total=total if total > 1 else None)

    def _show(self) -> None:
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
                return Text(clean(self.words))

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
            self._update()
            self._progress.start()

"""A program whose main thread is interrupted again and again while it and other threads write.

It prints a mapping: the acknowledged and the stored messages, the results of other threads, the
number of interrupts, and the result of a write afterwards.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from session_core import SessionDB

_STORM_S = 3.0
_MAX_WAIT_S = 0.003
_JOIN_S = 20.0


class StormTimeout(Exception):
    """Raised by a handler to end a step that takes too long."""


class InterruptStorm:
    """Some threads that append, and the main one, which a signal stops over and over."""

    def __init__(self, path: Path, threads: int) -> None:
        self.db = SessionDB(path, patience_s=5.0)
        self.acknowledged: list[str] = []
        self.told: list[str] = []
        self.interrupts = 0
        self.over = threading.Event()
        self.threads = [
            threading.Thread(target=self._append_in_loop, args=(f"{number}.",), daemon=True)
            for number in range(threads)
        ]

    def run(self) -> dict[str, Any]:
        """Write under interrupts, stop them, and return the results."""
        self.db.create_session("chat", "cli")
        for thread in self.threads:
            thread.start()
        self._write_under_interrupts()
        self.over.set()
        for thread in self.threads:
            thread.join(_JOIN_S)
        after = [self._write_in_thread(), self._write("main")]
        stored = Counter(row["content"] for row in self.db.get_messages("chat"))
        row = self.db.get_session("chat") or {}
        with SessionDB(self.db.path, patience_s=0.0) as other:
            other.append_message("chat", "user", "other")
        return {
            "interrupts": self.interrupts,
            "acknowledged": len(self.acknowledged),
            "lost": sorted(set(self.acknowledged) - set(stored))[:5],
            "doubled": [text for text, count in stored.items() if count > 1][:5],
            "torn": [a for a in stored if a.startswith("a") and "b" + a[1:] not in stored][:5],
            "miscounted": row.get("message_count") != stored.total(),
            "told": self.told[:5],
            "hanging": sum(thread.is_alive() for thread in self.threads),
            "after": after,
        }

    def _append_in_loop(self, tag: str) -> None:
        numbers = itertools.count()
        while not self.over.is_set():
            text = f"{tag}{next(numbers)}"
            try:
                self.db.append_message("chat", "user", text)
            except BaseException as error:  # noqa: BLE001 -- any error counts, and the test reports it
                self.told.append(f"{type(error).__name__}: {error}")
            else:
                self.acknowledged.append(text)

    def _write_under_interrupts(self) -> None:
        until = time.monotonic() + _STORM_S
        signal.signal(signal.SIGALRM, _raise_interrupt)
        numbers = itertools.count()
        while time.monotonic() < until:
            try:
                # The timer is set again, because an error raised in a finalizer is lost.
                while time.monotonic() < until:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, _MAX_WAIT_S))
                    for _ in range(20):
                        self._write_change(str(next(numbers)))
            except (KeyboardInterrupt, StormTimeout):
                self.interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _write_change(self, number: str) -> None:
        self.db.append_message("chat", "user", number)
        self.acknowledged.append(number)
        pair = [f"a{number}", f"b{number}"]
        with self.db.transaction():
            for text in pair:
                self.db.append_message("chat", "user", text)
        self.acknowledged += pair
        self.db.get_revision("chat")

    def _write_in_thread(self) -> str:
        done: list[str] = []
        thread = threading.Thread(target=lambda: done.append(self._write("thread")), daemon=True)
        thread.start()
        thread.join(_JOIN_S)
        return done[0] if done else "hangs"

    def _write(self, text: str) -> str:
        try:
            self.db.append_message("chat", "user", text)
        except Exception as error:  # noqa: BLE001 -- said by its name
            return f"{type(error).__name__}: {error}"
        return "written"


def _raise_interrupt(*_: object) -> None:
    if random.random() < 0.5:
        raise KeyboardInterrupt
    raise StormTimeout


if __name__ == "__main__":
    print(json.dumps(InterruptStorm(Path(sys.argv[1]), int(sys.argv[2])).run()), flush=True)

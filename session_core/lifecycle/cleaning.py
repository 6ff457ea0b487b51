"""What happens to agents that left the cache: they are cleaned up, but never while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from functools import partial

from session_core.isolated import Call, Report
from session_core.lifecycle.slots import Slot

Running = Callable[[str], bool] | Container[str]
"""Which session keys have an agent at work: a question, or a set that somebody keeps."""

CleanUp = Callable[[str, object], object]


def close_agent(_key: str, agent: object) -> object:
    """Clean up an agent by its `close`, where it has one."""
    close = getattr(agent, "close", None)
    return close() if callable(close) else None


class Cleaner:
    """Cleans up agents, each on a thread of its own, so that one that hangs holds up nothing."""

    def __init__(self, clean_up: CleanUp, running: Running, bound_s: float, report: Report) -> None:
        self._clean_up = clean_up
        self._running = running
        self._bound_s = bound_s
        self._report = report
        self._lock = threading.Lock()
        self._retired: list[tuple[str, Slot]] = []

    def is_running(self, key: str) -> bool:
        """Whether somebody says that the agent of a key is at work; a question that fails does."""
        try:
            return bool(self._running(key)) if callable(self._running) else key in self._running
        except Exception as error:  # noqa: BLE001 -- better an agent too many than one cut off
            self._report(f"whether the agent of {key} runs could not be asked", error)
            return True

    def retire(self, slots: Iterable[tuple[str, Slot]]) -> list[Call]:
        """Clean up what left the cache, now or once it does not run any more; return the calls."""
        with self._lock:
            self._retired.extend(slots)
            idle = [gone for gone in self._retired if not gone[1].turns]
            self._retired = [gone for gone in self._retired if gone[1].turns]
        later = [gone for gone in idle if self.is_running(gone[0])]
        with self._lock:
            self._retired.extend(later)
        return [self._begin(key, slot.agent) for key, slot in idle if (key, slot) not in later]

    def wait(self, calls: Iterable[Call]) -> None:
        """Wait until they have ended, or their time is up."""
        for call in calls:
            if call.wait() == "timed_out":
                self._report("the clean-up of an agent hangs and was left behind", None)

    def _begin(self, key: str, agent: object) -> Call:
        def tell(error: BaseException) -> None:
            self._report(f"the clean-up of the agent of {key} failed", error)

        return Call(partial(self._clean_up, key, agent), self._bound_s, on_error=tell)

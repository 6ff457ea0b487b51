"""An interrupt at a chosen place, and a thread that must come to an end beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

WAIT_S = 20.0


def make_interrupting_profiler(
    at: int, places: tuple[str, ...]
) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that raises what Ctrl-C raises at the nth place of these files, once.

    A signal handler is run where a function begins and where a call is over.
    """
    passed = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal passed
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(places):
            passed += 1
            if passed == at + 1:
                raise KeyboardInterrupt

    return profile


def run_beside_thread(step: Callable[[], object]) -> None:
    """Run a step in a thread of its own, which must come to an end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 -- raised again where it is seen
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    if failed:
        raise failed[0]

"""An interrupt at a chosen line, and a thread that must end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

WAIT_S = 20.0


def make_interrupting_profiler(
    at: int, places: tuple[str, ...]
) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that raises KeyboardInterrupt once, at the nth call in these files.

    Python runs signal handlers at the beginning and the end of a call.
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
    """Run a step in its own thread, which must end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 -- raised again in the caller
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    if failed:
        raise failed[0]

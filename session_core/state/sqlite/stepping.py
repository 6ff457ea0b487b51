"""Statements that take long: somebody looks in on them every now and then, and may end them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from session_core import driver
from session_core.state.contract import Step

_EVERY = 20_000
"""So many steps of SQLite's own machine are some milliseconds."""


@contextmanager
def stepping(connection: driver.Connection, step: Step | None) -> Iterator[None]:
    """Call `step` while statements run inside; what it raises ends them, and is raised here.

    Older versions of SQLite check pages without a look at who wants them to end.
    """
    if step is None:
        yield
        return
    raised: list[BaseException] = []
    looks = _looks(step, raised)
    next(looks)
    try:
        connection.set_progress_handler(looks.__next__, _EVERY)
        yield
    except driver.library().Error:
        if not raised:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    if raised:
        raise raised[0]


def _looks(step: Step, raised: list[BaseException]) -> Iterator[bool]:
    """Yield whether to end, once a look; SQLite passes no error on, so it is noted.

    What a signal raises comes up where Python goes on, which a function does before its first
    `try`, and a generator inside of it.
    """
    while True:
        try:
            yield bool(raised)
            if not raised:
                step()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 -- raised behind the statement
            raised.append(error)

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

    def look_in() -> bool:
        try:
            if not raised:
                step()
        except BaseException as error:  # noqa: BLE001 -- SQLite passes none on
            raised.append(error)
        return bool(raised)

    connection.set_progress_handler(look_in, _EVERY)
    try:
        yield
    except driver.library().Error:
        if not raised:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    if raised:
        raise raised[0]

"""What triggers of somebody else make of sessions while their messages go or come is undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from session_core.state.sqlite import stored
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.images import SESSIONS
from session_core.state.sqlite.stored import Row, Shape


@contextmanager
def keeping(handle: Handle, session_ids: Iterable[Any]) -> Iterator[None]:
    """Messages are deleted or inserted inside, which leaves the rows of their sessions alone.

    Someone may have put triggers on messages that count in those.
    """
    shape = stored.shape(handle, SESSIONS)
    keys = [{"id": session_id} for session_id in session_ids]
    before = [stored.at(handle, shape, key) if shape else [] for key in keys]
    yield
    for key, rows in zip(keys, before, strict=True):
        if shape is not None and rows:
            _restore(handle, shape, key, rows[0])


def _restore(handle: Handle, shape: Shape, key: Mapping[str, Any], wanted: Row) -> None:
    """Set what a trigger has made otherwise in a row."""
    for found in stored.at(handle, shape, key):
        if not stored.same(found, wanted):
            pairs = zip(shape.columns, found, wanted, strict=True)
            other = {name: value for name, now, value in pairs if not stored.same([now], [value])}
            stored.update(handle, shape.table, key, other)

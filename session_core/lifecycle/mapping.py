"""The cache seen as the mapping of tuples that older code keeps its agents in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from session_core.lifecycle.slots import from_tuple
from session_core.lifecycle.table import Table

_NONE = object()


class Tuples:
    """Agents as tuples `(agent, signature[, message count[, session id]])`, by session key.

    The third place has a revision where the agent was built here. What is stored or taken out this
    way is not cleaned up. A build that is under way is seen by its key, and never counted.
    """

    def __init__(self, table: Table, stored: Callable[[str], None]) -> None:
        self._table = table
        self._stored = stored

    def __getitem__(self, key: str) -> tuple[Any, ...]:
        slot, _ = self._table.get(key)
        if slot is None:
            raise KeyError(key)
        return slot.as_tuple()

    def __setitem__(self, key: str, value: tuple[Any, ...]) -> None:
        self._table.put(key, from_tuple(value))
        self._stored(key)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._table.get(key)[0] is not None

    def __len__(self) -> int:
        return len(self._table.all())

    def __iter__(self) -> Iterator[str]:
        return iter([key for key, _ in self._table.all()])

    def get(self, key: str, default: Any = None) -> Any:
        """Return the tuple of a key."""
        slot, _ = self._table.get(key)
        return default if slot is None else slot.as_tuple()

    def pop(self, key: str, default: Any = _NONE) -> Any:
        """Take a tuple out, without cleaning up its agent."""
        slot = self._table.pop(key)
        if slot is not None:
            return slot.as_tuple()
        if default is _NONE:
            raise KeyError(key)
        return default

    def items(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the keys and tuples of all agents, the one that was used longest ago first."""
        return [(key, slot.as_tuple()) for key, slot in self._table.all()]

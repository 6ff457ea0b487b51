"""Blocks of callers: transactions and snapshots, each of one task in one thread."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol, TypeVar


class OpenBlock(Protocol):
    """A transaction or a snapshot."""

    @property
    def is_of_caller(self) -> bool:
        """True if calls of the current task and thread belong to this block."""


T = TypeVar("T", bound=OpenBlock)


def find_block_of_caller(blocks: Iterable[weakref.ref[T]]) -> T | None:
    """Return the block that this task has open in this thread, or None."""
    for reference in list(blocks):
        block = reference()
        if block is not None and block.is_of_caller:
            return block
    return None

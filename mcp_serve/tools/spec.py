"""What a tool is: its name, what a model is told of it, what comes in, goes out and runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool.

    `run` takes a home, the arguments and what is asked; one that changes something or takes long
    also its work, which it tells how far it is. It may be a coroutine function.
    """

    name: str
    title: str
    description: str
    arguments: type[Any]
    answers: Any
    run: Callable[..., Any]
    changes: bool = False
    destructive: bool = False
    idempotent: bool = True
    asks: str = ""
    """With what the kind of the plans begins that it applies, before which the human is asked."""
    place: Any = str
    """The type of the places in its cursors: where the library makes them, text."""
    takes_long: str = ""
    """With which argument it reads so much that it is work, as a change is."""
    waits: bool = False
    """Whether it waits for something, which is of no use to a client that has left."""
    beside_plan: tuple[str, ...] = ()
    """What may be given with a plan."""
    check: Callable[[Any, str, str | None], object] | None = None
    """Refuses a plan of a home that cannot be applied with what is given beside it."""

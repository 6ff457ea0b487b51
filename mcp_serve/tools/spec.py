"""What a tool is: its name, what a model is told of it, what comes in, goes out and runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spec:
    """One tool. `run` takes a home and the arguments; it may be a coroutine function."""

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
    beside_plan: tuple[str, ...] = ()
    """What may be given with a plan."""

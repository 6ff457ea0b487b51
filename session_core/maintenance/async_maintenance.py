"""`AsyncMaintenance`: the same maintenance for coroutines, each call in a thread of its own.

It holds no logic: each name below is the method of that name. What was begun is finished even if
its task is cancelled; `stop` ends an `apply` or a `restore` between two steps. That and `progress`
are called in the thread of the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from session_core.isolated import off_loop
from session_core.maintenance.maintenance import Maintenance

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate[Maintenance, P], R],
) -> Callable[Concatenate[AsyncMaintenance, P], Awaitable[R]]:
    @wraps(method)
    async def call(self: AsyncMaintenance, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = partial(method, self.maintenance, *args, **kwargs)
        return await off_loop(work, to_its_end=True)

    return call


class AsyncMaintenance:
    """Wraps a maintenance; what the methods do is said there."""

    def __init__(self, maintenance: Maintenance) -> None:
        self.maintenance = maintenance

    health = _in_thread(Maintenance.health)
    plan = _in_thread(Maintenance.plan)
    planned = _in_thread(Maintenance.planned)
    decline = _in_thread(Maintenance.decline)
    apply = _in_thread(Maintenance.apply)
    restore = _in_thread(Maintenance.restore)
    coming = _in_thread(Maintenance.coming)
    edit = _in_thread(Maintenance.edit)
    would_edit = _in_thread(Maintenance.would_edit)
    export = _in_thread(Maintenance.export)
    arrivals = _in_thread(Maintenance.arrivals)
    import_ = _in_thread(Maintenance.import_)
    batches = _in_thread(Maintenance.batches)
    log = _in_thread(Maintenance.log)

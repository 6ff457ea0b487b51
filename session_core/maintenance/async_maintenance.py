"""`AsyncMaintenance`: the same maintenance for coroutines, each call in a worker thread.

It holds no logic: each name below is the method of that name. A cancelled caller gets control back
at once, and what has begun finishes; `stop` ends an `apply` or a `restore` between two steps. That
and `progress` are called in the thread of the work.
"""

from __future__ import annotations

from session_core.aio import AsyncFace, in_thread
from session_core.maintenance.maintenance import Maintenance


class AsyncMaintenance(AsyncFace[Maintenance]):
    """Wraps a maintenance; what the methods do is said there."""

    def __init__(self, maintenance: Maintenance) -> None:
        super().__init__(maintenance)
        self.maintenance = maintenance

    health = in_thread(Maintenance.health)
    plan = in_thread(Maintenance.plan)
    planned = in_thread(Maintenance.planned)
    decline = in_thread(Maintenance.decline)
    apply = in_thread(Maintenance.apply)
    settle = in_thread(Maintenance.settle)
    restore = in_thread(Maintenance.restore)
    coming = in_thread(Maintenance.coming)
    edit = in_thread(Maintenance.edit)
    would_edit = in_thread(Maintenance.would_edit)
    export = in_thread(Maintenance.export)
    arrivals = in_thread(Maintenance.arrivals)
    import_ = in_thread(Maintenance.import_)
    batches = in_thread(Maintenance.batches)
    log = in_thread(Maintenance.log)

"""`AsyncMaintenance` runs each method of `Maintenance` in a worker thread.

It holds no logic: each name below is the method of that name. A cancelled caller gets control back
at once, and a method that has begun finishes; `stop` ends an `apply` or a `restore` between two
steps. `stop` and `progress` are called in the worker thread.
"""

from __future__ import annotations

from session_core.aio import AsyncWrapper, make_async
from session_core.maintenance.maintenance import Maintenance


class AsyncMaintenance(AsyncWrapper[Maintenance]):
    """The methods of a `Maintenance` as coroutines; that class documents them."""

    def __init__(self, maintenance: Maintenance) -> None:
        super().__init__(maintenance)
        self.maintenance = maintenance

    health = make_async(Maintenance.health)
    plan = make_async(Maintenance.plan)
    get_plan = make_async(Maintenance.get_plan)
    close_plan = make_async(Maintenance.close_plan)
    apply = make_async(Maintenance.apply)
    settle = make_async(Maintenance.settle)
    restore = make_async(Maintenance.restore)
    preview_restore = make_async(Maintenance.preview_restore)
    edit = make_async(Maintenance.edit)
    preview_edit = make_async(Maintenance.preview_edit)
    export_sessions = make_async(Maintenance.export_sessions)
    preview_import = make_async(Maintenance.preview_import)
    import_sessions = make_async(Maintenance.import_sessions)
    batches = make_async(Maintenance.batches)
    log = make_async(Maintenance.log)

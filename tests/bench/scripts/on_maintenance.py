"""Maintains a home with this library, deletes from a home without it, and watches the lock."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import course

_BATCH_S = 20.0
_POLL_S = 0.0003


class OwnMaintenance:
    """Our maintenance."""

    @staticmethod
    def load(job):
        """Import it, on the SQLite that is asked for."""
        from session_core import choose_sqlite  # noqa: PLC0415

        choose_sqlite(job["driver"])


class LockTimer:
    """How long each transaction of the home had the lock, as seen from inside."""

    def __init__(self, db_path):
        from session_core.state.sqlite import writer  # noqa: PLC0415

        self.ms = []
        self._file = str(db_path)
        self._since = 0.0
        self._plain, writer.execute_with_retry = writer.execute_with_retry, self._time_transaction

    def _time_transaction(self, handle, sql, deadline):
        self._plain(handle, sql, deadline)
        if sql == "COMMIT":
            self.ms.append((time.perf_counter() - self._since) * 1000)
        else:
            self._since = time.perf_counter()


def run_maintenance(system, job):
    """Check, plan, prune and restore. Or only prune, for a limited time."""
    system.load(job)
    from session_core import SessionDB  # noqa: PLC0415
    from session_core.ledger.ledger import Ledger  # noqa: PLC0415
    from session_core.ledger.state_folder import StateFolder  # noqa: PLC0415
    from session_core.maintenance.maintenance import Maintenance  # noqa: PLC0415
    from session_core.maintenance.types import PlanRequest  # noqa: PLC0415

    path, said = Path(job["db"]), {}

    def clock():
        return job["now"]

    folder = StateFolder(path, root=path.parent.with_name(f"{path.parent.name}-kept"))
    with (
        SessionDB(path, clock=clock) as db,
        Ledger(folder, clock=clock) as ledger,
        Maintenance(db, ledger, clock=clock) as maintenance,
    ):
        held = LockTimer(path)
        said["health_s"], _ = _time_call(maintenance.health)
        wanted = PlanRequest("sessions", older_than_days=job["older_than_days"])
        said["plan_s"], planned = _time_call(lambda: maintenance.plan(wanted))
        said["planned_mb"] = _measure_peak_mb()
        done, said["prune_s"] = _prune_home(maintenance, planned.plan, job["for_s"])
        said |= {
            "steps": len(ledger.list_steps(done.batch)),
            "removed": planned.count - done.remaining,
        }
        said |= {
            "held": _compute_percentiles(held.ms),
            "trash_mb": ledger.count_trash_bytes() / 1e6,
        }
        if job["restore"]:
            held.ms.clear()
            restored, said["restore_s"] = _restore_batch(maintenance, done.batch)
            said |= {"rows": restored, "held_restoring": _compute_percentiles(held.ms)}
    return said | {"peak_mb": _measure_peak_mb()}


def _prune_home(maintenance, plan, for_s):
    began = time.perf_counter()
    while True:
        left = for_s - (time.perf_counter() - began)
        result = maintenance.apply(plan, max(0.0, min(left, _BATCH_S)))
        if result.outcome == "applied" or time.perf_counter() - began >= for_s:
            return result, time.perf_counter() - began


def _restore_batch(maintenance, batch):
    rows, began = 0, time.perf_counter()
    while True:
        result = maintenance.restore(batch, _BATCH_S)
        rows += result.rows
        if result.outcome == "applied":
            return rows, time.perf_counter() - began


def delete_plainly(system, job):
    """Delete the same sessions by plain statements, in as many transactions."""
    system.load(job)
    connection = _open_connection(job)
    connection.execute("PRAGMA synchronous=FULL")
    before = job["now"] - job["older_than_days"] * 86_400
    asked = "SELECT id FROM sessions WHERE started_at < ? ORDER BY started_at"
    ids = [row[0] for row in connection.execute(asked, (before,))]
    per, held, began = max(1, len(ids) // job["steps"]), [], time.perf_counter()
    for start in range(0, len(ids), per):
        some = ids[start : start + per]
        marks = ", ".join("?" * len(some))
        connection.execute("BEGIN IMMEDIATE")
        at = time.perf_counter()
        for change in (
            "DELETE FROM messages WHERE session_id IN",
            "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN",
            "DELETE FROM sessions WHERE id IN",
        ):
            connection.execute(f"{change} ({marks})", some)
        connection.execute("COMMIT")
        held.append((time.perf_counter() - at) * 1000)
    took = time.perf_counter() - began
    connection.close()
    return {"seconds": took, "sessions": len(ids), "held": _compute_percentiles(held)}


def delete_by_library(system, job):
    """Delete the same sessions for good, as an embedder would: of a home without triggers."""
    system.load(job)
    from session_core import SessionDB  # noqa: PLC0415

    before = job["now"] - job["older_than_days"] * 86_400
    with SessionDB(job["db"]) as db:
        held = LockTimer(job["db"])
        ids = [each.id for each in db.admin.list_inventory() if (each.last_active_at or 0) < before]
        took, _ = _time_call(lambda: db.delete_sessions(ids))
    return {"seconds": took, "sessions": len(ids), "held": _compute_percentiles(held.ms)}


def watch_lock(system, job):
    """Try to write all the time, and return the periods in which the lock was refused."""
    system.load(job)
    from session_core import _sqlite3  # noqa: PLC0415

    connection = _open_connection(job)
    connection.execute("PRAGMA busy_timeout=0")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    stop, waits, since = Path(job["stop"]), [], None
    while not stop.exists():
        try:
            connection.execute("BEGIN IMMEDIATE")
        except _sqlite3.load_library().OperationalError:
            since = since or time.perf_counter()
        else:
            connection.execute("ROLLBACK")
            if since is not None:
                waits.append((time.perf_counter() - since) * 1000)
                since = None
        time.sleep(_POLL_S)
    connection.close()
    return {"held": _compute_percentiles(waits)}


def _open_connection(job):
    from session_core import _sqlite3  # noqa: PLC0415
    from session_core.state.sqlite.connection import make_file_uri  # noqa: PLC0415

    return _sqlite3.connect(make_file_uri(Path(job["db"]), "mode=rw"), busy_timeout_s=30)


def _time_call(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def _compute_percentiles(taken):
    taken = sorted(taken) or [0.0]
    at = {"p50": 0.5, "p99": 0.99}
    spread = {name: taken[min(len(taken) - 1, int(len(taken) * part))] for name, part in at.items()}
    return spread | {"max": taken[-1], "count": len(taken)}


def _measure_peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    extra = {
        "maintain": run_maintenance,
        "bare": delete_plainly,
        "primitive": delete_by_library,
        "look_on": watch_lock,
    }
    course.run_job(OwnMaintenance, extra)

"""Try compressions with a fault at many points, and check the state after each.

After a fault the conversation must be the old or the new one. The next start finds out which,
continues to the end, and undoes it.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from session_core.errors import SessionError
from session_core.ledger.execute import MARK_PREFIX, resume_steps
from tests.faults import routes, state
from tests.faults.compression import LATER_S, CompressionHome, build_home, is_compressed
from tests.faults.labs import ChildRun
from tests.faults.leftovers import describe_leftovers
from tests.faults.mutations import NOW_S
from tests.faults.points import InjectedFault, TracedCall
from tests.faults.routes import CHAT
from tests.faults.sweep import MutationTrial, StepSweep, describe_run

_CHILD_PATTERN = re.compile(r"\d{8}_\d{6}_[0-9a-f]{8}")
_VOLATILE_TABLES = ("compression_locks", "sqlite_sequence")


def read_state(home: Path) -> dict[str, str]:
    """Return the content of a home by table, without marks, locks and random names."""
    found = {}
    with state.open_connection(home / "state.db") as opened:
        for table in state.list_tables(opened):
            if table not in _VOLATILE_TABLES:
                rows = [dict(zip(_list_columns(opened, table), row, strict=True)) for row in
                        opened.execute(f'SELECT * FROM "{table}"')]  # noqa: S608  # fmt: skip
                found[table] = _normalize_rows(table, rows)
    return found


def _list_columns(opened: Any, table: str) -> list[str]:
    return [name for (name,) in opened.execute("SELECT name FROM pragma_table_info(?)", (table,))]


def _normalize_rows(table: str, rows: list[dict[str, Any]]) -> str:
    """Return rows with later times as present ones, and with one name for every child."""
    if table == "state_meta":
        rows = [row for row in rows if not row["key"].startswith("mcp_sessions")]
    if table == "gateway_routing":
        for row in rows:
            del row["updated_at"], row["scope"]
    if table == "messages":
        rows = _number_new_rows(rows)
    text = json.dumps(sorted(json.dumps(row, default=repr) for row in rows))
    return _CHILD_PATTERN.sub("child", text.replace(repr(NOW_S + LATER_S), repr(NOW_S)))


def _number_new_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the ids of new rows by numbers, because a second run gets other ids."""
    old = [row for row in rows if row["id"] <= _OLD_ID_COUNT]
    new = sorted((row for row in rows if row["id"] > _OLD_ID_COUNT), key=lambda row: int(row["id"]))
    return old + [{**row, "id": f"new {at}"} for at, row in enumerate(new)]


_OLD_ID_COUNT = 22
"""Number of messages of a home before any compression."""


# -- trying ------------------------------------------------------------------------------------


class CompressionSweep(StepSweep):
    """Tries a compression with a fault, and checks the state and its continuation."""

    def rehearse(self, mutation: Any, folder: Path) -> MutationTrial:
        """Build the home before the change, and run the change without a fault."""
        home = folder / "template"
        build_home(home, mutation)
        undisturbed = routes.copy_home(home, folder / "undisturbed")
        before = read_state(undisturbed)
        with self._labs.borrow_lab() as lab:
            ran, calls = lab.trace_mutation(mutation, undisturbed, folder / "trace.log")
        if ran.said != ("ack", "closed", "end"):
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
        after = read_state(undisturbed)
        trial = MutationTrial(mutation, home, before, after, {}, calls)
        wrong = _continue_and_check(trial, undisturbed)
        if wrong or before == after:
            raise AssertionError(f"{mutation.name} is not judged well by itself: {wrong}")
        return trial

    def _try_point(
        self, trial: MutationTrial, fault: InjectedFault, point: TracedCall, folder: Path
    ) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy_home(trial.home, folder / label)
        with self._labs.borrow_lab() as lab:
            ran = lab.run_mutation(
                trial.mutation, home, inject=fault.list_injections(point), log=log
            )
        there = _classify_state(trial, home)
        wrong = _find_problems(trial, fault, ran, there) + state.find_damage(home)
        if there == "neither":
            wrong.append(
                f"neither the state before nor the one after: {_find_differing_tables(trial, home)}"
            )
        wrong += self._check_once(
            trial.mutation.name,
            describe_leftovers(home, _read_content(home)),
            lambda: _continue_and_check(trial, home),
        )
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{describe_run(ran)}, {there}", problem


def _read_content(home: Path) -> dict[str, str]:
    """Return the content of a home, with its locks and the file of its routes."""
    with state.open_connection(home / "state.db") as opened:
        locks = opened.execute("SELECT session_id, expires_at FROM compression_locks").fetchall()
    file = home / routes.SESSIONS_FOLDER / "sessions.json"
    return {**read_state(home), "locks": repr(sorted(locks)), "routes file": file.read_text()}


def _classify_state(trial: MutationTrial, home: Path) -> str:
    found = read_state(home)
    return "after" if found == trial.after else "before" if found == trial.before else "neither"


def _find_problems(
    trial: MutationTrial, fault: InjectedFault, ran: ChildRun, there: str
) -> list[str]:
    """Return the problems in the output of a run."""
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.is_killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        "acknowledged and lost": "ack" in ran.said and there == "before",
    }
    return [what for what, so in judged.items() if so]


def _find_differing_tables(trial: MutationTrial, home: Path) -> list[str]:
    found = read_state(home)
    return [
        table
        for table in sorted({*found, *trial.before})
        if found.get(table) not in (trial.before.get(table), trial.after.get(table))
    ]


def _continue_and_check(trial: MutationTrial, home: Path) -> list[str]:
    """Restart after the lock has expired: decide the step, repeat the change, and undo it."""
    mutation = trial.mutation
    wrong: list[str] = []
    opened = CompressionHome(home, later=True)
    try:
        opened.store.repair_routes()
        resume_steps(opened.db, opened.ledger)
        if opened.ledger.list_unsettled_steps():
            wrong.append("a step that nobody decides")
        decided = _classify_state(trial, home)
        for turn in (mutation.again, mutation.again):
            turn(opened)
            if _classify_state(trial, home) != "after":
                wrong.append(
                    f"done again it comes to something else: {_find_differing_tables(trial, home)}"
                )
        wrong += _undo_and_check(trial, opened, home)
        wrong += [] if decided != "neither" else ["a start does not heal it"]
        wrong += map(str, opened.db.admin.check_integrity(deep=True))
        wrong += _check_next_message(opened)
    except SessionError as error:
        wrong.append(f"it cannot be gone on with: {error!r}")
    finally:
        opened.close()
    return wrong + _find_leftovers(home)


def _undo_and_check(trial: MutationTrial, opened: CompressionHome, home: Path) -> list[str]:
    """Undo the change, or repeat an undone one, which shows that nothing was left over."""
    if not trial.mutation.undoes:
        opened.compressor.undo(_find_last_compression(opened))
        return (
            []
            if _classify_state(trial, home) == "before"
            else [f"undone: {_find_differing_tables(trial, home)}"]
        )
    opened.compressor.compress(CHAT, lambda _: "in short: the ferry", keep_last=2)
    return [] if is_compressed(opened) else ["it cannot be compressed any more"]


def _check_next_message(opened: CompressionHome) -> list[str]:
    """Handle a message of the chat, after which the mirror of the routes is up to date."""
    tip = opened.db.get_compression_tip(CHAT)
    landed = opened.store.get_or_create_session(routes.build_source(CHAT)).session_id
    return [] if landed == tip else [f"the next message lands in {landed}, not in {tip}"]


def _find_last_compression(opened: CompressionHome) -> str:
    found: str = opened.ledger._file.read(
        lambda rows: rows.fetch_value(
            "SELECT id FROM batches WHERE id IN (SELECT batch FROM steps WHERE state = 'done')"
        )
    )
    return found


def _find_leftovers(home: Path) -> list[str]:
    """Return unneeded rows of a home, and differences between its two copies of the routes."""
    with state.open_connection(home / "state.db") as opened:
        marks = opened.execute(
            "SELECT count(*) FROM state_meta WHERE key LIKE ? AND value <> 'never'",
            (f"{MARK_PREFIX}%",),
        ).fetchone()[0]
        locks = opened.execute(
            "SELECT count(*) FROM compression_locks WHERE expires_at > ?", (NOW_S + LATER_S,)
        ).fetchone()[0]
        routed = "gateway_routing" in state.list_tables(opened)
        sql = "SELECT session_key, entry_json FROM gateway_routing"
        rows = opened.execute(sql).fetchall() if routed else []
    file = json.loads((home / routes.SESSIONS_FOLDER / "sessions.json").read_text(encoding="utf-8"))
    table = {key: json.loads(text) for key, text in rows}
    judged = {
        "a mark is left": marks > 0,
        "a lock is left": locks > 0,
        "the two copies of the routes differ": any(file.get(key) != table[key] for key in table),
    }
    return [what for what, so in judged.items() if so]

"""How a summary takes the place of a range: in the same session, or in one that goes on from it.

Both run in one step of the ledger, check first that the range is still what was planned, and take
along whatever was said behind it. What a step returns says how it is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from session_core.compression import change, retention
from session_core.compression.applied import finish
from session_core.compression.assemble import assemble
from session_core.compression.boundaries import Refused
from session_core.compression.records import Compressed, NotCompressed
from session_core.compression.routes import Routes
from session_core.compression.tokens import Estimate
from session_core.compression.work import AGAIN, Ready, Work, digest
from session_core.errors import Changed
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept
from session_core.ledger.steps import clear_marks, run_step
from session_core.models import MessageRow, Revision, SessionRow
from session_core.state.contract import StateDatabase


class Committer:
    """Puts summaries in their place."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        routes: Routes,
        hooks: Callable[[], Hooks],
        estimate: Estimate,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._routes = routes
        self._hooks = hooks
        self._estimate = estimate

    def ready(
        self,
        work: Work,
        row: SessionRow,
        rows: list[MessageRow],
        revision: Revision,
        summary: str,
    ) -> Ready:
        """Return what would be committed, checked.

        Raises:
            NotCompressed: the summary is none, or is not shorter.
        """
        made = assemble(rows, work.start, work.end, summary, self._estimate)
        if isinstance(made, Refused):
            raise NotCompressed(made.code, made.reason)
        report = retention.report(rows[work.start : work.end], summary, rows[work.end :])
        led = self._routes.of([row["id"]])
        seen = digest(rows[: work.end])
        return Ready(work, row, rows, revision, made, report, led, seen)

    def commit(self, plan: str, ready: Ready) -> Compressed:
        """Run the step of a plan, and tell the hooks before and after it.

        Raises:
            Changed: the range is not what it was.
            NotCompressed: what it would come to is not what continues the session.
        """
        batch = self._ledger.begin(plan)
        self._tell("before_compression", ready, ready.work.session_id, len(ready.rows))
        try:
            stored = run_step(
                self._db,
                self._ledger,
                batch.id,
                before=partial(self._kept, ready),
                change=partial(self._change, ready, batch.id),
                members=[ready.work.session_id],
                within=partial(self._within, ready),
            )
        except (Changed, NotCompressed):
            self._ledger.close_plan(plan)
            raise
        finish(self._ledger, plan, stored)
        clear_marks(self._db, self._ledger)
        done = Compressed.of(stored["compressed"])
        self._tell("after_compression", ready, done.session_id, done.after.live)
        return done

    @contextmanager
    def _within(self, ready: Ready) -> Iterator[None]:
        if ready.work.end > AGAIN:
            change.require_same(self._db, ready)
        if ready.work.shape == "in_place":
            yield
            return
        with self._routes.together(ready.led):
            yield
            self._routes.lead_file(ready.led)

    def _kept(self, ready: Ready, db: StateDatabase) -> Iterator[Kept]:
        """Yield what the step is about to change; the messages themselves all stay."""
        yield Kept("session", db.get_session(ready.work.session_id))

    def _change(self, ready: Ready, batch: str, db: StateDatabase) -> dict[str, Any]:
        if ready.work.shape == "in_place":
            done = change.in_place(db, ready)
        else:
            done = change.continuation(db, ready, self._routes)
        compressed = Compressed(
            session_id=done.session_id,
            old_session_id=ready.work.session_id,
            shape=ready.work.shape,
            batch=batch,
            tokens_before=ready.made.tokens_before,
            tokens_after=ready.made.tokens_after,
            rows=len(done.replaced) + len(done.carried) + len(done.made),
            retention=ready.retention,
            before=Revision(*done.before),
            after=Revision(*done.after),
        )
        return {"compressed": compressed.stored(), "done": asdict(done)}

    def _tell(self, hook: str, ready: Ready, session_id: str, count: int) -> None:
        self._hooks().call(
            hook,
            session_id=session_id,
            platform=ready.row["source"],
            reason="compression",
            old_session_id=ready.work.session_id,
            new_session_id=session_id,
            in_place=ready.work.shape == "in_place",
            message_count=count,
        )

"""What maintains a home that can be opened: all its parts, with one session store."""

from __future__ import annotations

from collections.abc import Callable

from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.marks import keep_marks
from session_core.maintenance.compressions import Compressions
from session_core.maintenance.edits import Edits
from session_core.maintenance.exporting import Exporting
from session_core.maintenance.import_undo import ImportUndo
from session_core.maintenance.importing import Importing
from session_core.maintenance.planner import Planner
from session_core.maintenance.reclaim import Reclaim
from session_core.maintenance.runner import Runner
from session_core.maintenance.trash import Trash
from session_core.routing.store import SessionStore, check_database
from session_core.state.contract import StateDatabase


class Parts:
    """The parts of a maintenance; without a `store` that of the home itself, closed with them.

    Raises:
        InvalidInput: the ledger is that of another home, or the store is.
        Denied: the ledger would write into a Hermes home.
        Corrupt: the home is damaged.
    """

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks | None,
        *,
        client: str,
        clock: Callable[[], float],
    ) -> None:
        ledger.check_home(db)
        if store is not None:
            check_database(store, db)
        hooks = hooks or (store.hooks if store is not None else None) or Hooks()
        self._own_store = _store_of(db, hooks) if store is None else None
        self.store = store = store or self._own_store
        self.planner = Planner(db, ledger, store, clock=clock)
        self.runner = Runner(db, ledger, store, hooks, self.planner, client=client, clock=clock)
        self.trash = Trash(ledger, client=client, clock=clock)
        self.reclaim = Reclaim(db, ledger, client=client, clock=clock, scene=self.planner.scene)
        self.compressions = Compressions(db, ledger, store, hooks, client=client, clock=clock)
        self.edits = Edits(db, ledger, store, client=client, take_up=self.runner.take_up)
        self.exporting = Exporting(db, ledger, client=client)
        self.importing = Importing(db, ledger, client=client)
        self.import_undo = ImportUndo(db, ledger, self.planner, self.runner)

    def close(self) -> None:
        """Close the session store that was made here, and nothing that was given."""
        if self._own_store is not None:
            self._own_store.close()


def _store_of(db: StateDatabase, hooks: Hooks) -> SessionStore | None:
    if db.folder is None:
        return None
    store = SessionStore.open(db.folder, db, hooks=hooks)
    keep_marks(store, db)
    return store

"""A served home: its database, store and ledger, each opened on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcp_serve.redaction import redaction
from mcp_serve.stores.home_feed import HomeFeed
from mcp_serve.stores.served_store import (
    EditedSessions,
    EditValues,
    Position,
    ResolvedSession,
    Summary,
    ValueChange,
    list_hit_places,
)
from session_core import (
    Corrupt,
    Home,
    InvalidInput,
    NotFound,
    SessionDB,
    SessionError,
    StateDatabase,
    find_gateway,
    list_holders,
)
from session_core.state import DatabaseAddress, open_postgres
from session_core.types import (
    MessageRow,
    MessageWindow,
    Page,
    SearchHit,
    SessionFilter,
    SessionOrder,
)

if TYPE_CHECKING:
    from mcp_serve.http.auth import TokenFolder
    from session_core import Compressor, Ledger, Maintenance, SessionStore, StateFolder
    from session_core.ledger import AuditEntry, Batch
    from session_core.state import StoreSearch
    from session_core.types import Gateway, Holder

T = TypeVar("T")

# The sources of sessions that Hermes continues in a terminal.
_TERMINAL_SOURCES = ("cli", "tui")

# Sorts after every id.
_LAST_ID = "\U0010ffff"


class _locked_property(Generic[T]):  # noqa: N801 -- used as a decorator
    """A cached property that is created once, even if several threads read it."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    def __get__(self, instance: ServedHome, owner: type[ServedHome]) -> T:
        """Return the value and store it in the instance, where it hides this descriptor."""
        with instance.lock:
            attributes = vars(instance)
            if self._name not in attributes:
                attributes[self._name] = self._make(instance)
            value: T = attributes[self._name]
            return value


class ServedHome:
    """A home with the options by which it is served.

    `name` is the name of its store. Answers show it (`store_name`) only if several stores are
    served.

    `place` is the folder of the home, its database file, or an address.
    """

    def __init__(
        self,
        place: Path | DatabaseAddress,
        *,
        name: str = "own",
        is_one_of_several: bool = False,
        read_only: bool = False,
        redact: bool = True,
        trash: Path | None = None,
        load_extension: bool = False,
    ) -> None:
        self.place = place
        self.name = name
        self.store_name: str | None = name if is_one_of_several else None
        self.names: Sequence[str] = (name,)
        self.read_only = read_only
        self.redacts = redact
        self.has_long_previews = False
        self._trash = trash
        self._load_extension = load_extension and not read_only
        self.redact: Callable[[str], str] = redaction.redact if redact else redaction.skip_redaction
        # Reentrant, since the value of one property may need another.
        self.lock = threading.RLock()
        self.db_path = Home(place, "").db_path
        """The database file, which need not exist; None for an address."""
        self._file = _get_file_id(self.db_path)

    def is_replaced(self) -> bool:
        """Return True if another database file has taken the place of the served one."""
        file_id = _get_file_id(self.db_path)
        # The home did not exist when it was opened: its first file is the served one.
        if self._file is None:
            self._file = file_id
        return file_id not in (None, self._file)

    def explain_absence(self) -> str | None:
        """Return the reason why a database server lacks the home, or None.

        The file of a home is not checked.
        """
        if not isinstance(self.place, DatabaseAddress) or self.db.admin.get_home_id() is not None:
            return None
        return f"the database has no home {self.place.name!r}"

    def find_gateway(self) -> Gateway | None:
        """Return the live gateway of a Hermes home."""
        return None if self.db_path is None else find_gateway(self.db_path.parent)

    def list_holders(self) -> Sequence[Holder]:
        """Return the other programs that use the home."""
        return self.db.admin.list_holders() if self.db_path is None else list_holders(self.db_path)

    @_locked_property
    def db(self) -> StateDatabase:
        """The database, opened on first use.

        Raises:
            Busy: the server of an address does not answer.
            Corrupt: the file cannot be a database.
            Denied: the server of an address refuses the connection.
        """
        if isinstance(self.place, DatabaseAddress):
            return open_postgres(self.place.address, read_only=self.read_only)
        try:
            return SessionDB(
                self.db_path,
                read_only=self.read_only,
                in_hermes_home=True,
                load_extension=self._load_extension,
            )
        except InvalidInput as error:
            raise Corrupt(f"cannot open the database: {error}") from error

    @_locked_property
    def store(self) -> SessionStore:
        """The session store, with the configuration of the home."""
        from session_core import SessionStore  # noqa: PLC0415 -- lists do not need it

        if self.db_path is None:
            return SessionStore(db=self.db)
        return SessionStore.open(self.db_path.parent, self.db)

    @_locked_property
    def folder(self) -> StateFolder:
        """The state folder of the home, or the ledger tables of a home with an address."""
        from session_core import StateFolder  # noqa: PLC0415 -- lists do not need it
        from session_core.ledger import find_database_location  # noqa: PLC0415 -- as above

        if self.db_path is None:
            return find_database_location(self.db)
        folder = StateFolder(self.db_path)
        with suppress(SessionError):  # doctor shows the folder of a damaged home too
            folder.load_home_name(self.db)
        return folder

    @property
    def token_folder(self) -> TokenFolder:
        """The folder with the token, which a home with an address has on each machine."""
        from session_core.ledger import MachineFolder  # noqa: PLC0415 -- lists do not need it

        return MachineFolder(str(self.place)) if self.db_path is None else self.folder

    @_locked_property
    def ledger(self) -> Ledger:
        """The plans, trash and audit log."""
        from session_core import Ledger  # noqa: PLC0415 -- lists do not need it

        return Ledger(self.folder, trash_dir=self._trash, reads_anywhere=True)

    def list_own_pins(self) -> Collection[str]:
        """Return the sessions pinned in our state folder.

        There are none if the database has a pin column.
        """
        has_column = "pinned" in self.db.rows.list_columns("sessions")
        is_empty = has_column or not self.folder.has_pins()
        return () if is_empty else self.ledger.pins.list_pinned()

    def open_snapshot(self) -> AbstractContextManager[object]:
        """Let all reads of this thread in the block see one moment."""
        return self.db.snapshot()

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: SessionOrder = "recent",
        limit: int = 20,
        after: Position | None = None,
    ) -> Page[Summary]:
        """List conversations after a position of a merged list."""
        page = self.db.list_sessions(where, order=order, limit=limit, below=self._find_edge(after))
        return Page(list(page.items), page.next_cursor)

    def _find_edge(self, after: Position | None) -> tuple[float, str] | None:
        """Return the position at which this home continues a merged list.

        Rows with equal values are ordered by the name of their store.
        """
        if after is None:
            return None
        value, store, row_id = after
        name = self.store_name or ""
        if name == store:
            return -value, row_id
        return -value, (_LAST_ID if name > store else "")

    def summarize_session(self, session_id: str) -> Summary:
        """Return the row of a session."""
        return self.db.summarize_session(session_id)

    def list_sources(self) -> Collection[str]:
        """Return the sources of the sessions."""
        return self.db.admin.list_sources()

    def list_folders(self) -> Collection[str]:
        """Return the folders and git roots of the sessions."""
        return self.db.admin.list_folders()

    def build_resume_command(self, summary: Summary) -> Sequence[str] | None:
        """Return the command of Hermes that continues a terminal session, or None for a chat."""
        agent, _, profile = self.name.partition(":")
        # Hermes would take a name with a leading dash as an option.
        is_option = summary.id.startswith("-")
        if agent != "hermes" or summary.source not in _TERMINAL_SOURCES or is_option:
            return None
        return ("hermes", *(("-p", profile) if profile else ()), "--resume", summary.id)

    def find_shown_store(self, source: str) -> str | None:
        """Return the name of this home if several stores are served."""
        del source
        return self.store_name

    def match_session(
        self, reference: str, *, exact: bool = False, titles: bool = True
    ) -> ResolvedSession | None:
        """Return the session for a reference, or None."""
        if self.db.get_session(reference) is not None:
            return ResolvedSession(reference, 0)
        # A key with a leading underscore is metadata of sessions.json, not a chat.
        keyed = None if reference.startswith("_") else self.store.peek_session_id(reference)
        if keyed is not None:
            return ResolvedSession(self.db.get_compression_tip(keyed), 1)
        if exact:
            return None
        row = self.db.get_session_by_title(reference) if titles else None
        if row is not None:
            return ResolvedSession(self.db.get_compression_tip(row["id"]), 2)
        session_id = self.db.resolve_session_id(reference)
        return None if session_id is None else ResolvedSession(session_id, 3)

    def list_nearest_ids(self, reference: str) -> Sequence[str] | None:
        """Return the ids that resemble an unknown id, or None if it exists."""
        try:
            self.db.summarize_session(reference)
        except NotFound as error:
            return error.nearest
        return None

    def list_lineage(self, session_id: str) -> Sequence[str]:
        """Return the sessions that continue each other, the oldest first."""
        return self.db.get_compression_lineage(session_id)

    def find_parent(self, session_id: str) -> str | None:
        """Return the session that a session continues, or None."""
        if self.db.get_link_kind(session_id) != "continuation":
            return None
        row = self.db.get_session(session_id)
        parent_id: str | None = row["parent_session_id"] if row else None
        return parent_id if parent_id and self.db.get_session(parent_id) else None

    def describe_relatives(self, session_id: str) -> str | None:
        """Return None, since the rows of a home have the lineage."""
        del session_id
        return None

    def read_window(self, session_id: str, **options: Any) -> MessageWindow:
        """Return the messages next to a message id, or the newest messages."""
        return self.db.read_window(session_id, **options)

    def get_message(self, session_id: str, message_id: int) -> MessageRow | None:
        """Return a message of any session by its id."""
        del session_id
        return self.db.get_message(message_id)

    def read_preview_messages(self, summaries: Iterable[Summary]) -> Mapping[str, MessageRow]:
        """Return the messages that previews were cut from, by session."""
        ids = {row.id: row.preview_id for row in summaries if row.preview_id is not None}
        messages = self.db.find_messages(list(set(ids.values())))
        return {session: messages[number] for session, number in ids.items() if number in messages}

    def open_search(self, query: str, **options: Any) -> AbstractContextManager[StoreSearch]:
        """Open one search in the open snapshot."""
        return nullcontext(self.db.admin.open_search(query, **options))

    def measure_share(self) -> float:
        """Return 1, since a search sees every message."""
        return 1.0

    def find_messages(self, hits: Iterable[SearchHit]) -> Mapping[tuple[str, int], MessageRow]:
        """Return the messages of hits, and the replies to them, by session and message id."""
        ids = {number: session_id for session_id, number in list_hit_places(hits)}
        rows = self.db.find_messages(list(ids))
        return {(ids[number], number): row for number, row in rows.items()}

    @_locked_property
    def feed(self) -> HomeFeed:
        """The change feed."""
        return HomeFeed(self)

    @_locked_property
    def maintenance(self) -> Maintenance:
        """The maintenance of the home."""
        from session_core import Maintenance  # noqa: PLC0415 -- reads do not need it

        return Maintenance(self.db, self.ledger, store=self.store)

    @_locked_property
    def compressor(self) -> Compressor:
        """The compressor, which removes secrets from its own texts."""
        from mcp_serve.redaction import message_secrets  # noqa: PLC0415 -- reads do not need it
        from session_core import Compressor  # noqa: PLC0415 -- reads do not need it

        clean = (
            message_secrets.make_summary_cleaner
            if self.redacts
            else message_secrets.make_noop_cleaner
        )
        return Compressor(self.db, self.ledger, store=self.store, clean=clean)

    def edit_sessions(
        self, session_ids: Sequence[str], values: EditValues, client: str
    ) -> EditedSessions:
        """Edit sessions in one batch."""
        edited = self.maintenance.edit(session_ids, **values, client=client)
        return EditedSessions(edited.sessions, edited.batch)

    def preview_edit(self, session_ids: Sequence[str], values: EditValues) -> Sequence[ValueChange]:
        """Return the values that an edit would change."""
        return [
            ValueChange(change.session_id, change.what, change.before, change.after)
            for change in self.maintenance.preview_edit(session_ids, **values)
        ]

    def list_batches(self, limit: int, cursor: str | None) -> Page[Batch]:
        """List the batches that can be undone, newest first."""
        return self.maintenance.batches(limit, cursor, undone=False)

    def list_audit_entries(self, limit: int, cursor: str | None) -> Page[AuditEntry]:
        """List the recorded changes, newest first."""
        return self.maintenance.log(limit, cursor)

    def close(self) -> None:
        """Close everything that was opened."""
        opened = vars(self)
        for name in ("maintenance", "ledger", "store", "db"):
            if name in opened:
                opened[name].close()


def _get_file_id(path: Path | None) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if there is none."""
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino

"""The stores that a server serves, each with its home."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from session_core import (
    Conflict,
    InvalidInput,
    NotFound,
    SessionError,
    find_home,
    list_homes,
)
from session_core.transcripts import list_transcript_stores

if TYPE_CHECKING:
    from mcp_serve.http.auth import TokenFolder
    from mcp_serve.stores.homes import ServedHome
    from mcp_serve.stores.served_store import ServedStore
    from mcp_serve.stores.transcripts import ServedTranscripts, TranscriptIndex
    from session_core.state import DatabaseAddress

# Replaced homes stay open for calls that still use them; more replacements during one call are
# unlikely.
_MAX_RETIRED_HOMES = 8


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a server."""

    home: str | None = None
    stores: Sequence[str] = ()
    all_profiles: bool = False
    read_only: bool = False
    redact: bool = True
    # The folder for new trash; default: the state folder.
    trash: Path | None = None
    # Ask the user before a plan is applied, if the client can ask.
    confirm: bool = True
    # Load the SQLite extension of a home; some search indexes need it to be written.
    load_extension: bool = False
    # Serve the transcripts of other agents that are found; without, only those named by `stores`.
    finds_transcripts: bool = True
    # The process runs long: it watches the transcripts and indexes them before a call needs them.
    runs_long: bool = False
    # Called once, after the first answer and before anything is opened.
    before: Callable[[], object] | None = None


class ServedStores:
    """The stores of a server, homes first.

    A store is opened by the first call that needs it.

    Raises:
        NotFound: a store does not exist.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        home = find_home(options.home)
        existing = list_homes(home)
        transcripts = list_transcript_stores()
        names = list(dict.fromkeys(options.stores))
        if not names:
            names = list(existing)[:1] + (transcripts if options.finds_transcripts else [])
        if options.all_profiles:
            names += [name for name in existing if name.startswith("hermes:")]
        for name in names:
            if name not in existing and name not in transcripts:
                valid = ", ".join([*existing, *transcripts])
                raise NotFound(f"no store {name!r} in {home.place}; existing: {valid}")
        self._places = {name: existing[name] for name in names if name in existing}
        self._transcripts = [name for name in dict.fromkeys(names) if name not in existing]
        self._index: TranscriptIndex | None = None
        self._views: dict[str | None, ServedTranscripts] = {}
        self._homes: dict[str, ServedHome] = {}
        self._retired: deque[ServedHome] = deque()
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._is_prepared = False

    def prepare_opening(self) -> None:
        """Call `options.before` once, before a store is opened."""
        with self._preparing:
            if not self._is_prepared and self.options.before is not None:
                self.options.before()
            self._is_prepared = True

    @property
    def changes_nothing(self) -> bool:
        """True if the tools that change data are left out."""
        return self.options.read_only or not self.home_names

    @property
    def names(self) -> list[str]:
        """The names of the stores.

        The first home is the default of a change.
        """
        return [*self._places, *self._transcripts]

    @property
    def token_folder(self) -> TokenFolder:
        """The folder with the token of the first home, or of the home that would be served."""
        if self._places:
            return self.get_home().token_folder
        return self._open_home("", find_home(self.options.home).place).token_folder

    @property
    def home_names(self) -> list[str]:
        """The names of the homes."""
        return list(self._places)

    @property
    def transcript_names(self) -> list[str]:
        """The names of the stores of other agents."""
        return list(self._transcripts)

    def check_name(self, store: str) -> None:
        """Check that a store is served.

        Raises:
            InvalidInput: it is not.
        """
        if store not in self.names:
            from mcp_serve.redaction.redaction import redact  # noqa: PLC0415 -- loaded after the first answer

            redacted = redact(store)  # redact first: a cut secret is not recognised
            raise InvalidInput(
                f"store {redacted!r:.80} is not served; valid: {', '.join(self.names)}"
            )

    def get_place(self, store: str | None = None) -> Path | DatabaseAddress:
        """Return the folder, the database file or the address of a home.

        Raises:
            InvalidInput: the home is not served.
        """
        name = store or next(iter(self._places), None)
        if name is None:
            raise InvalidInput(f"no home is served; stores: {', '.join(self.names)}")
        self.check_name(name)
        if name not in self._places:
            raise InvalidInput(f"{name} is no home; homes: {', '.join(self._places) or 'none'}")
        return self._places[name]

    def get_home(self, store: str | None = None) -> ServedHome:
        """Return a home, reopened if its database was replaced.

        Raises:
            InvalidInput: the home is not served.
        """
        place = self.get_place(store)
        name = store or self.home_names[0]
        with self._lock:
            home = self._homes.get(name)
            if home is None or home.is_replaced():
                self._retire_home(name)
                home = self._homes[name] = self._open_home(name, place)
        return home

    def get_homes(self) -> list[ServedHome]:
        """Return all served homes."""
        return [self.get_home(name) for name in self._places]

    def get_store(self, store: str | None = None) -> ServedStore:
        """Return a store by name.

        Without a name, return the first home, or all transcripts if no home is served.

        Raises:
            InvalidInput: the store is not served.
        """
        if store is None:
            return self.get_home() if self._places else self.get_transcripts(None)
        self.check_name(store)
        return self.get_home(store) if store in self._places else self.get_transcripts(store)

    def get_stores(self) -> list[ServedStore]:
        """Return all homes, and all transcript stores as one."""
        homes: list[ServedStore] = [*self.get_homes()]
        return [*homes, self.get_transcripts(None)] if self._transcripts else homes

    def index_transcripts(self, report: Callable[[int, int], object] | None = None) -> None:
        """Index all transcripts, for a process that runs once.

        Errors are left to the call that follows.
        """
        if self._transcripts:
            self._get_index().index_all(report)

    def start_indexing(self) -> None:
        """Start a thread that indexes transcripts, if there are any and the process runs long."""
        if self._transcripts and self.options.runs_long:
            self._get_index().start_worker()

    def get_transcripts(self, store: str | None) -> ServedTranscripts:
        """Return the view of one transcript store or of all of them."""
        from mcp_serve.stores.transcripts import ServedTranscripts  # noqa: PLC0415 -- after the first answer

        index = self._get_index()
        with self._lock:
            if store not in self._views:
                self._views[store] = ServedTranscripts(
                    self._transcripts if store is None else [store],
                    index.open,
                    index.get_labels,
                    is_one_of_several=len(self.names) > 1,
                    redact=self.options.redact,
                )
            return self._views[store]

    def _get_index(self) -> TranscriptIndex:
        from mcp_serve.stores.transcripts import TranscriptIndex  # noqa: PLC0415 -- after the first answer

        with self._lock:
            if self._index is None:
                self._index = TranscriptIndex(self._transcripts, watch=self.options.runs_long)
            return self._index

    def find_store(self, *, plan: str | None = None, batch: str | None = None) -> str | None:
        """Return the store that holds a plan or batch, or None."""
        if len(self.names) == 1:
            return None
        store_name = next(
            (name for name in self._places if self._has_plan_or_batch(name, plan, batch)), None
        )
        return (
            self._find_label_store(batch)
            if store_name is None and batch is not None
            else store_name
        )

    def _find_label_store(self, batch: str) -> str | None:
        """Return the transcript store whose labels a batch has edited, or None."""
        if not self._transcripts:
            return None
        try:
            store = self._get_index().get_labels().get_batch(batch).store
        except SessionError:
            return None
        return store if store in self._transcripts else None

    def _has_plan_or_batch(self, name: str, plan: str | None, batch: str | None) -> bool:
        try:
            ledger = self.get_home(name).ledger
            if plan is not None:
                ledger.get_plan(plan)
            elif batch is not None:
                ledger.get_batch(batch)
        except Conflict:
            return True  # it expired there, and the call reports that
        except SessionError:
            return False
        return True

    def _open_home(self, name: str, place: Path | DatabaseAddress) -> ServedHome:
        from mcp_serve.stores.homes import ServedHome  # noqa: PLC0415 -- loaded after the first answer

        return ServedHome(
            place,
            name=name,
            is_one_of_several=len(self.names) > 1,
            read_only=self.options.read_only,
            redact=self.options.redact,
            trash=self.options.trash,
            load_extension=self.options.load_extension,
        )

    def _retire_home(self, name: str) -> None:
        """Replace a home, and keep it open for the calls that still use it."""
        if name in self._homes:
            self._retired.append(self._homes.pop(name))
        while len(self._retired) > _MAX_RETIRED_HOMES:
            self._retired.popleft().close()

    def close(self) -> None:
        """Close all open homes and the index of transcripts."""
        if self._index is not None:
            self._index.close()
        for home in (*self._homes.values(), *self._retired):
            home.close()

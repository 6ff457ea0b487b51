"""The stores that a server serves, each with its home."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from session_core import Conflict, InvalidInput, NotFound, SessionError, find_home, list_homes

if TYPE_CHECKING:
    from mcp_serve.homes import ServedHome

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
    # Called once, after the first answer and before anything is opened.
    before: Callable[[], object] | None = None


class ServedStores:
    """The homes of a server; each is opened by the first call that needs it.

    Raises:
        NotFound: a store does not exist.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        home = find_home(options.home)
        existing = list_homes(home)
        names = list(dict.fromkeys(options.stores)) or list(existing)[:1]
        if options.all_profiles:
            names += [name for name in existing if name.startswith("hermes:")]
        for name in names:
            if name not in existing:
                raise NotFound(f"no store {name!r} in {home.path}; existing: {', '.join(existing)}")
        self._paths = {name: existing[name] for name in names}
        self._homes: dict[str, ServedHome] = {}
        self._retired: deque[ServedHome] = deque()
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The names of the stores; the first is the default of a call."""
        return list(self._paths)

    def get_path(self, store: str | None = None) -> Path:
        """Return the folder of a store.

        Raises:
            InvalidInput: the store is not served.
        """
        name = store or self.names[0]
        if name not in self._paths:
            from mcp_serve.redaction.redaction import redact  # noqa: PLC0415 -- loaded after the first answer

            shown = redact(name)  # redact first: a cut secret is not recognised
            raise InvalidInput(f"store {shown!r:.80} is not served; valid: {', '.join(self.names)}")
        return self._paths[name]

    def get_home(self, store: str | None = None) -> ServedHome:
        """Return the home of a store, reopened if its database was replaced.

        Raises:
            InvalidInput: the store is not served.
        """
        name, path = store or self.names[0], self.get_path(store)
        with self._lock:
            home = self._homes.get(name)
            if home is None or home.is_replaced():
                self._retire_home(name)
                home = self._homes[name] = self._open_home(name, path)
        return home

    def get_homes(self) -> list[ServedHome]:
        """Return the homes of all served stores."""
        return [self.get_home(name) for name in self.names]

    def find_store(self, *, plan: str | None = None, batch: str | None = None) -> str | None:
        """Return the store that holds a plan or batch, or None."""
        if len(self._paths) == 1:
            return None
        return next((name for name in self._paths if self._has_handle(name, plan, batch)), None)

    def _has_handle(self, name: str, plan: str | None, batch: str | None) -> bool:
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

    def _open_home(self, name: str, path: Path) -> ServedHome:
        from mcp_serve.homes import ServedHome  # noqa: PLC0415 -- loaded after the first answer

        return ServedHome(
            path,
            name=name,
            is_one_of_several=len(self._paths) > 1,
            read_only=self.options.read_only,
            redact=self.options.redact,
            trash=self.options.trash,
            load_extension=self.options.load_extension,
        )

    def _retire_home(self, name: str) -> None:
        """Replace a home; it stays open for the calls that still use it."""
        if name in self._homes:
            self._retired.append(self._homes.pop(name))
        while len(self._retired) > _MAX_RETIRED_HOMES:
            self._retired.popleft().close()

    def close(self) -> None:
        """Close all open homes."""
        for home in (*self._homes.values(), *self._retired):
            home.close()

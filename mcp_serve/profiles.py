"""What is served: one home or several, by profile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from session_core import Conflict, InvalidInput, NotFound, SessionError, find_home, list_profiles

if TYPE_CHECKING:
    from mcp_serve.homes import ServedHome

_MAX_RETIRED_HOMES = 8
"""So many homes whose database was replaced stay open; no file is replaced as often in one call."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is started."""

    home: str | None = None
    profiles: Sequence[str] = ()
    all_profiles: bool = False
    read_only: bool = False
    redact: bool = True
    trash: Path | None = None
    """The folder for new trash, where that is not to be with the rest."""
    confirm: bool = True
    """Whether the human is asked before a plan is applied, where the client can ask."""
    load_extension: bool = False
    """Whether the extension of a home is loaded, which some search indexes need to be written."""
    before: Callable[[], object] | None = None
    """Called once before anything is opened, and behind the first answer."""


class ServedProfiles:
    """The homes of a server; none is opened before a call needs it.

    Raises:
        NotFound: there is no such profile.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.root = find_home(options.home).path
        known = list_profiles(self.root)
        wanted = list(known) if options.all_profiles else list(dict.fromkeys(options.profiles))
        for name in wanted:
            if name not in known:
                raise NotFound(f"no profile {name!r} in {self.root}; there are {', '.join(known)}")
        self._paths = {name: known[name] for name in wanted or ["default"]}
        self._homes: dict[str, ServedHome] = {}
        self._left: deque[ServedHome] = deque()
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The profiles, the one that a call means which names none first."""
        return list(self._paths)

    def get_path(self, profile: str | None = None) -> Path:
        """Return the folder of a profile.

        Raises:
            InvalidInput: it is not served.
        """
        name = profile or self.names[0]
        if name not in self._paths:
            from mcp_serve.redaction.redaction import redact  # noqa: PLC0415 -- behind the first answer

            shown = redact(name)  # before it is cut, or the rest of a secret is not recognised
            raise InvalidInput(f"no profile {shown!r:.80} here; there are {', '.join(self.names)}")
        return self._paths[name]

    def get_home(self, profile: str | None = None) -> ServedHome:
        """Return the home of a profile, anew where another database has taken its place.

        Raises:
            InvalidInput: it is not served.
        """
        name, path = profile or self.names[0], self.get_path(profile)
        with self._lock:
            home = self._homes.get(name)
            if home is None or home.is_replaced():
                self._retire_home(name)
                home = self._homes[name] = self._open_home(name, path)
        return home

    def find_profile(self, *, plan: str | None = None, batch: str | None = None) -> str | None:
        """Return the profile whose plan or batch it is; None where no home knows it."""
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
            return True  # it has run out there, which is said by the call
        except SessionError:
            return False
        return True

    def _open_home(self, name: str, path: Path) -> ServedHome:
        from mcp_serve.homes import ServedHome  # noqa: PLC0415 -- behind the first answer

        return ServedHome(
            path,
            profile=name if len(self._paths) > 1 else None,
            read_only=self.options.read_only,
            redact=self.options.redact,
            trash=self.options.trash,
            load_extension=self.options.load_extension,
        )

    def _retire_home(self, name: str) -> None:
        """Open a home no more; it stays open for a while, for the calls that are under way."""
        if name in self._homes:
            self._left.append(self._homes.pop(name))
        while len(self._left) > _MAX_RETIRED_HOMES:
            self._left.popleft().close()

    def close(self) -> None:
        """Close every home that was opened."""
        for home in (*self._homes.values(), *self._left):
            home.close()

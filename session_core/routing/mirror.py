"""sessions.json: the mirror of the routes, or their only copy without a database.

The key `_README` comes first in the file. Every key that begins with `_` is metadata, which readers
skip and writers keep. A file that cannot be read is renamed before it is replaced.

`Debouncer` and `Backoff` schedule the delayed and repeated writes of the mirror.
"""

from __future__ import annotations

import errno
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from session_core import _atomic
from session_core.errors import Denied, SessionError, StorageError, StorageFull
from session_core.home import OWN_HOME_NOTE

MIRROR_NAME = "sessions.json"
TEMP_PREFIX = ".sessions_"
LOCK_NAME = ".sessions.lock"

README = (
    "This file is a mirror of the routing index: it says which session each chat is in now. The "
    "index itself is the table gateway_routing in state.db, and this is not the list of sessions: "
    "all of them (CLI, TUI, gateway) are in state.db too; 'hermes sessions list' or "
    "'mcp-sessions list' shows them. To do without this file set gateway.write_sessions_json to "
    "false in config.yaml."
)

_OWNER_PATTERN = re.compile(re.escape(OWN_HOME_NOTE) + r" as (\w+);")


def build_own_readme(home: str | None = None) -> str:
    """Return the `_README` text for a home of our own, with the id of that home."""
    # Not a sign of Hermes if the database is gone, and not read by another home in this folder.
    return f"{README} {OWN_HOME_NOTE}{f' as {home}' if home else ''}; it is no home of Hermes."


_README_KEY = "_README"

_STALE_AFTER_S = 3600.0
_MAX_BYTES = 1 << 27
"""The size of a mirror of about 100,000 chats; a larger file is not read."""
_CHUNK_MEMBERS = 500
_ERROR_CLASSES: Mapping[int, type[SessionError]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), StorageFull),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), Denied),
}

Signature = tuple[int, int, int]


@dataclass(slots=True)
class MirrorContents:
    """The contents of a mirror: entries, metadata, and values that are not entries."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    odd: dict[str, Any] = field(default_factory=dict)
    broken: bool = False

    @property
    def owner(self) -> str | None:
        """The id of the home of our own that wrote the file, or None."""
        match = _OWNER_PATTERN.search(str(self.metadata.get(_README_KEY, "")))
        return match[1] if match else None


class Mirror:
    """Reads and writes one sessions.json."""

    def __init__(
        self,
        folder: Path,
        *,
        home: Path | None = None,
        explain: Callable[[], str] | None = build_own_readme,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = folder / MIRROR_NAME
        self._home = home
        # None for homes of Hermes 0.17, which rejects a file whose first value is a string.
        self._explain = explain
        self.problems: dict[str, None] = {}
        self._clock = clock
        self._contents = MirrorContents()
        self._signature: Signature | None = None
        self._written = False

    def read(self, *, with_entries: bool = True) -> MirrorContents:
        """Return the contents of the file, which is read again only after a change.

        Without `with_entries`, a file that this object wrote is not read at all.
        """
        # Taken before the file is read: a change in between leads to another read.
        signature = self.get_signature()
        if signature is None:
            self._contents = MirrorContents()
        elif signature != self._signature or (with_entries and self._written):
            self._contents = self._parse_file()
        self._signature, self._written = signature, self._written and not with_entries
        return self._contents

    def get_signature(self) -> Signature | None:
        """Return a value that changes with the file, or None if the file does not exist."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        # A file of the same size that replaces it within a tick of the clock has another inode.
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def write(self, members: Iterable[str], *, odd: Mapping[str, Any] | None = None) -> None:
        """Write a JSON object: the explanation, then `members`, then all other values.

        Raises:
            SessionError: the file could not be written and is unchanged.
        """
        # Metadata and values of other programs in the file are written again.
        contents = self.read(with_entries=False)
        with self._translate_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Never overwrite a file that could not be read.
            if contents.broken:
                renamed_path = _atomic.rename_broken_file(self.path, self._clock(), self._home)
                self.problems[f"{self.path} was broken and was renamed to {renamed_path.name}"] = (
                    None
                )
                contents = MirrorContents()
            metadata = self._build_metadata(contents.metadata) | contents.metadata
            explanation = {name: metadata.pop(name) for name in (_README_KEY,) if name in metadata}
            other_values = contents.odd if odd is None else odd
            # Hermes 0.17 stops reading at the first value that is not an entry.
            lines = chain(
                _format_members(explanation),
                members,
                _format_members(metadata),
                _format_members(other_values),
            )
            metadata |= explanation
            _atomic.write_atomic(
                self.path, _format_object(lines), prefix=TEMP_PREFIX, home=self._home
            )
        self._contents = MirrorContents(metadata=metadata, odd=dict(other_values))
        self._signature, self._written = self.get_signature(), True

    def _build_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the `_README` member to write, and remove the explanation of another home."""
        if _OWNER_PATTERN.search(str(metadata.get(_README_KEY, ""))):
            del metadata[_README_KEY]
        return {_README_KEY: self._explain()} if self._explain else {}

    def forget_entries(self) -> None:
        """Release the entries in memory.

        The next read reads the file.
        """
        self._contents.entries = {}
        self._written = True

    def save_broken_entries(self, stored: Mapping[str, Any]) -> None:
        """Write values that are not readable entries to a separate file."""
        with self._translate_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = _atomic.reserve_broken_name(self.path, self._clock(), self._home)
            _atomic.write_atomic(
                path, (json.dumps(stored).encode(),), prefix=TEMP_PREFIX, home=self._home
            )
        self.problems[f"unreadable values of {', '.join(stored)} were moved to {path.name}"] = None

    @contextmanager
    def lock_file(self, patience_s: float | None = None) -> Iterator[None]:
        """Hold the lock file, so that no other process writes the mirror."""
        with (
            self._translate_errors(),
            # A file of its own, since each write replaces the mirror and a lock on it.
            _atomic.hold_file_lock(self.path.with_name(LOCK_NAME), patience_s),
        ):
            yield

    def remove_leftovers(self) -> None:
        """Remove the temporary files of killed writers."""
        if self.path.parent.is_dir():
            now = self._clock()
            _atomic.delete_leftovers(
                self.path.parent, TEMP_PREFIX, older_than_s=_STALE_AFTER_S, now=now
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = _ERROR_CLASSES.get(error.errno or 0, StorageError)
            raise kind(f"{self.path} cannot be read or written: {error.strerror}") from error

    def _parse_file(self) -> MirrorContents:
        try:
            with self._translate_errors():
                data = _atomic.read_file(self.path, _MAX_BYTES)
            # An editor may have added a byte order mark.
            loaded = json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            self.problems[f"{self.path} cannot be read: {type(error).__name__}"] = None
            return MirrorContents(broken=True)
        if not isinstance(loaded, dict):
            self.problems[f"{self.path} does not hold a JSON object"] = None
            return MirrorContents(broken=True)
        return self._sort_members(loaded)

    def _sort_members(self, loaded: Mapping[str, Any]) -> MirrorContents:
        contents = MirrorContents()
        for name, value in loaded.items():
            if name.startswith("_"):
                contents.metadata[name] = value
            elif isinstance(value, dict):
                contents.entries[name] = value
            else:
                contents.odd[name] = value
                self.problems[f"{name} in {self.path} is not an entry"] = None
        return contents


class NoMirror(Mirror):
    """A mirror that reads and writes nothing, for a store without a folder."""

    def __init__(self) -> None:
        super().__init__(Path())

    def read(self, *, with_entries: bool = True) -> MirrorContents:
        """Return empty contents."""
        del with_entries
        return MirrorContents()

    def get_signature(self) -> Signature | None:
        """Return None, because there is no file."""
        return None

    def write(self, members: Iterable[str], *, odd: Mapping[str, Any] | None = None) -> None:
        """Do nothing, because there is no file."""

    def save_broken_entries(self, stored: Mapping[str, Any]) -> None:
        """Report broken entries, which cannot be kept without a folder."""
        for key in stored:
            self.problems[f"the broken route of {key} was replaced"] = None

    @contextmanager
    def lock_file(self, patience_s: float | None = None) -> Iterator[None]:
        """Lock nothing, because the table is the only copy."""
        del patience_s
        yield

    def remove_leftovers(self) -> None:
        """Do nothing, because there are no files."""


def _format_members(stored: Mapping[str, Any]) -> list[str]:
    return [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in stored.items()]


def _format_object(members: Iterable[str]) -> Iterator[bytes]:
    """Yield the bytes of a JSON object, one line per member, in bounded pieces."""
    remaining = iter(members)
    separator = "{\n"
    while piece := list(islice(remaining, _CHUNK_MEMBERS)):
        yield (separator + ",\n".join(piece)).encode()
        separator = ",\n"
    yield b"{\n}\n" if separator == "{\n" else b"\n}\n"


RETRY_S = 1.0
"""The delay before the first retry; it doubles with each one."""

_MAX_RETRY_S = 30.0


class Debouncer:
    """Makes one delayed call in a thread of its own.

    With `waited_for`, a process that ends waits for a scheduled call.
    """

    def __init__(self, call: Callable[[], object], *, waited_for: bool = True) -> None:
        self._call = call
        self._waited_for = waited_for
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def schedule(self, delay_s: float) -> None:
        """Schedule the call unless it is scheduled already.

        If the process is ending and cannot start threads, a call with `waited_for` is made at once.
        """
        with self._lock:
            if self._timer is not None:
                return
            self._timer = threading.Timer(delay_s, self._run_call)
            self._timer.daemon = not self._waited_for
            try:
                self._timer.start()
            except RuntimeError:  # the process is ending
                self._timer = None
            else:
                return
        if self._waited_for:
            self._call()

    def cancel(self) -> bool:
        """Cancel the call.

        Return True if it was scheduled.
        """
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _run_call(self) -> None:
        # Cleared before the call, so that a change during the call schedules another one.
        if self.cancel():
            self._call()


class Backoff:
    """Repeats a failed call with growing delays, which the end of the process does not wait for."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._later = Debouncer(call, waited_for=False)
        self._delay_s = RETRY_S

    def schedule(self) -> None:
        """Schedule the call with a longer delay than the last time."""
        self._later.schedule(self._delay_s)
        self._delay_s = min(2 * self._delay_s, _MAX_RETRY_S)

    def reset(self) -> None:
        """Cancel the call and reset the delay, after a success or before closing."""
        self._later.cancel()
        self._delay_s = RETRY_S

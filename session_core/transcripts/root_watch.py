"""Changes of a root since the last scan, found by a kernel watch or a sweep.

A watch needs no thread: the kernel collects the events until the next scan reads them. A root that
cannot be watched is swept at each scan, and so is a root whose watch has missed a change, as on
network file systems.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from session_core.transcripts.database_feed import get_database_identity
from session_core.transcripts.roots import (
    Root,
    Sweep,
    is_database_format,
    sweep_root,
    update_file,
)

_CHECK_S = 30.0
"""The interval at which a watched root is swept nevertheless."""


class RootSweeper:
    """Finds the changed files of one root."""

    def __init__(self, root: Root, is_wanted: Callable[[str], bool]) -> None:
        self.root = root
        self.sweep = Sweep()
        self._is_wanted = is_wanted
        self._is_database = is_database_format(root.format)
        self._user_id = os.getuid() if hasattr(os, "getuid") else None
        self._watch: FolderWatch | None = None
        self._swept_at = 0.0

    def start_watch(self) -> bool:
        """Watch the root if the system supports it.

        Return True if the root is watched.
        """
        if self._watch is None:
            try:
                self._watch = FolderWatch()
            except (OSError, ImportError):
                return False
            self._swept_at = 0.0
        return True

    @property
    def is_watching(self) -> bool:
        """True if the kernel reports the changes."""
        return self._watch is not None

    def stop_watch(self) -> None:
        """Stop watching, so that each scan sweeps the root."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def forget_sweep(self) -> None:
        """Forget the last sweep, so that the next scan sweeps the root."""
        self.sweep = Sweep()

    def scan_files(self) -> bool:
        """Update `sweep`.

        Return False if no file has changed.
        """
        if self._watch is None or not self.sweep.folders:
            return self._sweep_root()
        changed = self._watch.read_changes()
        if changed == set() and time.monotonic() - self._swept_at > _CHECK_S:
            missed = self._sweep_root()
            # An event may come late; a change that still has none was missed.
            if missed and self._watch is not None and not self._watch.read_changes():
                self.stop_watch()
            return missed
        if changed is None or (self._is_database and changed):
            return self._sweep_root()
        for path in changed:
            if self._is_wanted(path):
                update_file(self.sweep, self.root, path, self._user_id)
        return bool(changed)

    def _sweep_root(self) -> bool:
        """Sweep the whole root.

        Return False if no file has changed.
        """
        before, self._swept_at = self.sweep, time.monotonic()
        self.sweep = self._find_files()
        return self.sweep.files != before.files

    def _watch_folder(self, folder: str) -> None:
        """Watch a folder before it is swept, so that each later change causes an event."""
        if self._watch is not None:
            try:
                self._watch.add_folder(self.root.path, folder)
            except OSError:
                self.stop_watch()

    def _find_files(self) -> Sweep:
        sweep = sweep_root(self.root, self._is_wanted, self._user_id, self._watch_folder)
        if self._is_database:
            for path, identity in sweep.files.items():
                full_path = f"{self.root.path}/{path}"
                sweep.files[path] = get_database_identity(full_path, identity)
        return sweep


class FolderWatch:
    """Watches folders with inotify. Folders that vanish are no longer watched.

    Raises:
        OSError: the system has no room for another watch, or does not support watches.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("folders can be watched on Linux only")
        library: Any = importlib.import_module("inotify_simple")
        flags = library.flags
        self._overflow, self._ignored = flags.Q_OVERFLOW, flags.IGNORED
        self._is_folder = flags.ISDIR
        self._mask = (
            flags.CREATE
            | flags.MODIFY
            | flags.ATTRIB
            | flags.MOVED_FROM
            | flags.MOVED_TO
            | flags.DELETE
            | flags.DELETE_SELF
            | flags.MOVE_SELF
            | flags.ONLYDIR
            | flags.DONT_FOLLOW
        )
        self._inotify = library.INotify()
        self._folders: dict[int, str] = {}
        self._watched: set[str] = set()

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()

    def add_folder(self, root: str, folder: str) -> None:
        """Watch a folder below a root, unless it is gone or watched already."""
        if folder in self._watched:
            return
        # A folder that may not be read is swept in vain too; its parent reports that it changed.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            descriptor = self._inotify.add_watch(os.path.join(root, folder), self._mask)  # noqa: PTH118 -- os.path avoids building a Path
            self._folders[descriptor] = folder
            self._watched.add(folder)

    def read_changes(self) -> set[str] | None:
        """Return the changed paths, or None if the whole root must be swept."""
        paths: set[str] | None = set()
        for event in self._inotify.read(timeout=0):
            folder = self._folders.get(event.wd)
            if event.mask & (self._overflow | self._ignored | self._is_folder) or not event.name:
                self._drop_watch(event.wd, event.mask)
                paths = None
            elif folder is None:
                paths = None
            elif paths is not None:
                paths.add(f"{folder}/{event.name}" if folder else event.name)
        return paths

    def _drop_watch(self, descriptor: int, mask: int) -> None:
        """Forget a folder whose watch has ended or that was moved."""
        if mask & self._overflow:
            return
        folder = self._folders.get(descriptor)
        if mask & self._ignored:
            self._folders.pop(descriptor, None)
            if folder is not None:
                self._watched.discard(folder)
        elif mask & self._is_folder:
            # A folder below may have another name now: all are registered again by their paths.
            self._watched.clear()

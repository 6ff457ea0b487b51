"""The library of transcripts of a server, and the thread that indexes and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from session_core import SessionError
from session_core.ledger import Labels
from session_core.transcripts import TranscriptStore

_SLICE_S = 0.1
_LONG_SLICE_S = 0.5
# A command that answers a question must not wait for the first copies of everything.
_KEEP_S = 1.0
_PAUSE_S = 0.01
_PARTS = 1000
# How often the thread looks for history again once everything is indexed; calls see what is new.
_IDLE_S = 30.0
_JOIN_S = 2.0


class TranscriptIndex:
    """Opens the transcripts on first use; `watch` lets the kernel report their changes."""

    def __init__(self, stores: Sequence[str], *, watch: bool) -> None:
        self.labels = Labels()
        self._stores = stores
        self._watch = watch
        self._library: TranscriptStore | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._worker: threading.Thread | None = None

    def open(self) -> TranscriptStore:
        """Return the library.

        Raises:
            Denied: the folder of the index cannot be written.
        """
        with self._lock:
            if self._library is None:
                self._library = TranscriptStore(stores=self._stores)
                if self._watch:
                    self._library.start_watch()
            return self._library

    def index_all(self, report: Callable[[int, int], object] | None) -> None:
        """Index until nothing is left, and keep what is new for a moment.

        An error ends it, and the next call reports that.
        """
        with suppress(SessionError):
            while self.open().work(_LONG_SLICE_S):
                if report is not None:
                    report(int(self.open().measure_share() * _PARTS), _PARTS)
            self.open().keep.work(_KEEP_S)

    def start_worker(self) -> None:
        """Start the thread that indexes."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="transcripts", daemon=True)
            self._worker.start()

    def close(self) -> None:
        """Stop the thread and close the library."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.join(_JOIN_S)
        with self._lock:
            self.labels.close()
            if self._library is not None:
                self._library.close()

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                is_left = self.open().work(_SLICE_S) or self.open().keep.work(_SLICE_S)
            except SessionError:  # the next call reports it
                is_left = False
            self._stopped.wait(_PAUSE_S if is_left else _IDLE_S)

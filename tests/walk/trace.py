"""Trace the functions and the SQL of one call, in every thread that works for it."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from session_core import _sqlite3

ROOT = Path(__file__).parents[2]
HOME_FILE = "/state.db"
OWN_PACKAGES = tuple(f"{ROOT / package}/" for package in ("session_core", "mcp_serve"))

_INTERNAL_PATTERN = re.compile(r"^--|'\w+_(data|idx|content|docsize|config)'")
_CHANGE_PATTERN = re.compile(r"^(INSERT|UPDATE|DELETE)\b")
_PLAN_PATTERN = re.compile(r"^SELECT \* FROM plans WHERE handle")
_SESSION_ROW_PATTERN = re.compile(r"\bFROM sessions(?: s)?\s+WHERE (?:s\.)?id = ")


@dataclass
class CallWalk:
    """The functions and statements of one call."""

    functions: set[CodeType] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    depth: int = 0
    moves: int = 0
    statements: list[str] = field(default_factory=list)
    snapshots: int = 0
    """The number of read transactions on the database of the home."""

    @property
    def plan_loads(self) -> int:
        """The number of times that a plan record was read."""
        return sum(1 for statement in self.statements if _PLAN_PATTERN.search(statement))

    @property
    def session_reads(self) -> int:
        """The number of times that a session row was read by its id."""
        return sum(1 for statement in self.statements if _SESSION_ROW_PATTERN.search(statement))


class CallTracer:
    """Record walks. Install it before the threads start that are to be traced."""

    def __init__(self) -> None:
        self._walk: CallWalk | None = None
        self._lock = threading.Lock()
        self._threads = threading.local()

    @contextmanager
    def install(self) -> Iterator[None]:
        """Trace every thread and connection that is made inside the block."""
        connect = _sqlite3.connect
        _sqlite3.connect = self._is_traced(connect)
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type] -- None removes it
            _sqlite3.connect = connect

    @contextmanager
    def record_walk(self) -> Iterator[CallWalk]:
        """Record the calls and statements of the block."""
        self._walk = walk = CallWalk()
        try:
            yield walk
        finally:
            self._walk = None

    def _is_traced(self, connect: Callable[..., _sqlite3.Connection]) -> Callable[..., Any]:
        def connect_traced(*args: Any, **kwargs: Any) -> _sqlite3.Connection:
            connection = connect(*args, **kwargs)
            is_home = HOME_FILE in str(args[0])
            connection.set_trace_callback(lambda statement: self._on_statement(statement, is_home))
            return connection

        return connect_traced

    def _on_statement(self, statement: str, is_home: bool) -> None:
        walk = self._walk
        if walk is None or _INTERNAL_PATTERN.search(statement):
            return
        text = " ".join(statement.split())
        # A change is reported once more for each trigger that it fires.
        if _CHANGE_PATTERN.search(text) and walk.statements[-1:] == [text]:
            return
        walk.statements.append(text)
        if is_home and statement == "BEGIN":
            walk.snapshots += 1

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        if not name.startswith(OWN_PACKAGES) or frame.f_code.co_name.startswith("<"):
            return
        threads = self._threads
        depth = getattr(threads, "depth", 0) + (1 if event == "call" else -1)
        threads.depth = max(depth, 0)
        walk = self._walk
        if walk is None or event == "return":
            return
        with self._lock:
            walk.functions.add(frame.f_code)
            walk.modules.add(name)
            walk.depth = max(walk.depth, depth)
            if getattr(threads, "module", None) != name:
                walk.moves += 1
        threads.module = name

"""Runs under the Python of a real hermes-agent and does with its `SessionDB` what it is told.

`hermes_driver.py HOME` reads one JSON job a line and answers each with one line. It never imports
our package, and nothing of Hermes is imported before its home is set.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import hermes_compression
import hermes_homes
import hermes_kinds
import hermes_random
import hermes_routes

ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")


class Clock:
    """Stands in for the module `time` of Hermes, so that two homes can have the same times."""

    now: float | None = None

    def time(self) -> float:
        """Return the time that was set, or the real one."""
        return time.time() if self.now is None else self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Driver(hermes_routes.Routes, hermes_compression.Compression):
    """The jobs; each is a method, its arguments are those of the JSON object."""

    def __init__(self, home: Path) -> None:
        import hermes_state  # noqa: PLC0415 -- only after its home is set

        self.home = home
        self.clock_face = Clock()
        hermes_state.time = self.clock_face
        self.db = hermes_state.SessionDB(db_path=home / "state.db")

    def methods(self) -> list[str]:
        """Say what this version has."""
        return [name for name in dir(self.db) if not name.startswith("_")]

    def calls(self, calls: list[list[Any]]) -> list[dict[str, Any]]:
        """Call methods by name: `[name, args, kwargs]` each; errors are answers."""
        return [self._call(*call) for call in calls]

    def clock(self, now: float | None) -> None:
        """Set the time, or let it be the real one."""
        self.clock_face.now = now

    def sql(self, statements: list[list[Any]]) -> list[list[Any]]:
        """Run statements in one transaction of their connection, as damage or for a look."""
        return [[list(row) for row in rows] for rows in hermes_homes.run(self.db, statements)]

    def build(self) -> None:
        """Fill the home with everything that real ones have, damage too."""
        hermes_homes.build(self.db, self.home)

    def build_kinds(self, damaged: bool) -> dict[str, Any]:
        """Fill it also with what each kind of plan is about; return what is stated of it."""
        hermes_homes.build(self.db, self.home, damaged=damaged)
        return hermes_kinds.Kinds(self.db, self.home, damaged=damaged).fill()

    def build_random(self, seed: int, conversations: int) -> None:
        """Fill the home with random conversations."""
        hermes_random.RandomHome(self.db, seed).fill(conversations)

    def options(self, method: str) -> list[str]:
        """Return the arguments that a method of this version takes."""
        return list(inspect.signature(getattr(self.db, method)).parameters)

    def append(self, session_id: str, seconds: float, pause: float) -> list[int]:
        """Append messages for so long, with a pause after each; return their ids."""
        ids: list[int] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ids.append(self.db.append_message(session_id, "user", f"theirs {len(ids)}"))
            time.sleep(pause)
        return ids

    def close(self) -> None:
        """Close the database, which folds its log back."""
        self.store_close()
        self.db.close()

    def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"value": getattr(self.db, name)(*args, **kwargs)}
        except Exception as error:  # noqa: BLE001 -- every error is an answer
            return {"error": [type(error).__name__, str(error)]}


def plain(value: Any) -> Any:
    """Return what JSON has no word for."""
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, (set, tuple)):
        return list(value)
    return dict(value) if hasattr(value, "keys") else str(value)


def main() -> None:
    """Answer jobs until the input ends."""
    os.dup2(2, 1)
    home = Path(sys.argv[1])
    os.environ["HERMES_HOME"] = str(home)
    driver = Driver(home)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"value": getattr(driver, job.pop("job"))(**job)}
        except Exception as error:  # noqa: BLE001 -- told to the test
            answer = {"error": f"{type(error).__name__}: {error}"}
        ANSWERS.write(json.dumps(answer, default=plain) + "\n")
        ANSWERS.flush()


if __name__ == "__main__":
    main()

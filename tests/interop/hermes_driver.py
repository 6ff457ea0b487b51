"""A driver that runs jobs on the `SessionDB` of a real hermes-agent, under its Python.

`hermes_driver.py HOME` reads one JSON job per line and prints one line for each. It never imports
our package, and imports nothing of Hermes before its home is set.
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


class Clock:
    """A replacement of the module `time` of Hermes, so that two homes get the same times."""

    now: float | None = None

    def time(self) -> float:
        """Return the time that was set, or the real one."""
        return time.time() if self.now is None else self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Driver(hermes_routes.Routes, hermes_compression.Compression):
    """The jobs: each is a method with the arguments of the JSON object."""

    def __init__(self, home: Path) -> None:
        import hermes_state  # noqa: PLC0415 -- only after its home is set

        self.home = home
        self.clock_face = Clock()
        hermes_state.time = self.clock_face
        self.db = hermes_state.SessionDB(db_path=home / "state.db")

    def methods(self) -> list[str]:
        """Return the methods of this version."""
        return [
            name
            for name in dir(self.db)
            if not name.startswith("_") and callable(getattr(self.db, name))
        ]

    def calls(self, calls: list[list[Any]]) -> list[dict[str, Any]]:
        """Call methods by name, each `[name, args, kwargs]`, and return errors as answers."""
        return [self._call(*call) for call in calls]

    def clock(self, now: float | None) -> None:
        """Set the time, or return to the real one."""
        self.clock_face.now = now

    def sql(self, statements: list[list[Any]]) -> list[list[Any]]:
        """Run statements in one transaction of the connection."""
        return [[list(row) for row in rows] for rows in hermes_homes.run(self.db, statements)]

    def build(self) -> None:
        """Fill the home with all features of real ones, including damage."""
        hermes_homes.build(self.db, self.home)

    def build_kinds(self, damaged: bool) -> dict[str, Any]:
        """Also add items for each kind of plan, and return the expectations."""
        hermes_homes.build(self.db, self.home, damaged=damaged)
        return hermes_kinds.Kinds(self.db, self.home, damaged=damaged).fill()

    def build_random(self, seed: int, conversations: int) -> None:
        """Fill the home with random conversations."""
        hermes_random.RandomHome(self.db, seed).fill(conversations)

    def options(self, method: str) -> list[str]:
        """Return the arguments of a method of this version."""
        return list(inspect.signature(getattr(self.db, method)).parameters)

    def append(self, session_id: str, count: int, pause: float) -> list[int]:
        """Append messages, with a pause after each, and return their ids."""
        ids: list[int] = []
        for number in range(count):
            ids.append(self.db.append_message(session_id, "user", f"theirs {number}"))
            time.sleep(pause)
        return ids

    def close(self) -> None:
        """Close the database, which checkpoints its log."""
        self.store_close()
        self.db.close()

    def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"value": getattr(self.db, name)(*args, **kwargs)}
        except Exception as error:  # noqa: BLE001 -- every error is an answer
            return {"error": [type(error).__name__, str(error)]}


def plain(value: Any) -> Any:
    """Return values without a JSON form as JSON."""
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, (set, tuple)):
        return list(value)
    return dict(value) if hasattr(value, "keys") else str(value)


def main() -> None:
    """Run jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    home = Path(sys.argv[1])
    os.environ["HERMES_HOME"] = str(home)
    driver = Driver(home)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"value": getattr(driver, job.pop("job"))(**job)}
        except Exception as error:  # noqa: BLE001 -- reported to the test
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer, default=plain) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()

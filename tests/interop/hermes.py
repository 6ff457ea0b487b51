"""A real hermes-agent in its own process, and copies of the homes that it made."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.peers import make_peer_environment, peer_python

if TYPE_CHECKING:
    from typing_extensions import Self

DRIVER = Path(__file__).with_name("hermes_driver.py")


class Refused(Exception):
    """An error of this kind that Hermes raised."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Hermes:
    """A process with one `SessionDB` of Hermes, whose methods are called by name."""

    def __init__(self, version: str, home: Path, *arguments: str) -> None:
        self.version = version
        home.mkdir(parents=True, exist_ok=True)
        self._errors = home.with_name(f"{home.name}.stderr").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [peer_python(f"h{version}"), DRIVER, home, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=make_peer_environment(home),
            text=True,
            encoding="utf-8",
        )
        self._turn = threading.Lock()
        self.methods = frozenset(self.job("methods"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.job("close")
        with self._process, self._errors:
            pass

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        self._process.kill()
        self._process.wait(timeout=20)

    def has(self, method: str) -> bool:
        """Return True if this version has a method."""
        return method in self.methods

    def job(self, name: str, **arguments: Any) -> Any:
        """Run a job and return its result."""
        with self._turn:
            jobs, answers = self._process.stdin, self._process.stdout
            assert jobs is not None
            assert answers is not None
            jobs.write(json.dumps({"job": name, **arguments}) + "\n")
            jobs.flush()
            line = answers.readline()
        answer = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            self._errors.seek(0)
            raise AssertionError(f"{answer['error']}\n{self._errors.read()[-2000:]}")
        return answer["value"]

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of its `SessionDB`; errors are raised as `Refused`."""
        (answer,) = self.job("calls", calls=[[method, args, kwargs]])
        if "error" in answer:
            raise Refused(*answer["error"])
        return decoded(answer["value"])

    def each(self, method: str, values: Iterable[Any], **kwargs: Any) -> dict[Any, Any]:
        """Call a method for each value; return the answers by value."""
        values = list(values)
        answers = self.job("calls", calls=[[method, [value], kwargs] for value in values])
        return {
            value: decoded(answer["value"]) if "value" in answer else Refused(*answer["error"])
            for value, answer in zip(values, answers, strict=True)
        }

    def sql(self, statement: str, *values: Any) -> list[list[Any]]:
        """Run a statement on its connection."""
        rows: list[list[Any]] = decoded(self.job("sql", statements=[[statement, *values]])[0])
        return rows


def decoded(value: Any) -> Any:
    """Return an answer with decoded bytes."""
    if isinstance(value, dict):
        if set(value) == {"$bytes"}:
            return bytes.fromhex(value["$bytes"])
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


def build(version: str, home: Path) -> Path:
    """Let this version make a realistic and damaged home."""
    with Hermes(version, home) as hermes:
        hermes.job("build")
    return home


def build_kinds(version: str, home: Path, *, damaged: bool) -> dict[str, Any]:
    """Let this version make a home with items for each kind of plan; return the expectations."""
    with Hermes(version, home) as hermes:
        stated: dict[str, Any] = hermes.job("build_kinds", damaged=damaged)
    return stated


def copy(home: Path, to: Path) -> Path:
    """Copy a home whose databases are closed."""
    assert not list(home.glob("state.db-*"))
    return Path(shutil.copytree(home, to))

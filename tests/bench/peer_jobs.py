"""Runs the same course in other processes: ours with either driver, and the peers in theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.peers import ROOT, make_peer_environment, peer_python

HERMES = ("hermes-0.19.0", "hermes-agent==0.19.0")
OPENAI = ("openai-agents-0.24.0", "openai-agents==0.24.0")

AnswerWaiter = Callable[[], dict[str, Any]]

_SCRIPTS = Path(__file__).parent / "scripts"


def run_hermes(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in the real Hermes."""
    return start_hermes(home, job)()


def start_hermes(home: Path, job: dict[str, Any]) -> AnswerWaiter:
    """Start a job in the real Hermes, and return a function that waits for its answer."""
    python = peer_python(*HERMES)
    return _start_job(
        [str(python), str(_SCRIPTS / "on_hermes.py")], job, make_peer_environment(home)
    )


def run_openai(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job on the SQLiteSession of openai-agents."""
    python = peer_python(*OPENAI)
    return _start_job(
        [str(python), str(_SCRIPTS / "on_openai.py")], job, make_peer_environment(home)
    )()


def run_ours(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job on this library, with the SQLite in `job["driver"]`."""
    return start_ours(home, job)()


def start_ours(home: Path, job: dict[str, Any]) -> AnswerWaiter:
    """Start a job on this library, and return a function that waits for its answer."""
    return _start_own_job("on_ours.py", home, job)


def start_maintenance(home: Path, job: dict[str, Any]) -> AnswerWaiter:
    """Start a job of maintenance, and return a function that waits for its answer."""
    return _start_own_job("on_maintenance.py", home, job)


def run_transcripts(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job on the transcripts below a home folder."""
    return _start_own_job("on_transcripts.py", home, job)()


def _start_own_job(script: str, home: Path, job: dict[str, Any]) -> AnswerWaiter:
    env = make_peer_environment(home, {"PYTHONPATH": str(ROOT)})
    return _start_job([sys.executable, str(_SCRIPTS / script)], job, env)


def _start_job(command: list[str], job: dict[str, Any], env: dict[str, str]) -> AnswerWaiter:
    folder = tempfile.TemporaryDirectory()
    asked, answered = Path(folder.name, "job.json"), Path(folder.name, "answer.json")
    asked.write_text(json.dumps(job), encoding="utf-8")
    process = subprocess.Popen(
        [*command, str(asked), str(answered)],
        env=env | {"PYTHONWARNINGS": "ignore"},
        cwd=folder.name,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def answer() -> dict[str, Any]:
        with folder:
            _, errors = process.communicate()
            if process.returncode:
                last = os.linesep.join(errors.strip().splitlines()[-12:])
                raise RuntimeError(f"{Path(command[1]).name} failed at {job['do']}:\n{last}")
            data: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
            return data

    return answer

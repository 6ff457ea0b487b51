"""Runs the same course in other processes: ours with either driver, and the peers in theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.peers import ROOT, peer_environment, peer_python

HERMES = ("hermes-0.19.0", "hermes-agent==0.19.0")
OPENAI = ("openai-agents-0.24.0", "openai-agents==0.24.0")

_SCRIPTS = Path(__file__).parent / "scripts"


def run_hermes(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in the real Hermes."""
    python = peer_python(*HERMES)
    return _run([str(python), str(_SCRIPTS / "on_hermes.py")], job, peer_environment(home))


def run_openai(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job on the SQLiteSession of openai-agents."""
    python = peer_python(*OPENAI)
    return _run([str(python), str(_SCRIPTS / "on_openai.py")], job, peer_environment(home))


def run_ours(home: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job on this library; `job["driver"]` says with which SQLite."""
    env = peer_environment(home, {"PYTHONPATH": str(ROOT)})
    return _run([sys.executable, str(_SCRIPTS / "on_ours.py")], job, env)


def _run(command: list[str], job: dict[str, Any], env: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "job.json"), Path(folder, "answer.json")
        asked.write_text(json.dumps(job), encoding="utf-8")
        done = subprocess.run(
            [*command, str(asked), str(answered)],
            env=env | {"PYTHONWARNINGS": "ignore"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = os.linesep.join(done.stderr.strip().splitlines()[-12:])
            raise RuntimeError(f"{Path(command[1]).name} failed at {job['do']}:\n{last}")
        answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
        return answer

"""The fixtures of every test: its own home folder, and databases that are closed at the end."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator

from session_core import _sqlite3
from session_core.transcripts.places import AGENTS
from tests.cli.fork_server import ForkServer, get_fork_server

# The duration of an example depends on the machine, so there is no deadline.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


_MEMORY = Path("/dev/shm")  # noqa: S108 -- pytest makes a folder of its own there
_LEAST_BYTES = 8_000_000_000


def _choose_folder() -> None:
    """Put the homes of tests into memory if there is enough and TMPDIR names no other place."""
    # Nothing cuts the power during a test, so no disk has to be waited for.
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _LEAST_BYTES
    if has_room and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)


def _keep_bytecode() -> None:
    """Let processes of tests write bytecode, since each would compile all modules otherwise."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _check_schemas_once() -> None:
    """Let the clients of a process check each schema once, since a check takes 10 ms."""
    check_schema = Draft202012Validator.check_schema

    @cache
    def check_text(text: str) -> None:
        check_schema(json.loads(text))

    Draft202012Validator.check_schema = lambda schema: check_text(json.dumps(schema))


def _heed_interrupts() -> None:
    """Let processes of tests end at Ctrl-C, which a shell ignores in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_choose_folder()
_keep_bytecode()
_heed_interrupts()
_check_schemas_once()
gc.disable()  # until the tests are collected, which makes a million objects and no garbage


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the SQLite library: `--sqlite bundled`."""
    parser.addoption("--sqlite", choices=("standard", "bundled"), default="standard")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the SQLite library before the first connection."""
    _sqlite3.choose_sqlite(config.getoption("--sqlite"))


def pytest_collection_finish() -> None:
    """Let collections of garbage leave out the tests, which live until the end, and be rare."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skipped tests into failures in CI."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own home folder, so that no real one is touched, and no agent's."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    ours = ("MCP_SESSIONS_HOME", "MCP_SESSIONS_STATE")
    agents = (name for agent in AGENTS.values() for name in agent.variables)
    for name in (*ours, *agents, "HERMES_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home_path(tmp_path: Path) -> Path:
    """Return an empty folder for a home."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def forks() -> ForkServer:
    """Return a server that runs verbs and scripts in processes that have imported everything."""
    return get_fork_server()

"""What every test has: a home folder of its own, and databases that are closed afterwards."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from session_core import _sqlite3

# How long an example takes says something of the machine alone.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The tests run on either SQLite library: `--sqlite bundled`."""
    parser.addoption("--sqlite", choices=("standard", "bundled"), default="standard")


def pytest_configure(config: pytest.Config) -> None:
    """Decide before the first connection."""
    _sqlite3.choose_sqlite(config.getoption("--sqlite"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What cannot be tested in CI has failed there; nothing is skipped."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's real home folder is touched."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    ours = ("MCP_SESSIONS_HOME", "MCP_SESSIONS_STATE")
    for name in (*ours, "HERMES_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home_path(tmp_path: Path) -> Path:
    """An empty folder for a home."""
    path = tmp_path / "home"
    path.mkdir()
    return path

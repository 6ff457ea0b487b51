"""The report on the server of an address."""

from __future__ import annotations

import os

import psycopg
import pytest

from session_core import Busy, InvalidInput
from session_core.state import inspect_server
from tests import postgres_server
from tests.postgres_server import POOLER_VARIABLE, RUNTIME_ROLE


def test_server_is_described() -> None:
    report = inspect_server(postgres_server.get_address())
    with psycopg.connect(postgres_server.get_address()) as connection:
        assert report.version == connection.info.parameter_status("server_version")
    assert (report.role, report.is_exempt, report.can_write) == (RUNTIME_ROLE, False, True)
    assert (report.encoding, report.is_standby) == ("UTF8", False)
    expected = "transaction" if os.environ.get(POOLER_VARIABLE) else "none"
    assert report.pooling == expected
    assert (report.pending, report.newer) == ((), None)
    assert report.round_trip_s > 0


def test_owner_of_new_schema_is_described() -> None:
    report = inspect_server(f"{postgres_server.get_owner_address()}&schema=not_made_yet")
    assert (report.is_exempt, report.can_write) == (True, False)
    assert report.pending[0] == "0001 home"


def test_skew_of_clock_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from session_core.state.postgres import server_check  # noqa: PLC0415 -- an extra

    statement = "SELECT extract(epoch FROM clock_timestamp()) + 3600"
    monkeypatch.setattr(server_check, "_GET_TIME", statement)
    assert round(inspect_server(postgres_server.get_address()).skew_s / 60) == 60


def test_unusable_address_is_reported() -> None:
    with pytest.raises(Busy):
        inspect_server("postgresql://127.0.0.1:1/d")
    with pytest.raises(InvalidInput):
        inspect_server("postgresql://h?schema=A;B")

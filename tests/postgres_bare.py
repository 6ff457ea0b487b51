"""The engine over PostgreSQL, its views and functions without a predicate on the home.

Only row-level security is left to keep homes apart. `POSTGRES_BARE=1` runs the contract suite so.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from session_core.state.postgres import connection, fts
from session_core.state.postgres.migrations import runner
from tests import postgres_server

SCHEMA = "bare"
VARIABLE = "POSTGRES_BARE"

_PREDICATE = re.compile(r"\b(?:\w+\.)?(?:home_id|id) = (?:this_home\(\)|\w+\.home_id|changed_home)")
_SECURITY_MIGRATION = 4
"""It makes the policies, and the search that works with the rights of the owner."""


@cache
def strip_predicates(text: str) -> str:
    """Return SQL in which no condition names the home of a row."""
    return _PREDICATE.sub("true", text)


def patch_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strip every statement that the engine runs."""
    translate = connection._translate_placeholders
    monkeypatch.setattr(
        connection, "_translate_placeholders", lambda text: translate(strip_predicates(text))
    )
    compose = connection._compose_bulk
    monkeypatch.setattr(connection, "_compose_bulk", lambda text: compose(strip_predicates(text)))
    for name in ("_TAKE_QUEUED", "_DELETE_WORDS", "_DELETE_QUEUED"):
        monkeypatch.setattr(fts, name, strip_predicates(getattr(fts, name)))


def make_schema(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the schema without predicates once. Return its address for a role that owns nothing."""
    stripped = [
        replace(migration, script=strip_predicates(migration.script))
        if migration.number < _SECURITY_MIGRATION
        else migration
        for migration in runner.list_migrations()
    ]
    with monkeypatch.context() as patch:
        patch.setattr(runner, "list_migrations", lambda: stripped)
        owner = f"{postgres_server.get_owner_address()}&schema={SCHEMA}"
        runner.migrate_schema(owner, grant_to=postgres_server.RUNTIME_ROLE)
    return f"{postgres_server.get_address()}&schema={SCHEMA}"

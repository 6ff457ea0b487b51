"""Homes of one database stay apart without any predicate, and programs need to own nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from session_core import Denied, InvalidInput, SessionFilter, open_home
from session_core.maintenance import PlanRequest
from session_core.state import migrate_home, sql_blocks
from session_core.state.postgres import connection, fts
from session_core.state.postgres.address import parse_address
from session_core.state.postgres.migrations import runner
from tests import postgres_bare, postgres_server
from tests.postgres_home import read_tables

_FILES = sorted(
    path.name.removesuffix(".sql")
    for path in runner.files("session_core.state.postgres").iterdir()
    if path.name.endswith(".sql")
)
_FRAGMENTS = {
    *("total", "link_marks", "amount_of_conversation", "uses_tool", "continues", "among_ids"),
}
"""Blocks that are parts of statements."""
_BLANKS = {
    "sums": "count(*)",
    "actual": "actual_cost_usd",
    "estimated": "estimated_cost_usd",
    "columns": "id",
    "cost": "0.0",
    "tokens": "0",
    "folders": "SELECT cwd AS folder FROM sessions",
    "child_lacks": "child.cwd IS NULL",
    "continues": "true",
    "matches": "true",
    **dict.fromkeys(("token", "host", "space", "pid", "started_at", "kept_s"), "1"),
}
_TYPES = {"at": "::double precision", "reach": "::double precision"}
_MARK = re.compile(r"/\*(?:filter|sieve)\*/ 1")
_READS = ("Index Cond", "Recheck Cond", "Filter")
_HOME = re.compile(r"\bid = \S*\(*current_setting\('mcp_sessions.home'|home_id = \(current_setting")


def list_statements() -> list[tuple[str, str]]:
    """Return the statements of the SQL folder and those of the search index, without predicates."""
    statements = [
        (f"fts {name}", getattr(fts, name))
        for name in ("_TAKE_QUEUED", "_DELETE_WORDS", "_DELETE_QUEUED")
    ]
    for file in _FILES:
        for name, block in sql_blocks.load_blocks(file, "session_core.state.postgres").items():
            if name in _FRAGMENTS:
                continue
            text = _MARK.sub("true", block).replace("/*amount*/ 0", "0")
            filled = text.format_map({**connection._CONDITIONS, **_BLANKS})
            statements += [(f"{file} {name}", part) for part in sql_blocks.split_block(filled)]
    return [(name, postgres_bare.strip_predicates(text)) for name, text in statements]


def make_prepared(statement: str) -> str:
    """Return a statement with the placeholders of the server."""
    numbers: dict[str, int] = {}

    def replace(match: re.Match[str]) -> str:
        text = match[0]
        if text != "?" and not match[1]:
            return text
        key = match[1] or f"? {len(numbers)}"
        return f"${numbers.setdefault(key, len(numbers) + 1)}{_TYPES.get(key, '')}"

    return connection._PLACEHOLDER.sub(replace, statement)


def iter_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from iter_nodes(part)


def find_open_scans(plan: dict[str, Any]) -> list[str]:
    """Return the tables that a plan reads without asking for the home of a row."""
    return [
        node["Relation Name"]
        for node in iter_nodes(plan)
        if "Relation Name" in node
        and node["Node Type"] != "ModifyTable"
        and node["Relation Name"] != "migrations"
        and not node.get("Schema", "").startswith("pg_")
        and not _HOME.search(" ".join(str(node.get(part, "")) for part in _READS))
    ]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address of the schema without predicates. The engine's statements have none."""
    address = postgres_bare.make_schema(monkeypatch)
    postgres_bare.patch_statements(monkeypatch)
    return f"{address}&home={uuid.uuid4().hex}"


@contextmanager
def connect(address: str, home: str = "1") -> Iterator[psycopg.Connection[Any]]:
    """Connect with the search path and the setting of a home, as a transaction of the engine."""
    place = parse_address(address)
    with psycopg.connect(place.conninfo) as plain:
        plain.execute(f"SET LOCAL search_path = {place.schema}")
        plain.execute("SELECT set_config('mcp_sessions.home', %s, true)", (home,))
        yield plain
        plain.rollback()


@pytest.mark.requirement("postgres:apart")
def test_statement_without_predicate_reads_one_home(bare: str) -> None:
    open_statements = {}
    with connect(bare) as plain:
        plain.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for number, (name, statement) in enumerate(list_statements()):
            assert "home_id = this_home" not in statement
            prepared = make_prepared(statement)
            plain.execute(f"PREPARE s{number} AS {prepared}".encode())
            count = len(set(re.findall(r"\$\d+", prepared)))
            nulls = f"({', '.join(['NULL'] * count)})" if count else ""
            text = f"EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE s{number}{nulls}"
            row = plain.execute(text.encode()).fetchone()
            assert row is not None
            open_scans = find_open_scans(row[0][0]["Plan"])
            if open_scans:
                open_statements[name] = open_scans
    assert open_statements == {}


def test_row_of_another_home_is_refused(bare: str) -> None:
    with connect(bare) as plain:
        tables = plain.execute(
            "SELECT relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
            " WHERE relnamespace = 'bare'::regnamespace AND relkind = 'r' AND attname = 'home_id'"
        ).fetchall()
        assert len(tables) > 15
        for (table,) in tables:
            statement = f"INSERT INTO {table} (home_id) VALUES (2)"  # noqa: S608 -- of the schema
            with pytest.raises(psycopg.errors.InsufficientPrivilege), plain.transaction():
                plain.execute(statement.encode())


@pytest.mark.parametrize("setting", ["", "none"])
def test_transaction_without_home_reads_nothing(bare: str, setting: str) -> None:
    with connect(bare, setting) as plain, pytest.raises(psycopg.DataError):
        plain.execute("SELECT * FROM sessions")


def test_every_table_has_forced_row_security(address: str) -> None:
    with connect(address) as plain:
        rows = plain.execute(
            "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class"
            " WHERE relnamespace = 'mcp_sessions'::regnamespace AND relkind = 'r'"
        ).fetchall()
    open_tables = {row[0] for row in rows if not row[1]}
    unforced = {row[0] for row in rows if row[1] and not row[2]}
    assert (open_tables, unforced) == ({"migrations"}, {"word_rows"})


def fill_home(db: Any, word: str) -> None:
    """Store sessions under the same ids and keys in each home, with a word of its own."""
    for name in ("s", "t"):
        db.append_message(name, "user", f"{word} question 東京", create={"source": "cli"})
        db.append_message(name, "assistant", f"{word} answer", tool_calls=[{"name": "run"}])
        db.set_session_title(name, f"{word} {name}")
    db.end_session("t", "compression")
    db.create_session("u", "cli", parent_session_id="t")
    db.append_message("u", "user", f"{word} continued")
    db.set_meta("key", word)


def use_home(home: Any, word: str) -> list[Any]:
    """Read and change a home in many ways, and return the read values without message ids."""
    db = home.db

    def look() -> list[Any]:
        return [
            sorted(row.id for row in db.list_sessions(SessionFilter()).items),
            *(
                sorted((hit.session_id, hit.role) for hit in db.search(query).hits)
                for query in ("answer", "東京", "nswe", '"question 東京"')
            ),
            [row["content"] for row in db.get_messages_as_conversation("s")],
            [row["content"] for row in db.get_messages("u")],
            [db.get_meta("key"), db.message_count(), len(db.admin.list_holders())],
            [item.id for item in db.admin.list_inventory()],
            db.admin.check_integrity(deep=True),
            [row["id"] for row in db.list_children("t")],
            db.get_compression_lineage("u"),
            db.get_next_title_in_lineage(f"{word} s"),
            [len(home.maintenance.batches().items), len(home.maintenance.log().items)],
        ]

    seen = [look()]
    cursor = db.read_changes().cursor
    db.append_message("s", "user", f"{word} more 京都")
    db.end_session("s", "done")
    seen.append([(event.type, event.text) for event in db.read_changes(cursor).events])
    seen.append(db.rewind_to_message("s", db.get_messages("s")[-1]["id"]).rewound)
    plan = home.maintenance.plan(PlanRequest("sessions", ids=("s",)))
    seen.append([item.id for item in plan.items])
    result = home.maintenance.apply(plan.plan)
    seen += [look(), home.maintenance.restore(result.batch).restored, look()]
    for number in range(30):
        db.append_message("long", "user", f"{word} {number} " * 20, create={"source": "cli"})
    batch = home.compressor.compress("long", keep_last=2).batch
    seen.append(look())
    home.maintenance.restore(batch)
    db.delete_session("u")
    db.set_meta("key", "changed")
    return [*seen, look()]


@pytest.mark.requirement("postgres:apart")
def test_engine_without_predicates_keeps_homes_apart(bare: str, tmp_path: Any) -> None:
    with open_home(f"{bare}n") as neighbour, open_home(bare) as home, open_home(tmp_path) as own:
        fill_home(neighbour.db, "theirs")
        before = read_tables(neighbour.db)
        for each in (home, own):
            fill_home(each.db, "ours")
        assert use_home(home, "ours") == use_home(own, "ours")
        assert read_tables(neighbour.db) == before


@pytest.mark.requirement("postgres:role")
def test_role_of_programs_owns_nothing(address: str) -> None:
    with connect(address) as plain:
        owned = plain.execute(
            "SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole"
        ).fetchone()
        assert owned == (0,)
        for statement in (
            "CREATE TABLE more (id int)",
            "ALTER TABLE session_rows NO FORCE ROW LEVEL SECURITY",
            "DROP POLICY only_home ON session_rows",
            "DELETE FROM homes",
            "DELETE FROM migrations",
            "TRUNCATE message_rows",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), plain.transaction():
                plain.execute(statement.encode())


def make_role(*options: str) -> str:
    """Create a role that may create schemas in the database, and return its name."""
    name = f"r{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server.get_owner_address(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN {' '.join(options)}".encode())
        connection.execute(f"GRANT CREATE ON DATABASE postgres TO {name}".encode())
    return name


def get_role_address(role: str, schema: str) -> str:
    owner = postgres_server.get_owner_address()
    return re.sub(r"//\w+@", f"//{role}@", owner) + f"&schema={schema}"


def test_owner_without_superuser_sees_one_home() -> None:
    owner = get_role_address(make_role(), f"s{uuid.uuid4().hex[:12]}")
    migrate_home(owner)
    with open_home(f"{owner}&home=a") as one, open_home(f"{owner}&home=b") as two:
        for home in (one, two):
            fill_home(home.db, "word")
        with connect(owner) as plain:
            row = plain.execute("SELECT count(*) FROM message_rows").fetchone()
    assert row == (5,)


def test_grant_is_kept_by_later_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = f"s{uuid.uuid4().hex[:12]}"
    owner, role = get_role_address(make_role(), schema), make_role()
    user = get_role_address(role, schema)
    migrate_home(owner)
    with pytest.raises(Denied, match="--grant"):
        open_home(user)
    assert migrate_home(owner, grant_to=role) == []
    later = runner.Migration(9000, "later", "CREATE TABLE later_rows (id int)")
    migrations = [*runner.list_migrations(), later]
    monkeypatch.setattr(runner, "list_migrations", lambda: migrations)
    assert migrate_home(owner) == ["9000 later"]
    with connect(user) as plain:
        plain.execute("INSERT INTO later_rows VALUES (1)")


def test_grant_to_unfit_role_is_refused() -> None:
    owner = get_role_address(make_role(), f"s{uuid.uuid4().hex[:12]}")
    with pytest.raises(InvalidInput, match="does not exist"):
        migrate_home(owner, grant_to="nobody_here")
    for option in ("SUPERUSER", "BYPASSRLS"):
        with pytest.raises(InvalidInput, match="exempt"):
            migrate_home(owner, grant_to=make_role(option))

"""SQLite and PostgreSQL give the same answers to the same searches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.maintenance import copy_home
from session_core.state.postgres.session_db import PostgresDB
from tests.postgres_home import make_postgres
from tests.state.postgres.equal_searches import Corpus, SearchCase, list_cases, search_pages
from tests.thorough import mark_thorough

MESSAGES = 400
PARTS = 8

Homes = tuple[SessionDB, PostgresDB, list[SearchCase]]


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Return a home, its copy in PostgreSQL, and the searches."""
    folder: Path = tmp_path_factory.mktemp("equal")
    corpus = Corpus(MESSAGES)
    with SessionDB(folder / "state.db") as own, make_postgres(folder) as db:
        corpus.fill(own)
        copy_home(own, db)
        yield own, db, list_cases(corpus.texts)


@pytest.mark.requirement("search:queries")
@pytest.mark.parametrize("part", [0, *map(mark_thorough, range(1, PARTS))])
def test_postgres_searches_answer_like_sqlite(homes: Homes, part: int) -> None:
    own, db, cases = homes
    assert len(cases) >= 200
    different = [
        case for case in cases[part::PARTS] if search_pages(own, case) != search_pages(db, case)
    ]
    assert different == []

"""The databases of other tests equal those that the real packages create."""

from __future__ import annotations

import re

import pytest

from tests.homes import make_hermes_database
from tests.interop.hermes import Hermes
from tests.interop.twins import shape
from tests.peers import HERMES_SCHEMAS


@pytest.mark.requirement("interop:schemas")
def test_schema_builder_matches_hermes_package(version, tmp_path):
    with Hermes(version, tmp_path / "theirs"):
        pass
    make_hermes_database(tmp_path / "ours" / "state.db", HERMES_SCHEMAS[version])

    assert normalize_sql(shape(tmp_path / "ours")) == normalize_sql(shape(tmp_path / "theirs"))


def normalize_sql(found):
    """Return the schema of a database without blanks."""
    schema = [tuple(re.sub(r"\s+", "", text) for text in row) for row in found["schema"]]
    return found | {"schema": sorted(schema)}

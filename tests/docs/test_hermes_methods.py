"""The page of the methods of Hermes names only calls that exist."""

from __future__ import annotations

import re
from operator import attrgetter

import session_core
from session_core import SessionDB
from tests.docs.pages import DOCS

PAGE = DOCS / "reference" / "hermes-methods.md"


def test_named_calls_exist():
    calls = re.findall(r"`(db|Maintenance|SessionStore|Compressor)((?:\.\w+)*)`", PAGE.read_text())
    assert len(calls) > 80
    with SessionDB(":memory:") as db:
        for owner, path in calls:
            parent = db if owner == "db" else getattr(session_core, owner)
            assert path == "" or callable(attrgetter(path[1:])(parent)), f"{owner}{path}"


def test_every_method_has_one_row():
    methods = re.findall(r"^\| `(\w+)` \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    assert len(methods) == len(set(methods)) == 107

"""Homes of the scripts in the environments of SDKs.

The homes of a test are in a folder of its own, or share the beginning of their names on a server.
"""

from __future__ import annotations

from urllib.parse import quote


def name_homes(address: str, test: str) -> str:
    """Return the base of the homes of a test on the PostgreSQL server of an address."""
    return f"{address}&home={quote(test)}"


def name_home(base: str, name: str) -> str:
    """Return a home in a folder, or on a PostgreSQL server."""
    return f"{base}{quote(f' {name}')}" if base.startswith("postgresql://") else f"{base}/{name}"

"""Homes of the scripts in the environments of SDKs."""

from __future__ import annotations

from urllib.parse import quote


def name_home(base: str, name: str) -> str:
    """Return a home in a folder, or on the PostgreSQL server of an address."""
    if base.startswith("postgresql://"):
        return f"{base}&home={quote(name)}"
    return f"{base}/{name}"

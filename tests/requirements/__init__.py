"""The ledger: what is promised, where that was said, and the tests that prove it.

A key is `area:what`; the source is the issue, a section of the reference or of the design. A test
is named by its file below `tests/` and its function; `test_requirements.py` checks both ways. One
file a subject, none over some 400 lines.
"""

from __future__ import annotations

from tests.requirements import (
    changing,
    compression,
    conversations,
    database,
    faces,
    homes,
    hostile,
    ledger,
    lifecycle,
    maintenance,
    project,
    reports,
    routing,
    security,
    serving,
    tables,
    terminal,
    verbs,
    wire,
)
from tests.requirements.entry import Requirement

__all__ = ["PARTS", "REQUIREMENTS", "Requirement"]

PARTS: tuple[dict[str, Requirement], ...] = tuple(
    part.REQUIREMENTS
    for part in (
        project,
        conversations,
        database,
        routing,
        tables,
        ledger,
        compression,
        lifecycle,
        maintenance,
        reports,
        security,
        homes,
        hostile,
        serving,
        faces,
        changing,
        wire,
        terminal,
        verbs,
    )
)
REQUIREMENTS: dict[str, Requirement] = {key: part[key] for part in PARTS for key in part}

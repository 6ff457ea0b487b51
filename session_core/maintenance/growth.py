"""What a message takes on the disk, for the figures on growth.

It is measured over the whole home. A deletion moves that average, and so does a merge, although no
message came or went faster. So the average is recorded with each plan, and the one of an applied
plan counts for four weeks from its measurement.
"""

from __future__ import annotations

from typing import Any

from session_core.ledger.ledger import Ledger
from session_core.maintenance.scene import Scene
from session_core.models import Sizes

NAME = "message_bytes"
"""Under which name a plan records it."""

WEEKS = 4
_KEPT_S = WEEKS * 7 * 86_400.0


def message_bytes(ledger: Ledger, scene: Scene, sizes: Sizes | None) -> dict[str, Any]:
    """Return the bytes of an average message, and when they were measured."""
    recorded = ledger.recorded(NAME)
    if recorded is not None and scene.now - recorded["at"] < _KEPT_S:
        return dict(recorded)
    rows = scene.rows
    return {"bytes": scene.bytes_of(rows, sizes) / rows if rows else 0.0, "at": scene.now}

"""The clock of the server, which all machines that share a home use."""

from __future__ import annotations

import time

_TOLERANCE_S = 1.0
"""A smaller difference is the delay of the network. To follow it would let times run backwards."""


class ServerClock:
    """Returns the time of this machine, corrected if its clock differs from the server's."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        """The seconds by which the clock of the server is ahead."""

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time() + self.offset_s

    def compare(self, server_time: float) -> None:
        """Correct the clock by a time that the server has just returned."""
        offset_s = server_time - time.time()
        if abs(offset_s - self.offset_s) > _TOLERANCE_S:
            self.offset_s = offset_s if abs(offset_s) > _TOLERANCE_S else 0.0

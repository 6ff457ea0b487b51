"""What keeps a home small and right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from session_core.models import BlockedIndex, Claim, Facts, Finding, Sizes, Stock, Vacuumed

Step = Callable[[], object]
"""Called every now and then by work that takes long; what it raises ends that without a trace."""


class Upkeep(Protocol):
    """What keeps a home small and right."""

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations that never ran; return how many. Acts at once."""

    def prune_empty_ghost_sessions(self) -> int:
        """Delete empty sessions of the terminal without children. Acts at once."""

    def delete_session(self, session_id: str) -> bool:
        """Delete a session, its delegates and all rows that belong to them. Acts at once."""

    def delete_sessions(self, session_ids: Sequence[str]) -> int:
        """Delete several sessions as `delete_session` does; return how many. Acts at once."""

    def recount_session(self, session_id: str) -> bool:
        """Set the counters to what the rows say; return whether they had drifted."""

    def drifted_sessions(self, limit: int = 1000) -> list[str]:
        """Return sessions whose counter is not what the rows say."""

    def check_integrity(self, *, deep: bool = False, step: Step | None = None) -> list[Finding]:
        """Return what is wrong with the file; `deep` also checks the search index, on a copy."""

    def blocked_indexes(self) -> list[BlockedIndex]:
        """Return the search indexes that this process cannot write."""

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Refuse a change that would insert or delete rows of these tables and fail.

        Raises:
            Unsupported: a blocked index is fed by one of them.
        """

    def sizes(self, *, exact: bool = False, step: Step | None = None) -> Sizes:
        """Return bytes by table: estimates at once, or counted in a child process."""

    def inventory(self) -> list[Stock]:
        """Return every session, one light row each, all of one moment."""

    def health_facts(self) -> Facts:
        """Return what is wrong and how much there is, beside the sessions themselves."""

    def claims(self) -> list[Claim]:
        """Return what others have noted in the database that they are at, also if long ago."""

    def optimize_step(self) -> bool:
        """Merge a part of the search indexes, for about 20 ms; return whether there is more to do.

        What is merged finds the same, faster, and takes less room.
        """

    def vacuum(self, *, step: Step | None = None) -> Vacuumed:
        """Write the file anew without its free pages; who writes meanwhile loses nothing.

        Raises:
            Busy: another process has it open, or others keep writing to it.
            StorageFull: there is no room for the copies that it takes meanwhile.
            Denied: the folder of the database takes no copy of it.
        """

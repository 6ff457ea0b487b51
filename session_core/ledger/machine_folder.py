"""The folder of this machine for a home in a database server: files that belong to no database."""

from __future__ import annotations

import hashlib
from pathlib import Path

from session_core.home import find_state_root
from session_core.ledger.state_folder import make_folder, translate_os_errors


class MachineFolder:
    """The folder for the home that an address without passwords names."""

    def __init__(self, address: str) -> None:
        digest = hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()
        self._path = find_state_root() / f"address-{digest[:12]}"

    def find(self) -> Path | None:
        """Return the folder, or None if there is none."""
        return self._path if self._path.is_dir() else None

    def make(self) -> Path:
        """Create the folder, durable and private to its owner, and return it.

        Raises:
            Denied: the folder may not be created.
            StorageFull: the disk is full.
        """
        with translate_os_errors(self._path.parent):
            make_folder(self._path)
        return self._path

"""Jobs of the driver for the session store of a real hermes-agent.

Runs under the Python of a hermes-agent and imports none of it before its home is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Routes:
    """The jobs. The store is reopened with its stored data on request."""

    home: Path
    store: Any = None

    def store_open(self, **config: Any) -> dict[str, Any]:
        """Open a store as a start of the gateway does, and return its entries by key."""
        from gateway.config import GatewayConfig  # noqa: PLC0415
        from gateway.session import SessionStore  # noqa: PLC0415

        self.store_close()
        self.store = SessionStore(self.home / "sessions", GatewayConfig.from_dict(config))
        return self.store_entries()

    def gateway_begins(self) -> None:
        """Record this process as the gateway of its home, as a gateway does."""
        from gateway.status import write_pid_file  # noqa: PLC0415

        write_pid_file()

    def store_close(self) -> None:
        """Close the store."""
        if self.store is not None and self.store._db is not None:
            self.store._db.close()
        self.store = None

    def store_entries(self) -> dict[str, Any]:
        """Return the loaded entries in their stored form."""
        self.store._ensure_loaded()
        return {key: entry.to_dict() for key, entry in self.store._entries.items()}

    def store_methods(self) -> list[str]:
        """Return the methods of the store of this version."""
        return [name for name in dir(self.store) if not name.startswith("_")]

    def arrive(self, source: dict[str, Any], force_new: bool = False) -> dict[str, Any]:
        """Handle a message of a chat and return its entry."""
        entry = self.store.get_or_create_session(_build_source(source), force_new=force_new)
        return entry.to_dict()

    def store_call(self, method: str, *, args: list[Any]) -> Any:
        """Call a method of the store. Entries are returned in their stored form."""
        answer = getattr(self.store, method)(*args)
        return answer.to_dict() if hasattr(answer, "to_dict") else answer

    def store_set(self, key: str, fields: dict[str, Any]) -> None:
        """Change fields of an entry, as the gateway does, and save."""
        self.store._ensure_loaded()
        for name, value in fields.items():
            setattr(self.store._entries[key], name, value)
        self.store._save()

    def say(self, session_id: str, texts: list[str]) -> list[int]:
        """Append messages to a session through the database of the store."""
        return [self.store._db.append_message(session_id, "user", text) for text in texts]

    def keys(self, sources: list[dict[str, Any]], **options: Any) -> list[str]:
        """Return the key of each source."""
        from gateway.session import build_session_key  # noqa: PLC0415

        return [build_session_key(_build_source(source), **options) for source in sources]


def _build_source(given: dict[str, Any]) -> Any:
    from gateway.session import SessionSource  # noqa: PLC0415

    return SessionSource.from_dict(given)

"""Tokens and costs, by session and by model."""

from __future__ import annotations

from typing import Any, Protocol


class Usage(Protocol):
    """Tokens and costs."""

    def update_token_counts(
        self, /, session_id: str, *, absolute: bool = False, **counts: Any
    ) -> None:
        """Add to the token and cost columns and to the row of the model, or set them."""

    def record_auxiliary_usage(
        self, /, session_id: str, task: str, *, model: str | None = None, **counts: Any
    ) -> None:
        """Account a call beside the conversation (vision, titles, compression) to its task."""

    def model_usage(self, session_id: str) -> list[dict[str, Any]]:
        """Return what each model used in a session."""

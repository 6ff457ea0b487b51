"""What comes in: the arguments that several tools share, as types with what a model is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from mcp_serve import budget
from mcp_serve.sdk.arguments import Arguments

__all__ = ["Arguments", "Home", "Listing", "several"]

Text = Annotated[str, Field(max_length=2000)]
Session = Annotated[
    str, Field(min_length=1, max_length=500, description="Id, unique prefix, session key or title.")
]
ExactSession = Annotated[
    str, Field(min_length=1, max_length=500, description="Full id or session key.")
]
Project = Annotated[str, Field(max_length=1000, description="Folder, and below it.")]
Since = Annotated[str, Field(max_length=64, description="As since.")]
Status = Annotated[
    Literal["open", "ended", "archived", "all"],
    Field(description="Default: all but archived."),
]
Roles = Annotated[
    list[Annotated[str, Field(max_length=50)]],
    Field(max_length=20, description="e.g. user, assistant, tool."),
]
Detail = Annotated[Literal["concise", "detailed"], Field()]
Cursor = Annotated[str, Field(max_length=32_768, description="A next_cursor.")]
MaxChars = Annotated[int, Field(ge=budget.LEAST, le=budget.MOST)]
Count = Annotated[int, Field(ge=0, le=2**53)]
MessageId = Annotated[int, Field(ge=0, le=2**63 - 1)]


Sources = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]
"""Several sources, which a model is not troubled with."""
Sessions = Annotated[list[str], Field(max_length=10_000, description="Full ids or session keys.")]
Days = Annotated[float, Field(ge=0, le=100_000)]
Handle = Annotated[str, Field(max_length=100, description="Plan to apply, passed alone.")]


class Home(Arguments):
    """What every tool takes."""

    profile: Annotated[str, Field(max_length=200)] | None = None


class Listing(Home):
    """What every list takes."""

    cursor: Cursor | None = None


def several(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return one of a kind or several as several."""
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)

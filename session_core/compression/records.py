"""What a compression is asked for, what it answers, and the error where it is not done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from session_core.errors import SessionError
from session_core.models import MessageRow, Revision

if TYPE_CHECKING:
    from typing_extensions import Self

    from session_core.compression.placement import Shape
    from session_core.compression.retention import Retention


Method = Literal["summary", "extractive"]
"""Who writes the summary of a plan: whoever applies it, or nobody, without a model."""

Clean = Callable[[Sequence[MessageRow]], Callable[[str], str]]
"""Given messages, returns what takes out of a text made of them what is not to be said again."""

StopFn = Callable[[], bool]
"""Asked before anything is changed whether to end there."""


class NotCompressed(SessionError):
    """Nothing was changed; `code` says why, and the message what to do about it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Brief:
    """What whoever writes a summary has to know; the text itself is read from the session."""

    from_id: int
    to_id: int
    messages: int
    tokens: int
    must_survive: tuple[str, ...]
    target_chars: int
    digest: str
    """A summary without a model, within `target_chars`: enough to work from, or to use as it is."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a function that writes summaries is given: the brief, and the messages in short."""

    brief: Brief
    messages: Sequence[Mapping[str, Any]]
    earlier: tuple[str, ...]
    """The summaries of before, which are not among the messages: the new one takes them in."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A compression that was planned: apply it with its handle and a summary."""

    plan: str
    session_id: str
    shape: Shape
    expires_at: float
    brief: Brief


@dataclass(frozen=True, slots=True)
class Compressed:
    """What was done: `session_id` is where the conversation goes on, `batch` undoes it."""

    session_id: str
    old_session_id: str
    shape: Shape
    batch: str
    tokens_before: int
    tokens_after: int
    rows: int
    """How many rows were flagged and added."""
    retention: Retention
    before: Revision
    after: Revision

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return it from JSON."""
        # What finds facts takes long to import, and who only reads sessions has no use for it.
        from session_core.compression.retention import Retention  # noqa: PLC0415

        given = dict(stored)
        given["retention"] = Retention.of(given["retention"])
        for name in ("before", "after"):
            given[name] = Revision(*given[name])
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo has done: how many messages are live again, and how many are gone."""

    session_id: str
    restored: int
    dropped: int
    lost_title: str | None = None
    """The title of before, where another conversation has it by now."""


@dataclass(frozen=True, slots=True)
class UndoPlanned:
    """An undo that would drop what was said since, which is done by applying this plan."""

    plan: str
    session_id: str
    expires_at: float
    sessions: tuple[str, ...]
    """The sessions that would be deleted."""
    messages: int
    """How many messages were said in them since."""
    changed: tuple[str, ...] = ()
    """What else of the continuation is not what the compression has left, by column or table."""
    detached: tuple[str, ...] = ()
    """The sessions that would lose their parent."""

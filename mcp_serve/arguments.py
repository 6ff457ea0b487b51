"""Argument types shared by several tools, and times in arguments and answers."""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcp_serve import answer_size
from mcp_serve.redaction.redaction import redact
from session_core import InvalidInput

Text = Annotated[str, Field(max_length=2000)]
# Programs may create longer ids than the 500 characters that answers show.
Session = Annotated[
    str,
    Field(min_length=1, max_length=2000, description="Id, unique prefix, session key or title."),
]
UntitledSession = Annotated[
    str, Field(min_length=1, max_length=2000, description="Id, unique prefix or session key.")
]
Project = Annotated[str, Field(max_length=1000, description="Folder, or its last part.")]
Since = Annotated[str, Field(max_length=64, description="Same format as since.")]
Status = Annotated[
    Literal["open", "ended", "archived", "all"],
    Field(description="Default: all but archived."),
]
Roles = Annotated[
    list[Annotated[str, Field(max_length=50)]],
    Field(max_length=20, description="e.g. user, assistant, tool."),
]
Detail = Annotated[Literal["concise", "detailed"], Field()]
Cursor = Annotated[str, Field(max_length=32_768, description="From next_cursor.")]
MaxChars = Annotated[int, Field(ge=answer_size.MIN_CHARS, le=answer_size.MAX_CHARS)]
Count = Annotated[int, Field(ge=0, le=2**53)]
MessageId = Annotated[int, Field(ge=0, le=2**63 - 1)]


# Several sources; the listed schema of a tool shows a single one to stay short.
Sources = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]
Sessions = Annotated[
    list[str], Field(max_length=10_000, description="Ids, unique prefixes or session keys.")
]
Days = Annotated[float, Field(ge=0, le=100_000)]
Handle = Annotated[str, Field(max_length=100, description="Plan to apply; pass it alone.")]


class ToolArguments(BaseModel):
    """The arguments of a tool.

    Unknown names are an error, and null means that an argument is not given.

    Types are strict, but a number without a fraction is an integer, as in JSON.
    """

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    # Arguments that a call without a cursor needs; a cursor contains them.
    required: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _check_required(self) -> ToolArguments:
        for name in self.required:
            if getattr(self, name) is None and getattr(self, "cursor", None) is None:
                raise ValueError(f"{name} is required")
        return self

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Any:
        """Validate the arguments of a client."""
        return cls.model_validate(
            {
                name: _parse_list(value)
                if name in cls._find_list_fields()
                else _to_whole_number(value)
                for name, value in values.items()
                if value is not None
            }
        )

    @classmethod
    @cache
    def _find_list_fields(cls) -> frozenset[str]:
        fields = cls.model_fields.items()
        return frozenset(name for name, field in fields if "list" in str(field.annotation))


def _to_whole_number(value: Any) -> Any:
    # 5.0 is an integer in JSON, and a strict model would refuse it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_list(value: Any) -> Any:
    """Return a list sent as JSON text, as some hosts do."""
    # Only lists are parsed, since a query such as `null` would otherwise not be a query.
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return [value] if isinstance(value, str) else value


class StoreArguments(ToolArguments):
    """The arguments of every tool."""

    store: Annotated[str, Field(max_length=200)] | None = None


class PageArguments(StoreArguments):
    """The arguments of every list."""

    cursor: Cursor | None = None


def refuse_arguments_with_plan(arguments: Any, allowed: Collection[str] = ()) -> None:
    """Refuse arguments passed with a plan, since the plan has recorded them.

    Raises:
        InvalidInput: an argument other than `allowed` was passed.
    """
    if getattr(arguments, "plan", None) is None:
        return
    fields = type(arguments).model_fields
    # The plan has recorded its arguments, so others would be ignored.
    for name, field in fields.items():
        if name in ("plan", "store", *allowed):
            continue
        if getattr(arguments, name) != field.default:
            raise InvalidInput(
                f"{name} cannot be passed with plan; the plan has recorded its arguments"
            )


def to_tuple(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return one value or several as a tuple."""
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


_AGE_PATTERN = re.compile(r"(\d{1,6})\s*([mhdw])")
_DAYS_AGO_PATTERN = re.compile(r"(\d{1,6}) days? ago")
_DAYS_BY_NAME = {"today": 0, "yesterday": 1, "last week": 7}
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def format_time(at: float | None) -> str | None:
    """Return a time in ISO 8601 to the second in UTC, or None for a time outside the calendar."""
    try:
        return None if at is None else _format_second(int(at))
    except (OverflowError, ValueError, OSError):
        return None


@lru_cache(4096)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).isoformat().replace("+00:00", "Z")


def parse_time(name: str, text: str | None, now: float, *, is_end: bool = False) -> float | None:
    """Return the time of an argument.

    `is_end` selects the end of a day instead of its beginning.

    A time without a zone is UTC; the days of `yesterday` and its like are local.

    Raises:
        InvalidInput: the text is not a valid time, day or age.
    """
    if text is None:
        return None
    words = " ".join(text.lower().split())
    age = _AGE_PATTERN.fullmatch(words)
    if age:
        return now - int(age[1]) * _UNIT_SECONDS[age[2]]
    try:
        day = _parse_local_day(words, now)
        if day is not None:
            return (day + timedelta(days=int(is_end))).timestamp()
        return _parse_iso_time(text.strip(), is_end=is_end)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{name} {redact(text)!r:.80} is not a valid time; pass an age such as '7d' or '12h', "
            "'yesterday', '3 days ago', 'last week', or a time such as '2026-11-01T08:00:00Z'"
        ) from error


def _parse_local_day(words: str, now: float) -> datetime | None:
    """Return the local midnight at which a day named in words begins, or None for other words."""
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)  # noqa: DTZ006 -- the days of words are local
    days_ago = _DAYS_AGO_PATTERN.fullmatch(words)
    if days_ago:
        return today - timedelta(days=int(days_ago[1]))
    if words == "last month":
        year, month = (today.year, today.month - 1) if today.month > 1 else (today.year - 1, 12)
        last_day = calendar.monthrange(year, month)[1]
        return today.replace(year=year, month=month, day=min(today.day, last_day))
    days = _DAYS_BY_NAME.get(words)
    return None if days is None else today - timedelta(days=days)


def _parse_iso_time(text: str, *, is_end: bool) -> float:
    """Return a time given in ISO 8601, or the beginning or end of a date.

    A time without a zone is UTC.
    """
    parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)
    return (zoned + timedelta(days=int(is_end and _is_date(text)))).timestamp()


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def parse_time_range(
    since: str | None, until: str | None, now: float
) -> tuple[float | None, float | None]:
    """Return the bounds of a time range.

    A day in `until` includes its end.

    Raises:
        InvalidInput: a bound is not valid, or since is later than until.
    """
    first = parse_time("since", since, now)
    last = parse_time("until", until, now, is_end=True)
    if first is not None and last is not None and first > last:
        raise InvalidInput(
            f"since {since!r:.80} must not be later than until {until!r:.80}; exchange them"
        )
    return first, last

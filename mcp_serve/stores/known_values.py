"""Match the values of arguments with the values in the stores, and explain unknown values.

Sources, platforms and folders are open sets: a wrong value is not an error, but a note that lists
the values that exist saves the caller a search for them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mcp_serve import render
from mcp_serve.arguments import to_tuple
from mcp_serve.stores.served_store import ServedStore
from session_core import SessionError

A = TypeVar("A")

_MAX_LISTED = 20
_MAX_FOLDERS_LISTED = 8
# The library takes no more.
_MAX_FOLDERS = 200
_MAX_VALUE_CHARS = 200
# A home may have other values.
USUAL_ROLES = ("user", "assistant", "tool", "system")
_PLAIN_VALUE = re.compile(r"[\w.:/\\~@+-]+")


@dataclass(slots=True)
class MatchedArguments(Generic[A]):
    """Arguments with values spelled as in the stores, and notes about them."""

    arguments: A
    notes: list[str] = field(default_factory=list)
    is_unknown: bool = False
    """A value that selects does not exist, so the answer is empty."""

    def replace(self, name: str, value: Any) -> None:
        """Replace the value of an argument."""
        self.arguments = self.arguments.model_copy(update={name: value})  # type: ignore[attr-defined]


def match_known_values(stores: Sequence[ServedStore], arguments: A) -> MatchedArguments[A]:
    """Return the arguments with `source`, `exclude_source`, `roles` and `project` matched."""
    matched = MatchedArguments(arguments)
    for name in ("source", "exclude_source"):
        _match_sources(stores, matched, name)
    roles = getattr(arguments, "roles", None)
    if roles is not None:
        matched.replace("roles", [role.casefold() for role in roles])
    if getattr(arguments, "project", None):
        _expand_project(stores, matched)
    return matched


def _match_sources(stores: Sequence[ServedStore], matched: MatchedArguments[A], name: str) -> None:
    passed = to_tuple(getattr(matched.arguments, name, None))
    if passed is None:
        return
    existing = collect_values(stores, lambda store: store.list_sources())
    values, unknown = match_values(passed, existing)
    matched.replace(name, tuple(values))
    if unknown:
        matched.notes.append(explain_unknown_values(stores[0], name, unknown, existing))
        matched.is_unknown |= name == "source" and not values


def match_values(values: Iterable[str], existing: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the existing spellings of the values that exist, and the unknown values."""
    spellings: dict[str, list[str]] = {}
    for value in existing:
        spellings.setdefault(value.casefold(), []).append(value)
    matching = [value for text in values for value in spellings.get(text.casefold(), ())]
    return matching, [text for text in values if text.casefold() not in spellings]


def explain_unknown_values(
    store: ServedStore, name: str, unknown: Sequence[str], existing: Iterable[str]
) -> str:
    """Return a note about values that do not exist."""
    listed_values = ", ".join(repr(_render_value(store, text)) for text in unknown[:_MAX_LISTED])
    return f"No {name} {listed_values}; existing: {_format_values(store, existing, _MAX_LISTED)}."


def collect_values(
    stores: Sequence[ServedStore], read: Callable[[ServedStore], Iterable[str]]
) -> list[str]:
    """Return the values of all stores that can be read, each once."""
    values: dict[str, None] = {}
    for store in stores:
        with suppress(SessionError):  # the answer reports the fault of a store
            values |= dict.fromkeys(read(store))
    return list(values)


def _expand_project(stores: Sequence[ServedStore], matched: MatchedArguments[A]) -> None:
    """Replace the last part of a folder by all folders that end in it."""
    project: str = os.path.expanduser(matched.arguments.project)  # type: ignore[attr-defined]  # noqa: PTH111 -- the path may be of another system
    if _is_whole_path(project):
        matched.replace("project", project)
        return
    existing = collect_values(stores, lambda store: store.list_folders())
    folders = find_folders_ending_in(project, existing)
    matched.replace("project", tuple(folders[:_MAX_FOLDERS]))
    if not folders:
        matched.notes.append(explain_unknown_folder(stores[0], project, existing))
        matched.is_unknown = True
    elif len(folders) > 1:
        listed = _format_values(stores[0], folders, _MAX_FOLDERS_LISTED)
        matched.notes.append(f"project means each of {listed}; pass one of them for it alone.")


def _is_whole_path(text: str) -> bool:
    return text.startswith(("/", "\\", "~")) or re.match("[A-Za-z]:", text) is not None


def find_folders_ending_in(ending: str, folders: Iterable[str]) -> list[str]:
    """Return the folders that end in these parts, or else the folders above that do.

    Folders below another folder of the result are left out.
    """
    parts = _split_parts(ending)
    matches: dict[str, None] = {}
    above: dict[str, None] = {}
    for folder in folders:
        for end in _find_end_positions(folder, parts):
            (matches if end == len(folder.rstrip("/\\")) else above)[folder[:end]] = None
    selected = sorted(matches or above)
    return [f for f in selected if not any(_is_below(f, other) for other in selected)]


def _split_parts(path: str) -> list[str]:
    return [part.casefold() for part in re.split(r"[/\\]+", path) if part not in ("", ".")]


def _find_end_positions(folder: str, wanted: Sequence[str]) -> list[int]:
    """Return the positions in a folder at which these consecutive parts end."""
    parts = list(re.finditer(r"[^/\\]+", folder))
    names = [part[0].casefold() for part in parts]
    size = len(wanted)
    places = range(size, len(names) + 1) if size else ()
    return [parts[at - 1].end() for at in places if names[at - size : at] == wanted]


def _is_below(folder: str, other: str) -> bool:
    return folder.startswith((f"{other}/", f"{other}\\"))


def explain_unknown_folder(store: ServedStore, project: str, folders: Iterable[str]) -> str:
    """Return a note about a folder without sessions, with the most similar folders first."""
    existing = list(folders)
    if not existing:
        return "No session has a folder; leave project out."
    last_part = (_split_parts(project) or [""])[-1]
    by_part = {(_split_parts(folder) or [""])[-1]: folder for folder in existing}
    nearest = [by_part[part] for part in difflib.get_close_matches(last_part, by_part, 3)]
    listed = _format_values(store, dict.fromkeys([*nearest, *existing]), _MAX_FOLDERS_LISTED)
    shown_project = _render_value(store, project)
    return f"No session is in a folder {shown_project!r}; folders with sessions: {listed}."


def _format_values(store: ServedStore, values: Iterable[str], limit: int) -> str:
    quoted = [_quote_unless_plain(_render_value(store, value)) for value in values]
    more = f" and {len(quoted) - limit:,} more" if len(quoted) > limit else ""
    return (", ".join(quoted[:limit]) or "none") + more


def _render_value(store: ServedStore, value: str) -> str:
    return render.render_line(store, value, _MAX_VALUE_CHARS) or ""


def _quote_unless_plain(text: str) -> str:
    """Return a name or a path as it is, and any other stored text as a JSON string.

    A note speaks for the server, so a stored sentence must not read like a part of it.
    """
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def explain_unusual_roles(home: ServedStore, roles: Sequence[str] | None) -> str | None:
    """Return a note with the usual roles if unusual roles select nothing, or None."""
    unusual = [role for role in roles or () if role.casefold() not in USUAL_ROLES]
    if not unusual:
        return None
    shown_roles = render.render_line(home, ", ".join(unusual), 100)
    return f"No hit has the role {shown_roles}; usual roles: {', '.join(USUAL_ROLES)}."

"""Find the session for an id, a unique prefix of an id, a session key or an exact title."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_serve.homes import ServedHome
from session_core import InvalidInput, NotFound

_MAX_NEAREST = 5

EXACT_REASON = "; a change requires a full id or a session key"


@dataclass(frozen=True, slots=True)
class ResolvedSession:
    """A session, and how its reference named it: 0 id, 1 session key, 2 title, 3 prefix."""

    id: str
    way: int


def find_session(home: ServedHome, reference: str) -> ResolvedSession:
    """Return the session for a reference; a key or a title refers to the tip of its conversation.

    Raises:
        InvalidInput: several sessions match.
        NotFound: no session matches.
    """
    match = match_session(home, reference)
    if match is None:
        raise make_unknown_error(home, reference)
    return match


def find_exact_session(home: ServedHome, reference: str) -> str:
    """Return the id of the session for a full id or a session key, as changing tools require.

    Raises:
        NotFound: no session matches.
    """
    match = match_session(home, reference, exact=True)
    if match is None:
        raise make_unknown_error(home, reference, exact=True)
    return match.id


def match_session(
    home: ServedHome, reference: str, *, exact: bool = False
) -> ResolvedSession | None:
    """Return the session for a reference, or None; `exact` allows only an id or a session key."""
    if home.db.get_session(reference) is not None:
        return ResolvedSession(reference, 0)
    keyed = None if reference.startswith("_") else home.store.peek_session_id(reference)
    if keyed is not None:
        return ResolvedSession(home.db.get_compression_tip(keyed), 1)
    if exact:
        return None
    row = home.db.get_session_by_title(reference)
    if row is not None:
        return ResolvedSession(home.db.get_compression_tip(row["id"]), 2)
    session_id = home.db.resolve_session_id(reference)
    return None if session_id is None else ResolvedSession(session_id, 3)


def make_unknown_error(
    home: ServedHome, reference: str, *, exact: bool = False
) -> InvalidInput | NotFound:
    """Return the error for a reference that names no session of a home, or several."""
    location = f" in store {home.store_name}" if home.store_name else ""
    reason = EXACT_REASON if exact else ""
    try:
        home.db.summarize_session(reference)
    except NotFound as error:
        matches = [id_ for id_ in error.nearest if id_.startswith(reference)][:_MAX_NEAREST]
        if len(matches) > 1 and not exact:
            return InvalidInput(
                f"several sessions begin with {reference!r:.100}: {', '.join(matches)}; "
                "pass a longer prefix"
            )
        return NotFound(
            f"no session {reference!r:.100}{location}{reason}; "
            "call sessions_list or sessions_search for ids",
            nearest=error.nearest[:_MAX_NEAREST],
        )
    return NotFound(f"session {reference!r:.100} was just created; try again")

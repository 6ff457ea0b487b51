"""Find the session for an id, a unique prefix of an id, a session key or an exact title."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_serve.homes import ServedHome
from session_core import InvalidInput, NotFound

_MAX_NEAREST = 5


@dataclass(frozen=True, slots=True)
class ResolvedSession:
    """A session, and whether it was given by its id."""

    id: str
    by_id: bool


def find_session(home: ServedHome, reference: str) -> ResolvedSession:
    """Return the session for a reference; a key or a title refers to the tip of its conversation.

    Raises:
        InvalidInput: several sessions match.
        NotFound: no session matches.
    """
    exact = _find_by_key(home, reference)
    if exact is not None:
        return exact
    row = home.db.get_session_by_title(reference)
    if row is not None:
        return ResolvedSession(home.db.get_compression_tip(row["id"]), by_id=False)
    session_id = home.db.resolve_session_id(reference)
    if session_id is not None:
        return ResolvedSession(session_id, by_id=True)
    raise _make_unknown_error(home, reference)


def find_exact_session(home: ServedHome, reference: str) -> str:
    """Return the id of the session for a full id or a session key, as changing tools require.

    Raises:
        NotFound: no session matches.
    """
    exact = _find_by_key(home, reference)
    if exact is None:
        raise _make_unknown_error(
            home, reference, reason="; a change requires a full id or a session key"
        )
    return exact.id


def _find_by_key(home: ServedHome, reference: str) -> ResolvedSession | None:
    if home.db.get_session(reference) is not None:
        return ResolvedSession(reference, by_id=True)
    if reference.startswith("_"):
        return None
    session_id = home.store.peek_session_id(reference)
    return (
        None
        if session_id is None
        else ResolvedSession(home.db.get_compression_tip(session_id), by_id=False)
    )


def _make_unknown_error(
    home: ServedHome, reference: str, reason: str = ""
) -> InvalidInput | NotFound:
    location = f" in store {home.store_name}" if home.store_name else ""
    try:
        home.db.summarize_session(reference)
    except NotFound as error:
        matches = [id_ for id_ in error.nearest if id_.startswith(reference)][:_MAX_NEAREST]
        if len(matches) > 1 and not reason:
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

"""Which session is meant by an id, a unique prefix of one, a session key or an exact title."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_serve.homes import ServedHome
from session_core import InvalidInput, NotFound

_MAX_NEAREST = 5


@dataclass(frozen=True, slots=True)
class ResolvedSession:
    """A session, and whether its own id was given."""

    id: str
    by_id: bool


def find_session(home: ServedHome, given: str) -> ResolvedSession:
    """Return the session that is meant; a key or a title means the tip of its conversation.

    Raises:
        InvalidInput: several are.
        NotFound: none is.
    """
    exact = _find_by_key(home, given)
    if exact is not None:
        return exact
    titled = home.db.get_session_by_title(given)
    if titled is not None:
        return ResolvedSession(home.db.get_compression_tip(titled["id"]), by_id=False)
    full = home.db.resolve_session_id(given)
    if full is not None:
        return ResolvedSession(full, by_id=True)
    raise _make_unknown_error(home, given)


def find_exact_session(home: ServedHome, given: str) -> str:
    """Return the session that a full id or a session key means, for what changes one.

    Raises:
        NotFound: none is.
    """
    exact = _find_by_key(home, given)
    if exact is None:
        raise _make_unknown_error(home, given, why="; a change takes a full id or a session key")
    return exact.id


def _find_by_key(home: ServedHome, given: str) -> ResolvedSession | None:
    if home.db.get_session(given) is not None:
        return ResolvedSession(given, by_id=True)
    if given.startswith("_"):
        return None
    led = home.store.peek_session_id(given)
    return None if led is None else ResolvedSession(home.db.get_compression_tip(led), by_id=False)


def _make_unknown_error(home: ServedHome, given: str, why: str = "") -> InvalidInput | NotFound:
    where = f" in profile {home.profile}" if home.profile else ""
    try:
        home.db.summarize_session(given)
    except NotFound as error:
        several = [each for each in error.nearest if each.startswith(given)][:_MAX_NEAREST]
        if len(several) > 1 and not why:
            return InvalidInput(
                f"several sessions begin with {given!r:.100}: {', '.join(several)}; give more of it"
            )
        return NotFound(
            f"no session {given!r:.100}{where}{why}; call sessions_list or sessions_search for ids",
            nearest=error.nearest[:_MAX_NEAREST],
        )
    return NotFound(f"session {given!r:.100} has just come; try again")

"""Find the session for an id, a unique prefix of an id, a session key or an exact title."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_serve.stores.served_store import ResolvedSession, ServedStore
from session_core import InvalidInput, NotFound

_MAX_NEAREST = 5

EXACT_REASON = "; a change requires an id, a unique prefix or a session key"


def find_session(store: ServedStore, reference: str) -> ResolvedSession:
    """Return the session for a reference.

    A key or a title refers to the tip of its conversation.

    Raises:
        InvalidInput: several sessions match.
        NotFound: no session matches.
    """
    match = store.match_session(reference)
    if match is None:
        raise make_unknown_error(store, reference)
    return match


def find_session_by_id_or_key(store: ServedStore, reference: str) -> str:
    """Return the id of the session for an id, a prefix or a session key.

    Most changes take no title.

    Raises:
        InvalidInput: several sessions match.
        NotFound: no session matches.
    """
    match = store.match_session(reference, titles=False)
    if match is None:
        raise make_unknown_error(store, reference, titles=False)
    return match.id


def make_unknown_error(
    store: ServedStore, reference: str, *, titles: bool = True
) -> InvalidInput | NotFound:
    """Return the error for a reference that names no session of a home, or several sessions."""
    location = f" in store {store.store_name}" if store.store_name else ""
    reason = "" if titles else EXACT_REASON
    nearest = store.list_nearest_ids(reference)
    if nearest is None:
        return NotFound(f"session {reference!r:.100} was just created; try again")
    matches = sorted(id_ for id_ in nearest if id_.startswith(reference))[:_MAX_NEAREST]
    if len(matches) > 1:
        return InvalidInput(
            f"several sessions begin with {reference!r:.100}: {', '.join(matches)}; "
            f"pass a longer prefix, such as {_find_unique_prefix(matches)!r}"
        )
    return NotFound(
        f"no session {reference!r:.100}{location}{reason}; "
        "call sessions_list or sessions_search for ids",
        nearest=tuple(nearest[:_MAX_NEAREST]),
    )


def _find_unique_prefix(matches: Sequence[str]) -> str:
    """Return the shortest prefix of the first of sorted ids that none of the others has."""
    first, second = matches[:2]
    pairs = enumerate(zip(first, second, strict=False))
    common = next((index for index, (one, other) in pairs if one != other), len(first))
    return first[: common + 1]

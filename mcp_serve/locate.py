"""Find the store that a call is about: the named one, or that of its plan, batch or sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_serve import resolve
from mcp_serve.homes import ServedHome
from mcp_serve.resolve import ResolvedSession
from mcp_serve.stores import ServedStores
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, NotFound, SessionError

_MAX_LISTED = 5


def locate_store(
    served: ServedStores, spec: ToolSpec, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call with its store, or without one if it is about all of them.

    Raises:
        InvalidInput: the store is not served, a session is in several stores, or the sessions of a
            change are.
        NotFound: no store has the session.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if given.get("store") is not None:
        served.get_path(given["store"])
    if len(served.names) == 1:
        return {**arguments, "store": None}  # the same cursor fits with and without the name
    if "store" in given or "cursor" in given:
        return dict(arguments)
    return {**arguments, "store": _find_store(served, spec, given)}


def _find_store(served: ServedStores, spec: ToolSpec, given: Mapping[str, Any]) -> str | None:
    handles = {name: given[name] for name in ("plan", "batch") if name in given}
    if handles:
        return served.find_store(**handles)
    if given.get("what") == "trash":
        return _find_common_store(served, spec, given.get("sessions", ()), is_batch=True)
    if "session" in given:
        return find_session_store(served.get_homes(), given["session"], exact=spec.changes)
    return _find_common_store(served, spec, given.get("sessions", ()), is_batch=False)


def find_session_store(stores: Sequence[ServedHome], reference: str, *, exact: bool) -> str | None:
    """Return the store that has a session.

    Raises:
        InvalidInput: several stores have it.
        NotFound: no store has it.
    """
    matches, failure = _match_session(stores, reference, exact=exact)
    if not matches and failure is not None:
        raise failure
    if not matches:
        raise _make_unknown_error(stores, reference, exact=exact)
    return _get_only_store(reference, matches)


def _match_session(
    stores: Sequence[ServedHome], reference: str, *, exact: bool
) -> tuple[list[ServedHome], SessionError | None]:
    """Return the stores that match a reference best, and why a store could not be read."""
    matches: list[tuple[ServedHome, ResolvedSession]] = []
    failure: SessionError | None = None
    for store in stores:
        try:
            match = resolve.match_session(store, reference, exact=exact)
        except SessionError as error:
            failure = failure or error
        else:
            if match is not None:
                matches.append((store, match))
    best = min((match.way for _, match in matches), default=0)
    return [store for store, match in matches if match.way == best], failure


def _get_only_store(reference: str, stores: Sequence[ServedHome]) -> str | None:
    if len(stores) > 1:
        names = ", ".join(str(store.store_name) for store in stores)
        raise InvalidInput(f"{reference!r:.100} exists in several stores: {names}; pass store")
    return stores[0].store_name


def _find_common_store(
    served: ServedStores, spec: ToolSpec, references: Sequence[str], *, is_batch: bool
) -> str | None:
    """Return the only store of these sessions or batches, or None if none of them is known.

    Raises:
        InvalidInput: they are in several stores.
    """
    groups: dict[str | None, list[str]] = {}
    homes = served.get_homes() if references else []
    for reference in references:
        if is_batch:
            store = served.find_store(batch=reference)
        else:
            matches, _ = _match_session(homes, reference, exact=True)
            store = _get_only_store(reference, matches) if matches else None
        groups.setdefault(store, []).append(reference)
    # The tool reports an unknown session.
    known = {store: group for store, group in groups.items() if store is not None}
    if len(known) > 1:
        calls = " and ".join(
            f"{spec.name}(store={store!r}, sessions={_shorten_list(group)})"
            for store, group in known.items()
        )
        raise InvalidInput(f"one call changes one store, got sessions of several; call {calls}")
    return next(iter(known), None)


def _shorten_list(references: Sequence[str]) -> str:
    shown = [f"{reference!r:.100}" for reference in references[:_MAX_LISTED]]
    more = [f"and {len(references) - _MAX_LISTED:,} more"] if len(references) > _MAX_LISTED else []
    return f"[{', '.join([*shown, *more])}]"


def _make_unknown_error(
    stores: Sequence[ServedHome], reference: str, *, exact: bool
) -> InvalidInput | NotFound:
    """Return the error of the first store, with the nearest ids of all."""
    errors = [resolve.make_unknown_error(store, reference, exact=exact) for store in stores]
    ambiguous = next((error for error in errors if isinstance(error, InvalidInput)), None)
    if ambiguous is not None:
        return ambiguous
    nearest = [id_ for error in errors for id_ in getattr(error, "nearest", ())]
    names = ", ".join(str(store.store_name) for store in stores)
    reason = resolve.EXACT_REASON if exact else ""
    return NotFound(
        f"no session {reference!r:.100} in {names}{reason}; "
        "call sessions_list or sessions_search for ids",
        nearest=tuple(nearest[:_MAX_LISTED]),
    )

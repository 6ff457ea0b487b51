"""Find the store of a call, by its name or by the plan, batch or sessions of the call."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_serve.stores import session_lookup
from mcp_serve.stores.served_store import ResolvedSession, ServedStore
from mcp_serve.stores.stores import ServedStores
from mcp_serve.tools.spec import ToolSpec
from session_core import InvalidInput, NotFound, SessionError, Unsupported

_MAX_LISTED = 5
_BY_PREFIX = 3


def locate_store(
    served: ServedStores, spec: ToolSpec, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call with `store` filled in from its plan, batch or sessions.

    `store` is None if the call covers all stores.

    Raises:
        InvalidInput: the store is not served, a session is in several stores, or a change has
            sessions of several stores.
        Unsupported: the call would change a transcript of another agent.
        NotFound: no store has the session.
    """
    given_arguments = {name: value for name, value in arguments.items() if value is not None}
    if given_arguments.get("store") is not None:
        served.check_name(given_arguments["store"])
    if spec.changes:
        _refuse_named_transcripts(served, spec, given_arguments)
    if len(served.names) == 1:
        return {**arguments, "store": None}  # the same cursor fits with and without the name
    if "store" in given_arguments or "cursor" in given_arguments:
        return dict(arguments)
    return {**arguments, "store": _find_store(served, spec, given_arguments)}


def _find_store(
    served: ServedStores, spec: ToolSpec, given_arguments: Mapping[str, Any]
) -> str | None:
    handles = {name: given_arguments[name] for name in ("plan", "batch") if name in given_arguments}
    if handles:
        return served.find_store(**handles)
    if given_arguments.get("what") == "trash":
        return _find_common_store(served, spec, given_arguments, is_batch=True)
    if "session" in given_arguments:
        return find_session_store(served.get_stores(), given_arguments["session"], spec)
    return _find_common_store(served, spec, given_arguments, is_batch=False)


def find_session_store(
    stores: Sequence[ServedStore], reference: str, spec: ToolSpec | None = None
) -> str | None:
    """Return the name of the store that has a session.

    Raises:
        InvalidInput: several sessions match.
        NotFound: no store has it.
        Unsupported: the tool would change a transcript.
    """
    titles = _can_take_titles(spec)
    matches, failure = _match_session(stores, reference, titles=titles)
    if not matches and failure is not None:
        raise failure
    if not matches:
        raise _make_unknown_error(stores, reference, titles=titles)
    return _get_only_store(spec, reference, matches)


def _can_take_titles(spec: ToolSpec | None) -> bool:
    return spec is not None and (spec.takes_titles or not spec.changes)


def _refuse_named_transcripts(
    served: ServedStores, spec: ToolSpec, given_arguments: Mapping[str, Any]
) -> None:
    """Refuse a change of a store of another agent before anything is planned.

    Raises:
        Unsupported: the named store holds transcripts, or no home is served.
    """
    store = given_arguments.get("store")
    is_none_served = store is None and not served.home_names
    if not spec.takes_transcripts and (store in served.transcript_names or is_none_served):
        raise Unsupported(
            f"{store or ', '.join(served.names)} holds transcripts of another agent, and "
            f"{spec.name} changes sessions of a home only; serve or name a home"
        )


def _make_refusal(spec: ToolSpec, store: ServedStore, match: ResolvedSession) -> Unsupported:
    """Return the error for a change of a transcript, with the calls that work instead."""
    resume = getattr(store.summarize_session(match.id), "resume", None)
    instead = f", or continue it with `{shlex.join(resume)}`" if resume else ""
    return Unsupported(
        f"session {match.id!r:.100} is a transcript of {match.transcript_of}, and {spec.name} "
        f"changes sessions of a home only; read it with sessions_read, archive, pin or title it "
        f"with sessions_edit{instead}"
    )


def _match_session(
    stores: Sequence[ServedStore], reference: str, *, titles: bool
) -> tuple[list[tuple[ServedStore, ResolvedSession]], SessionError | None]:
    """Return the best matches of a reference in one store, and the error of a store that failed.

    Raises:
        InvalidInput: a prefix or title matches several sessions of a store.
    """
    # First by id and key, which are quick to look up.
    matches, failure = _collect_matches(stores, reference, exact=True, titles=False)
    if matches:
        return matches, failure
    matches, failure = _collect_matches(stores, reference, exact=False, titles=titles)
    if matches and isinstance(failure, InvalidInput):
        raise failure
    if matches and matches[0][1].way == _BY_PREFIX:
        _require_unique_prefix(stores, reference, [store for store, _ in matches])
    return matches, failure


def _collect_matches(
    stores: Sequence[ServedStore], reference: str, *, exact: bool, titles: bool
) -> tuple[list[tuple[ServedStore, ResolvedSession]], SessionError | None]:
    """Return the best matches over all stores, and the error of a store that failed."""
    matches: list[tuple[ServedStore, ResolvedSession]] = []
    failure: SessionError | None = None
    for store in stores:
        try:
            match = store.match_session(reference, exact=exact, titles=titles)
        except SessionError as error:
            failure = failure or error
        else:
            if match is not None:
                matches.append((store, match))
    best = min((match.way for _, match in matches), default=0)
    return [(store, match) for store, match in matches if match.way == best], failure


def _require_unique_prefix(
    stores: Sequence[ServedStore], reference: str, matching: Sequence[ServedStore]
) -> None:
    """Refuse a prefix that names one session in one store and several sessions in another."""
    for store in stores:
        if store in matching:
            continue
        try:
            error = session_lookup.make_unknown_error(store, reference)
        except SessionError:  # this store cannot be read
            continue
        if isinstance(error, InvalidInput):
            raise error


def _get_only_store(
    spec: ToolSpec | None, reference: str, matches: Sequence[tuple[ServedStore, ResolvedSession]]
) -> str | None:
    """Return the name of the only store that matches, and refuse a change of a transcript."""
    is_changed = spec is not None and spec.changes and not spec.takes_transcripts
    if is_changed:
        # Only a session of a home can be changed.
        in_homes = [(store, match) for store, match in matches if match.transcript_of is None]
        matches = in_homes or matches
    if len(matches) > 1:
        names = ", ".join(str(_get_matched_store(*match)) for match in matches)
        raise InvalidInput(f"{reference!r:.100} exists in several stores: {names}; pass store")
    ((store, match),) = matches
    if spec is not None and is_changed and match.transcript_of is not None:
        raise _make_refusal(spec, store, match)
    return _get_matched_store(store, match)


def _get_matched_store(store: ServedStore, match: ResolvedSession) -> str | None:
    return match.transcript_of or store.store_name


def _find_common_store(
    served: ServedStores, spec: ToolSpec, given_arguments: Mapping[str, Any], *, is_batch: bool
) -> str | None:
    """Return the only store of these sessions or batches, or None if they are unknown.

    Raises:
        InvalidInput: they are in several stores.
    """
    references: Sequence[str] = given_arguments.get("sessions", ())
    groups: dict[str | None, list[str]] = {}
    homes = served.get_stores() if references else []
    for reference in references:
        if is_batch:
            store = served.find_store(batch=reference)
        else:
            titles = _can_take_titles(spec)
            matches, failure = _match_session(homes, reference, titles=titles)
            if not matches and failure is None and spec.takes_transcripts:
                raise _make_unknown_error(homes, reference, titles=titles)
            store = _get_only_store(spec, reference, matches) if matches else None
        groups.setdefault(store, []).append(reference)
    # The tool reports an unknown session.
    known_groups = {store: group for store, group in groups.items() if store is not None}
    if len(known_groups) > 1:
        more = "".join(
            f", {name}={json.dumps(value, ensure_ascii=False)}"
            for name, value in given_arguments.items()
            if name not in ("store", "sessions")
        )
        calls = " and ".join(
            f"{spec.name}(store={store!r}, sessions={_format_references(group)}{more})"
            for store, group in known_groups.items()
        )
        raise InvalidInput(f"one call changes one store, got sessions of several; call {calls}")
    return next(iter(known_groups), None)


def _format_references(references: Sequence[str]) -> str:
    listed = [f"{reference!r:.100}" for reference in references[:_MAX_LISTED]]
    more = [f"and {len(references) - _MAX_LISTED:,} more"] if len(references) > _MAX_LISTED else []
    return f"[{', '.join([*listed, *more])}]"


def _make_unknown_error(
    stores: Sequence[ServedStore], reference: str, *, titles: bool
) -> InvalidInput | NotFound:
    """Return the error of the first store, with the nearest ids of all."""
    errors = [
        session_lookup.make_unknown_error(store, reference, titles=titles) for store in stores
    ]
    ambiguous = next((error for error in errors if isinstance(error, InvalidInput)), None)
    if ambiguous is not None:
        return ambiguous
    nearest = [id_ for error in errors for id_ in getattr(error, "nearest", ())]
    names = ", ".join(name for store in stores for name in store.names)
    reason = "" if titles else session_lookup.EXACT_REASON
    return NotFound(
        f"no session {reference!r:.100} in {names}{reason}; "
        "call sessions_list or sessions_search for ids",
        nearest=tuple(nearest[:_MAX_LISTED]),
    )

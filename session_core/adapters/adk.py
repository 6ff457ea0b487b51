"""`AdkSessionService`: the session service of Google's Agent Development Kit over a home."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from session_core.adapters.shared import (
    HomeAdapter,
    HomeArgument,
    check_session_id,
    join_texts,
    quote_part,
)
from session_core.errors import InvalidInput
from session_core.types import SessionRow

SOURCE = "google-adk"

_UPDATED = "updated"
_STATE_PREFIX = "state/"


class AdkSessionService(HomeAdapter, BaseSessionService):
    """Stores sessions, events and state: `Runner(session_service=AdkSessionService(home), …)`.

    `home` is a folder, a file that ends in `.db`, or an opened home (`open_home`). In
    `services.yaml` the address `SCHEME://PATH` of a service of this class names it. State of the
    session goes with the session; state with the prefix `user:` or `app:` outlives it, and `temp:`
    is never stored. An event is refused only if another one was appended since the session was
    read. `delete_session` moves the session to the trash, and can be undone.
    """

    client = SOURCE

    def __init__(
        self,
        home: HomeArgument | None = None,
        *,
        uri: str | None = None,
        agents_dir: str | None = None,
        **options: Any,
    ) -> None:
        del agents_dir  # the loader of services.yaml passes it to every service
        if options:
            raise InvalidInput(
                f"unknown arguments: {', '.join(sorted(options))}; "
                "pass only home, or only uri, such as sessions://folder"
            )
        if (home is None) == (uri is None):
            raise InvalidInput("pass either home or uri, such as sessions://folder")
        super().__init__(_get_path(uri) if uri is not None else home or "")

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session with its first state.

        Raises:
            AlreadyExistsError: the id is taken.
            InvalidInput: the id in the home is too long.
        """
        name = (session_id or "").strip() or str(uuid.uuid4())
        return await self.run_in_thread(
            partial(self._create_session, app_name, user_id, name, state or {})
        )

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its state and events, or None if it does not exist."""
        return await self.run_in_thread(
            partial(self._read_session, app_name, user_id, session_id.strip(), config)
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of an app or of a user, without events, the newest last."""
        sessions = await self.run_in_thread(partial(self._list_sessions, app_name, user_id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(  # type: ignore[override]  # the interface of the SDK
        self, *, app_name: str, user_id: str, session_id: str
    ) -> None:
        """Move a session to the trash, if it exists."""
        row_id = build_session_id(app_name, user_id, session_id.strip())
        # The method of the SDK has the name of that of the base class.
        await self.run_in_thread(partial(HomeAdapter.delete_session, self, row_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, without the prefix `user:`."""
        return await self.run_in_thread(
            partial(self.home.db.state.read_user_state, app_name, user_id)
        )

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event with its changes of state, and add it to the session object.

        Raises:
            SessionNotFoundError: the session does not exist.
            StaleSessionError: another event was appended since the session was read.
        """
        # The SDK streams an answer in parts; the whole event follows.
        if event.partial:
            return event
        # Before the temporary keys are trimmed: later agents of this run still read them.
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await self.run_in_thread(partial(self._append_event, session, event))
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    def _create_session(self, app: str, user: str, name: str, state: Mapping[str, Any]) -> Session:
        db, now = self.home.db, time.time()
        row_id = check_session_id(build_session_id(app, user, name))
        with db.transaction():
            if db.get_session(row_id) is not None:
                raise AlreadyExistsError(f"session {name!r} of user {user!r} exists already")
            db.create_session(
                row_id, SOURCE, started_at=now, user_id=user, chat_id=app, display_name=name
            )
            self._change_state(row_id, app, user, state, now)
        with db.snapshot():
            return self._build_session(app, user, name, db.state.read_session_state(row_id))

    def _read_session(
        self, app: str, user: str, name: str, config: GetSessionConfig | None
    ) -> Session | None:
        db, row_id = self.home.db, build_session_id(app, user, name)
        with db.snapshot():
            if db.get_session(row_id) is None:
                return None
            session = self._build_session(app, user, name, db.state.read_session_state(row_id))
            session.events = self._read_events(row_id, config)
        return session

    def _read_events(self, row_id: str, config: GetSessionConfig | None) -> list[Event]:
        count = None if config is None else config.num_recent_events
        if count == 0:
            return []
        since = config.after_timestamp if config is not None else None
        # The count is of events after the time, so that all of them are read for it.
        payloads = self.home.db.sdk.list_payloads(row_id, None if since else count)
        if since:
            payloads = [
                payload for payload in payloads if json.loads(payload)["timestamp"] >= since
            ]
        return [Event.model_validate_json(payload) for payload in payloads[-(count or 0) :]]

    def _list_sessions(self, app: str, user: str | None) -> list[Session]:
        db = self.home.db
        with db.snapshot():
            sessions = [
                self._build_session(app, owner, name, db.state.read_session_state(row["id"]))
                for row in db.sdk.find_platform_sessions(SOURCE, app, user_id=user)
                for owner, name in [_get_names(row)]
                # The continuation of a compression has the names of its session.
                if row["id"] == build_session_id(app, owner, name)
            ]
        return sorted(
            sessions, key=lambda session: (session.last_update_time, session.user_id, session.id)
        )

    def _build_session(self, app: str, user: str, name: str, stored: Mapping[str, Any]) -> Session:
        state = self.home.db.state
        own = {
            key.removeprefix(_STATE_PREFIX): value
            for key, value in stored.items()
            if key.startswith(_STATE_PREFIX)
        }
        of_app = _add_prefix(State.APP_PREFIX, state.read_app_state(app))
        of_user = _add_prefix(State.USER_PREFIX, state.read_user_state(app, user))
        return Session(
            app_name=app,
            user_id=user,
            id=name,
            state=own | of_app | of_user,
            last_update_time=stored.get(_UPDATED, 0.0),
        )

    def _append_event(self, session: Session, event: Event) -> None:
        db = self.home.db
        row_id = build_session_id(session.app_name, session.user_id, session.id)
        with db.transaction():
            if db.get_session(row_id) is None:
                raise SessionNotFoundError(f"session {session.id!r} does not exist")
            updated = db.state.read_session_state(row_id).get(_UPDATED, 0.0)
            if updated > session.last_update_time:
                raise StaleSessionError(
                    f"session {session.id!r} was changed since it was read; read it again"
                )
            db.append_messages(row_id, list(_build_rows(event)))
            delta = event.actions.state_delta if event.actions else {}
            self._change_state(row_id, session.app_name, session.user_id, delta, event.timestamp)

    def _change_state(
        self, row_id: str, app: str, user: str, changes: Mapping[str, Any], at: float
    ) -> None:
        """Store changes by the prefixes of their keys, and the time of the last change."""
        state = self.home.db.state
        values: dict[str, Any] = to_jsonable_python(dict(changes), fallback=str)
        of_app = _take_keys_with_prefix(State.APP_PREFIX, values)
        of_user = _take_keys_with_prefix(State.USER_PREFIX, values)
        _take_keys_with_prefix(State.TEMP_PREFIX, values)
        if of_app:
            state.merge_app_state(app, of_app)
        if of_user:
            state.merge_user_state(app, user, of_user)
        own = _add_prefix(_STATE_PREFIX, values)
        state.merge_session_state(row_id, {**own, _UPDATED: at})


def build_session_id(app: str, user: str, name: str) -> str:
    """Return the id of a session in the home."""
    return "@".join(map(quote_part, (name, app, user)))


def _get_path(uri: str) -> str:
    scheme, mark, path = uri.partition("://")
    if not scheme or not mark or not path:
        raise InvalidInput("uri must have the form SCHEME://PATH")
    return path


def _get_names(row: SessionRow) -> tuple[str, str]:
    return str(row["user_id"]), str(row.get("display_name"))


def _add_prefix(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + key: value for key, value in values.items()}


def _take_keys_with_prefix(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    """Remove the keys with a prefix, and return them without the prefix."""
    names = [key for key in values if key.startswith(prefix)]
    return {key.removeprefix(prefix): values.pop(key) for key in names}


def _build_rows(event: Event) -> Iterator[dict[str, Any]]:
    """Yield the messages of an event.

    The first message may have no content. It holds the payload of the event.
    """
    first: dict[str, Any] = {
        "payload_json": event.model_dump_json(exclude_none=True),
        "platform_message_id": event.id,
        "timestamp": event.timestamp,
    }
    parts: Sequence[Any] = (event.content.parts or []) if event.content else []
    readers: tuple[Callable[[Event, Sequence[Any]], Iterator[dict[str, Any]]], ...] = (
        _read_results,
        _read_texts,
    )
    rows = [row for reader in readers for row in reader(event, parts)]
    # An event without content takes a row too, because the order of all events must survive.
    for index, row in enumerate(rows or [{"role": "system", "content": None}]):
        yield row | (first if index == 0 else {"timestamp": event.timestamp})


def _read_results(_: Event, parts: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of tools."""
    for part in parts:
        result = part.function_response
        if result is not None:
            text = json.dumps(result.response, ensure_ascii=False, default=str)
            fields = {"tool_name": result.name, "tool_call_id": result.id}
            yield {"role": "tool", "content": text, **fields}


def _read_texts(event: Event, parts: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield the text, the code, the error and the calls of an event as one message."""
    text = join_texts([*map(_get_shown_text, parts), event.error_message or ""])
    thought = join_texts([part.text for part in parts if part.text and part.thought])
    calls = [
        {
            "id": part.function_call.id,
            "type": "function",
            "function": {
                "name": part.function_call.name,
                "arguments": json.dumps(part.function_call.args, default=str),
            },
        }
        for part in parts
        if part.function_call is not None
    ]
    if text or thought or calls:
        yield {
            "role": "user" if event.author == "user" else "assistant",
            "content": text or None,
            "reasoning": thought or None,
            "tool_calls": calls or None,
        }


def _get_shown_text(part: Any) -> str:
    """Return the text of a part that is not a thought, or its code or the output of its code."""
    if part.executable_code is not None:
        return part.executable_code.code or ""
    if part.code_execution_result is not None:
        return part.code_execution_result.output or ""
    return "" if part.thought else part.text or ""

"""`ClaudeSessionStore`: the `SessionStore` of the Claude Agent SDK over a home."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from session_core.adapters.shared import HomeAdapter, check_session_id, decode_payloads, quote_part
from session_core.errors import InvalidInput, TitleTaken
from session_core.state.protocol import StateDatabase
from session_core.transcripts.format import ReaderState, Record
from session_core.transcripts.formats.claude_code import ClaudeCodeFormat
from session_core.transcripts.texts import build_message_row

SOURCE = "claude-agent-sdk"

_FORMAT = ClaudeCodeFormat()
_OWN_FIELDS = ("id", "session_id", "active", "compacted")

# Keys of the state of a session.
_MTIME, _SUMMARY, _READER, _TITLE_RANK = "mtime", "summary", "reader", "title_rank"

Entry = dict[str, Any]

SessionKey = Mapping[str, Any]
"""The `SessionKey` of the SDK: `project_key`, `session_id`, and `subpath` for a subagent."""


class ClaudeSessionStore(HomeAdapter):
    """Mirrors the sessions of the Claude Agent SDK: `ClaudeAgentOptions(session_store=…)`.

    `home` is a folder, a file that ends in `.db`, or an opened home (`open_home`). Entries are
    returned exactly as they were appended. An entry with a `uuid` is stored once, also if a batch
    is sent again. `delete` moves a session and its subagents to the trash, and can be undone.
    """

    client = SOURCE

    async def append(self, key: SessionKey, entries: Sequence[Any]) -> None:
        """Store a batch of entries in one transaction.

        Raises:
            InvalidInput: an entry is not an object, or the id is too long; nothing is stored.
        """
        for entry in entries:
            if not isinstance(entry, Mapping):
                raise InvalidInput(f"entries must be JSON objects, got {entry!r:.40}")
        if entries:
            await self.run_in_thread(partial(self._append_entries, key, list(entries)))

    async def load(self, key: SessionKey) -> list[Any] | None:
        """Return all entries in their order, or None for a key that was never written."""
        return await self.run_in_thread(partial(self._load_entries, key))

    async def list_sessions(self, project_key: str) -> list[Any]:
        """Return the id and the time of the last append of each session of a project."""
        return await self.run_in_thread(partial(self._list_sessions, project_key))

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """Return the summaries that the SDK has folded from the entries of a project."""
        return await self.run_in_thread(partial(self._list_summaries, project_key))

    async def delete(self, key: SessionKey) -> None:
        """Move a session with its subagents, or one subagent, to the trash."""
        await self.run_in_thread(partial(self.delete_session, build_session_id(key)))

    async def list_subkeys(self, key: SessionKey) -> list[str]:
        """Return the subpaths of the subagents of a session."""
        return await self.run_in_thread(partial(self._list_subkeys, key))

    def _append_entries(self, key: SessionKey, entries: list[Entry]) -> None:
        db, session_id = self.home.db, check_session_id(build_session_id(key))
        with db.transaction():
            self._ensure_parent(key)
            new = self._select_new_entries(session_id, entries)
            if not new:
                return
            state = db.state.read_session_state(session_id)
            reader: ReaderState = state.get(_READER) or {}
            records = [_read_entry(entry, reader) for entry in new]
            rows = [row for pair in zip(new, records, strict=True) for row in _build_rows(*pair)]
            if _MTIME not in state:  # a subagent may have created the row, without a folder
                db.create_session(session_id, **_build_fields(key, new))
            db.append_messages(session_id, rows)
            changes: dict[str, Any] = {_READER: reader}
            # The clock never goes back, because the SDK compares the times of a session.
            changes[_MTIME] = max(int(time.time() * 1000), state.get(_MTIME) or 0)
            if not key.get("subpath"):
                changes |= self._set_title(session_id, records, state)
                changes[_SUMMARY] = _fold_summary(state.get(_SUMMARY), key, new)
            db.state.merge_session_state(session_id, changes)

    def _ensure_parent(self, key: SessionKey) -> None:
        """Create the parent session of a subagent, whose entries may arrive first."""
        if key.get("subpath"):
            main = _get_main_key(key)
            fields = _build_fields(main, [])
            self.home.db.create_session(build_session_id(main), **fields)

    def _select_new_entries(self, session_id: str, entries: list[Entry]) -> list[Entry]:
        """Return the entries with a uuid that is not stored yet, and all entries without a uuid."""
        uuids = [uuid for entry in entries if (uuid := _get_uuid(entry)) is not None]
        stored = set(self.home.db.sdk.find_platform_messages(session_id, uuids)) if uuids else set()
        new = []
        for entry in entries:
            uuid = _get_uuid(entry)
            if uuid is None or uuid not in stored:
                new.append(entry)
            if uuid is not None:
                stored.add(uuid)
        return new

    def _set_title(
        self, session_id: str, records: Sequence[Record], state: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Set the best title that the entries have, and return the state to store with it."""
        rank = state.get(_TITLE_RANK)
        title = None
        for facts in (record.facts or {} for record in records):
            own_rank = facts.get("title_rank", 0)
            if facts.get("title") and (rank is None or own_rank <= rank):
                title, rank = facts["title"], own_rank
        if title is None:
            return {}
        with suppress(TitleTaken, InvalidInput):  # another session keeps its title
            self.home.db.set_session_title(session_id, title)
        return {_TITLE_RANK: rank}

    def _load_entries(self, key: SessionKey) -> list[Entry] | None:
        return decode_payloads(self.home.db.sdk.list_payloads(build_session_id(key))) or None

    def _list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        return [
            {"session_id": session_id, "mtime": state[_MTIME]}
            for session_id, state in self._iter_states(project_key)
        ]

    def _list_summaries(self, project_key: str) -> list[dict[str, Any]]:
        return [
            {**state[_SUMMARY], "mtime": state[_MTIME]}
            for _, state in self._iter_states(project_key)
            if _SUMMARY in state
        ]

    def _iter_states(self, project_key: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the id and the state of each session of a project that has entries."""
        db: StateDatabase = self.home.db
        with db.snapshot():
            for row in db.sdk.find_platform_sessions(SOURCE, project_key):
                name = str(row.get("display_name"))
                key = {"project_key": project_key, "session_id": name}
                # Subagents, and the continuation of a compression, have ids of their own.
                if row["id"] == build_session_id(key):
                    state = db.state.read_session_state(row["id"])
                    if _MTIME in state:
                        yield name, state

    def _list_subkeys(self, key: SessionKey) -> list[str]:
        children = self.home.db.list_children(build_session_id(_get_main_key(key)))
        subpaths = (row.get("thread_id") for row in children)
        return sorted(subpath for subpath in subpaths if subpath)


def build_session_id(key: SessionKey) -> str:
    """Return the id of a session or subagent in the home.

    Raises:
        InvalidInput: a part of the key is missing or empty.
    """
    subpath = key.get("subpath")
    if subpath == "":
        raise InvalidInput("subpath of a key is empty; leave it out")
    name = f"{quote_part(key.get('session_id'))}@{quote_part(key.get('project_key'))}"
    return f"{name}#{quote_part(subpath)}" if subpath else name


def _get_main_key(key: SessionKey) -> SessionKey:
    return {name: value for name, value in key.items() if name != "subpath"}


def _get_uuid(entry: Entry) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) and uuid else None


def _build_fields(key: SessionKey, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the columns of a new session."""
    folder = next((entry["cwd"] for entry in entries if isinstance(entry.get("cwd"), str)), None)
    fields: dict[str, Any] = {
        "source": SOURCE,
        "chat_id": key["project_key"],
        "display_name": key["session_id"],
        "cwd": folder,
    }
    subpath = key.get("subpath")
    if subpath:
        main = build_session_id(_get_main_key(key))
        fields |= {"thread_id": subpath, "parent_session_id": main}
        fields["model_config"] = {"_delegate_from": main}
    return fields


def _read_entry(entry: Entry, state: ReaderState) -> Record:
    """Return the messages and facts of an entry, read as a line of a Claude Code transcript."""
    return _FORMAT.read_record(json.dumps(entry).encode(), 0, state)


def _build_rows(entry: Entry, record: Record) -> Iterator[dict[str, Any]]:
    """Yield the messages of an entry.

    The first message may have no content. It holds the payload of the entry.
    """
    payload = {"payload_json": json.dumps(entry), "platform_message_id": _get_uuid(entry)}
    if not record.messages:
        yield {"role": "system", "content": None, **payload}
    for index, message in enumerate(record.messages):
        row = build_message_row(
            message,
            number=0,
            session_id="",
            at=time.time() if message.at is None else message.at,
            tool=None,
            compacted=False,
        )
        fields = {name: value for name, value in row.items() if name not in _OWN_FIELDS}
        yield fields | (payload if index == 0 else {"platform_message_id": None})


def _fold_summary(previous: Any, key: SessionKey, entries: list[Entry]) -> dict[str, Any]:
    from claude_agent_sdk import fold_session_summary  # noqa: PLC0415 -- the SDK is optional

    folded: dict[str, Any] = dict(fold_session_summary(previous, key, entries))
    return folded

"""`PydanticConversationStore`: the `ConversationStore` of Pydantic AI over a home."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from session_core.adapters.shared import HomeAdapter, HomeArgument, check_session_id, join_texts
from session_core.errors import Changed
from session_core.types import MessageRow, SessionFilter

SOURCE = "pydantic-ai"

_RECORD = "record"  # the key in the state of a session
_ENTRY_PREFIX = "pydantic-ai/entry/"
_MAX_WALK = 50

_ENTRIES: TypeAdapter[ConversationEntry] = TypeAdapter(ConversationEntry)
_RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class PydanticConversationStore(HomeAdapter, ConversationStore):
    """Stores conversations of Pydantic AI as sessions with the ids of the conversations.

    `home` is a folder, a file that ends in `.db`, or an opened home (`open_home`). A fork copies
    the entries that it shares, so that each session is whole when the other is deleted. `delete`
    moves a conversation to the trash, and can be undone.
    """

    client = SOURCE

    def __init__(self, home: HomeArgument) -> None:
        super().__init__(home)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None.

        Raises:
            Conflict: the id belongs to a session of another program.
        """
        return await self.run_in_thread(
            partial(self._find_record, check_session_id(conversation_id))
        )

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of a scope or all records, most recently saved first."""
        return await self.run_in_thread(partial(self._list_records, scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one transaction.

        Raises:
            ConversationConflict: the stored revision is another one, or the head is missing.
        """
        check_session_id(record.conversation_id)
        await self.run_in_thread(
            partial(self._store_record, record, tuple(new_entries), expected_revision)
        )

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Move a conversation with its entries to the trash.

        Forks have copies of the entries that they share.

        Raises:
            ConversationConflict: the stored revision is another one.
            Conflict: the session is pinned.
        """
        await self.run_in_thread(partial(self._trash_record, conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry.

        Raises:
            LookupError: no conversation has it.
        """
        return await self.run_in_thread(partial(self._get_entry, entry_id))

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to `head_id` in order, or only the last `limit` of them.

        Raises:
            LookupError: no conversation has one of them.
        """
        if head_id is None or limit == 0:
            return []
        return await self.run_in_thread(partial(self._walk_history, head_id, limit))

    def _find_record(self, conversation_id: str) -> ConversationRecord | None:
        db = self.home.db
        with db.snapshot():
            if self.find_own_session(conversation_id) is None:
                return None
            stored = db.state.read_session_state(conversation_id).get(_RECORD)
        return None if stored is None else _RECORDS.validate_python(stored)

    def _list_records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        db = self.home.db
        with db.snapshot():
            ids = db.find_sessions(SessionFilter(source=(SOURCE,), status="all"))
            records = [
                record
                for session_id in ids
                if (record := self._find_record(session_id)) is not None
            ]
        # The continuation of a compression has the record of its conversation too.
        unique = {record.conversation_id: record for record in records}.values()
        selected = [record for record in unique if scope is None or record.scope == scope]
        return sorted(selected, key=lambda record: record.updated_at, reverse=True)[:limit]

    def _store_record(
        self,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        expected_revision: str | None,
    ) -> None:
        db, session_id = self.home.db, record.conversation_id
        with db.transaction():
            stored = self._find_record(session_id)
            if (None if stored is None else stored.revision) != expected_revision:
                raise ConversationConflict(session_id)
            db.create_session(session_id, **_build_fields(record))
            if not self._append_entries(record, new_entries):
                self._bump_revision(session_id)
            values = _RECORDS.dump_python(record, mode="json")
            db.state.merge_session_state(session_id, {_RECORD: values})

    def _bump_revision(self, session_id: str) -> None:
        """Give the session another revision, so that a deletion that began before notices."""
        window = self.home.db.read_window(session_id, limit=1)
        for row in window.messages:
            self.home.db.sdk.update_message(row["id"], role=row["role"])

    def _append_entries(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry]
    ) -> bool:
        """Append new entries, after copies of the entries of other conversations that they follow.

        Return False if there is nothing to append.
        """
        session_id = record.conversation_id
        new_ids = {entry.id for entry in new_entries}
        tips = [record.head_id, *record.branches, *(entry.parent_id for entry in new_entries)]
        entries = [*self._collect_missing(session_id, tips, new_ids), *new_entries]
        if not entries:
            return False
        rows = [row for entry in entries for row in _build_rows(entry)]
        self.home.db.append_messages(session_id, rows)
        for entry in entries:
            holders = [*self._list_holders(entry.id), session_id]
            self.home.db.meta.set_value(
                _ENTRY_PREFIX + entry.id, json.dumps(list(dict.fromkeys(holders)))
            )
        return True

    def _collect_missing(
        self, session_id: str, tips: Iterable[str | None], new_ids: set[str]
    ) -> list[ConversationEntry]:
        """Return the entries up to the tips that this conversation lacks, in order.

        Raises:
            ConversationConflict: an entry was deleted with its conversation.
        """
        missing: dict[str, ConversationEntry] = {}
        for tip in dict.fromkeys(tips):
            chain = []
            entry_id = tip
            while (
                entry_id is not None
                and entry_id not in new_ids
                and entry_id not in missing
                and session_id not in self._list_holders(entry_id)
            ):
                try:
                    entry = self._get_entry(entry_id)
                except LookupError as error:
                    raise ConversationConflict(session_id) from error
                chain.append(entry)
                entry_id = entry.parent_id
            missing |= {entry.id: entry for entry in reversed(chain)}
        return list(missing.values())

    def _list_holders(self, entry_id: str) -> list[str]:
        """Return the conversations that have an entry, or had it before they were deleted."""
        stored = self.home.db.meta.get_value(_ENTRY_PREFIX + entry_id)
        holders: list[str] = [] if stored is None else json.loads(stored)
        return holders

    def _get_entry(self, entry_id: str) -> ConversationEntry:
        for session_id in self._list_holders(entry_id):
            row = self.home.db.sdk.find_platform_messages(session_id, [entry_id]).get(entry_id)
            if row is not None:
                return _read_entry(row)
        raise LookupError(f"entry {entry_id!r} is in no conversation of this store")

    def _walk_history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        with self.home.db.snapshot():
            known = (
                {}
                if limit is not None and limit <= _MAX_WALK
                else self._load_entries_with_head(head_id)
            )
            history: list[ConversationEntry] = []
            entry_id: str | None = head_id
            while entry_id is not None and (limit is None or len(history) < limit):
                entry = known.get(entry_id) or self._get_entry(entry_id)
                history.append(entry)
                entry_id = entry.parent_id
        return history[::-1]

    def _load_entries_with_head(self, head_id: str) -> dict[str, ConversationEntry]:
        """Return all entries of a conversation that has the head."""
        for session_id in self._list_holders(head_id):
            payloads = self.home.db.sdk.list_payloads(session_id)
            entries = {entry.id: entry for entry in map(_ENTRIES.validate_json, payloads)}
            if head_id in entries:
                return entries
        return {}

    def _trash_record(self, conversation_id: str, expected_revision: str) -> None:
        with self.home.db.snapshot():
            stored = self._find_record(conversation_id)
            if stored is None or stored.revision != expected_revision:
                raise ConversationConflict(conversation_id)
            revision = self.home.db.get_revision(conversation_id)
        try:
            self.delete_session(conversation_id, expect=revision)
        except Changed as error:
            raise ConversationConflict(conversation_id) from error


def _build_fields(record: ConversationRecord) -> dict[str, Any]:
    """Return the session columns of a conversation, and mark a fork as a branch."""
    fields: dict[str, Any] = {"source": SOURCE, "chat_id": record.scope}
    if record.forked_from is not None:
        fields["model_config"] = {"_branched_from": record.forked_from}
    return fields


def _read_entry(row: MessageRow) -> ConversationEntry:
    return _ENTRIES.validate_json(row.get("payload_json") or "null")


def _build_rows(entry: ConversationEntry) -> Iterator[dict[str, Any]]:
    """Yield the messages of an entry.

    The first message may have no content. It holds the payload of the entry.
    """
    payload = {
        "payload_json": _ENTRIES.dump_json(entry).decode(),
        "platform_message_id": entry.id,
    }
    message = _ENTRIES.dump_python(entry, mode="json")["message"]
    for index, row in enumerate(_read_message(message)):
        yield row | (payload if index == 0 else {})


def _read_message(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one row for an answer, or one row for each part of a request."""
    parts: list[Any] = message.get("parts") or []
    if message.get("kind") == "response":
        yield _read_response(parts, message)
        return
    for part in parts:
        yield _read_request_part(part)
    if not parts:
        yield {"role": "user", "content": None}


def _read_response(
    parts: Sequence[Mapping[str, Any]], message: Mapping[str, Any]
) -> dict[str, Any]:
    def join_parts(kind: str) -> str | None:
        texts = [part.get("content") for part in parts if part.get("part_kind") == kind]
        return join_texts([text for text in texts if isinstance(text, str)]) or None

    calls = [_build_call(part) for part in parts if part.get("part_kind") == "tool-call"]
    return {
        "role": "assistant",
        "content": join_parts("text"),
        "reasoning": join_parts("thinking"),
        "tool_calls": calls or None,
        "finish_reason": message.get("finish_reason"),
    }


def _build_call(part: Mapping[str, Any]) -> dict[str, Any]:
    arguments = part.get("args")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": part.get("tool_name"), "arguments": text}
    return {"id": part.get("tool_call_id"), "type": "function", "function": function}


def _read_request_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind, content = part.get("part_kind"), part.get("content")
    if kind in ("tool-return", "retry-prompt") and part.get("tool_name"):
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        return {
            "role": "tool",
            "content": text,
            "tool_name": part.get("tool_name"),
            "tool_call_id": part.get("tool_call_id"),
        }
    role = "system" if kind == "system-prompt" else "user"
    return {"role": role, "content": join_texts(content) or None}

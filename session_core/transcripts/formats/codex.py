"""Rollouts of Codex: one file of JSON lines per thread, and titles in its state database.

A rollout states a message up to three times: as a response item, as an event, and in paginated
rollouts as a completed item of a turn. Only the response item is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from session_core.transcripts.decoding import parse_time
from session_core.transcripts.format import (
    Attachment,
    DatabaseFormat,
    FileFormat,
    Message,
    Query,
    ReaderState,
    Record,
    Rewind,
    RowSelection,
    SessionFacts,
    SourceFile,
    ToolCall,
    Usage,
)
from session_core.transcripts.formats.fields import (
    decode_object,
    format_value,
    get_count,
    get_dict,
    get_dicts,
    get_name,
    get_str,
    join_texts,
    name_tool,
    remember_calls,
)
from session_core.transcripts.places import find_agent_folder

_FILE = re.compile(
    r"rollout-[0-9T-]{19}-(?P<thread>[0-9A-Za-z-]+(?:_[0-9A-Za-z-]+)?)\.jsonl(?P<zstd>\.zst)?"
)

_HEAD = re.compile(
    rb'\{"timestamp":"[^"]{0,40}",(?:"ordinal":\d{1,20},)?"type":"(\w{1,40})"'
    rb'(?:,"payload":\{"type":"(\w{1,60})")?'
)
_ITEM = re.compile(rb'"item":\{"type":"(\w{1,40})"')
_HEAD_BYTES = 800

_EXIT_CODE = re.compile(r"\nProcess exited with code (-?\d{1,10})\n")

_REPEATED_EVENTS = frozenset(
    {
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "context_compacted",
        "entered_review_mode",
        "exec_command_end",
        "exited_review_mode",
        "image_generation_end",
        "mcp_tool_call_end",
        "patch_apply_end",
        "sub_agent_activity",
        "task_complete",
        "thread_goal_updated",
        "thread_settings_applied",
        "turn_aborted",
        "turn_complete",
        "user_message",
        "view_image_tool_call",
        "web_search_end",
    }
)
"""Events whose messages are in response items too. They can be large and are not decoded."""

_WITHOUT_MESSAGES = frozenset(
    {
        "inter_agent_communication_metadata",
        "security_risk_score",
        "token_usage_record",
        "turn_context",
        "world_state",
    }
)

_SILENT_ITEMS = frozenset(
    {"compaction", "compaction_summary", "context_compaction", "ghost_snapshot", "reasoning"}
)
"""Response items without readable text."""

_INJECTED = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|user_action|user_shell_command|turn_aborted"
    r"|subagent_notification|permissions instructions|skill|skills_instructions|apps_instructions"
    r"|plugins_instructions|collaboration_mode|model_switch|personality_spec|INSTRUCTIONS"
    r"|recommended_plugins|hook_prompt|goal_context)\b|# AGENTS\.md instructions)"
)
_EDITOR_CONTEXT = "# Context from my IDE setup:"
_EDITOR_REQUEST = "## My request for Codex:\n"

_INHERITED_S = 1.0
"""The time after its start in which a fork without ordinals writes its copies."""


class CodexFormat:
    """The format of rollouts in one of the folders of Codex."""

    store = "codex"
    version = 1

    def __init__(self, folder: str, *, archived: bool) -> None:
        self._folder = folder
        self._archived = archived

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of rollouts."""
        return (find_agent_folder(self.store, environ, home) / self._folder,)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a thread, whose id may have a suffix after a revert."""
        return ("codex", "resume", session_id.partition("_")[0])

    def match_folder(self, path: str) -> bool:
        """Return True, because rollouts are in folders of years, months and days."""
        return True

    def match_file(self, path: str) -> SourceFile | None:
        """Return the thread of a rollout, which the file name contains."""
        file_match = _FILE.fullmatch(path.rpartition("/")[2])
        if not file_match:
            return None
        is_zstd = file_match["zstd"] is not None
        return SourceFile(file_match["thread"], archived=self._archived, is_zstd=is_zstd)

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return no facts, because rollouts have no sidecars."""
        return {}

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line."""
        length = len(data) + 1
        kind, inner = _read_line_types(data)
        if kind == "event_msg" and _is_repeated(data, inner):
            return Record(offset, length, f"event_msg.{inner}")
        if kind == "compacted":
            # The history that replaces the messages before can be most of a file.
            head, separator, _ = data.partition(b',"replacement_history":')
            data = head + b"}}" if separator else data
        line = decode_object(data)
        if line is None:
            is_compaction = kind == "compacted"
            return Record(offset, length, kind or "damaged", (), None, is_compaction, is_compaction)
        return _LineParser(line, offset, length, state).build_record()

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        kind, inner = _read_line_types(head)
        compacted = kind == "compacted"
        known = compacted or (kind == "event_msg" and _is_repeated(head, inner))
        return Record(offset, length, kind or "cut", is_known=known, is_compaction=compacted)


class CodexStateFormat:
    """The format of the state database, for titles and archive marks of threads."""

    store = "codex"
    version = 1
    row_selections = (RowSelection("threads", "id = ?", has_messages=False),)

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of Codex."""
        return (find_agent_folder(self.store, environ, home),)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a thread."""
        return ("codex", "resume", session_id)

    def match_folder(self, path: str) -> bool:
        """Return False, because the folders below contain no database."""
        return False

    def match_database(self, path: str) -> bool:
        """Return True for the state database, whose name has a version number."""
        return re.fullmatch(r"state_\d+\.sqlite", path) is not None

    def has_tables(self, query: Query) -> bool:
        """Return True if the table of threads has the columns that are read."""
        return {"id", "title", "updated_at"} <= _list_columns(query)

    def read_changes(self, query: Query, state: ReaderState, limit: int) -> list[Record]:
        """Return facts of the threads that changed since the last call."""
        columns = _list_columns(query)
        # Threads may share a time, so the position contains the id too.
        rows = query(
            f"SELECT id, updated_at, {_build_columns(columns)} FROM threads"  # noqa: S608 -- the inserted names are constants
            " WHERE typeof(id) = 'text' AND typeof(updated_at) = 'integer'"
            " AND (updated_at, id) > (?, ?) ORDER BY updated_at, id LIMIT ?",
            (state.get("updated_at", -1), state.get("id", ""), limit),
        )
        if rows:
            state["id"], state["updated_at"] = rows[-1][0], rows[-1][1]
        return [_read_thread(row) for row in rows]

    def read_session(self, query: Query, session_id: str, offsets: Sequence[int]) -> list[Record]:
        """Return no records, because the messages are in the rollout."""
        return []

    def list_session_ids(self, query: Query) -> list[str]:
        """Return the ids of all threads."""
        return [str(row[0]) for row in query("SELECT id FROM threads", ())]


FORMATS: tuple[FileFormat | DatabaseFormat, ...] = (
    CodexFormat("sessions", archived=False),
    CodexFormat("archived_sessions", archived=True),
    CodexStateFormat(),
)

_THREAD_COLUMNS = ("title", "first_user_message", "name", "archived", "git_branch")


def _list_columns(query: Query) -> set[str]:
    return {row[0] for row in query("SELECT name FROM pragma_table_info('threads')", ())}


def _build_columns(columns: set[str]) -> str:
    return ", ".join(name if name in columns else "NULL" for name in _THREAD_COLUMNS)


def _read_thread(row: tuple[Any, ...]) -> Record:
    thread = dict(zip(_THREAD_COLUMNS, row[2:], strict=True))
    facts: SessionFacts = {"archived": bool(thread["archived"])}
    name, title = get_name(thread, "name"), get_name(thread, "title")
    if name:
        facts["title"], facts["title_rank"] = name, 0
    # Unless a person changed it, the title is the first prompt.
    elif title and title != thread["first_user_message"]:
        facts["title"], facts["title_rank"] = title, 1
    branch = get_name(thread, "git_branch")
    if branch:
        facts["branch"] = branch
    return Record(0, 0, "threads", facts=facts, session_id=row[0])


def _read_line_types(data: bytes) -> tuple[str, str]:
    """Return the types of a line and of its payload without decoding the line."""
    head_match = _HEAD.match(data)
    return (head_match[1].decode(), (head_match[2] or b"").decode()) if head_match else ("", "")


def _is_repeated(data: bytes, event: str) -> bool:
    """Return True for an event that only repeats other lines. A plan is not repeated."""
    if event != "item_completed":
        return event in _REPEATED_EVENTS
    item_match = _ITEM.search(data, 0, _HEAD_BYTES)
    return item_match is not None and item_match[1] != b"Plan"


class _LineParser:
    """Builds the record of one line."""

    def __init__(self, line: dict[str, Any], offset: int, length: int, state: ReaderState) -> None:
        self._line, self._state = line, state
        self._kind = (get_name(line, "type") or "")[:60]
        self._payload = get_dict(line, "payload")
        self._at = parse_time(line.get("timestamp"))
        self._record = Record(offset, length, self._kind or "untyped")
        if "payload" not in line:
            self._read_as_first_version()

    def build_record(self) -> Record:
        """Return the record of the line."""
        readers = {
            "session_meta": self._read_meta,
            "turn_context": self._read_turn,
            "response_item": self._read_item,
            "event_msg": self._read_event,
            "compacted": self._read_compaction,
            "inter_agent_communication": self._read_agent_message,
        }
        if self._is_inherited_context():
            return self._record
        if self._kind in readers:
            return readers[self._kind]()
        return self._record._replace(is_known=self._kind in _WITHOUT_MESSAGES)

    def _read_as_first_version(self) -> None:
        """Set kind and payload of a line of the first versions, which had no envelope."""
        self._payload = self._line
        if self._kind:
            self._kind = "response_item"
        elif get_name(self._line, "id") and self._at is not None:
            self._kind = "session_meta"
        elif get_name(self._line, "record_type") == "state":
            self._kind = "world_state"

    def _is_inherited_context(self) -> bool:
        """Return True for a line that a subagent copied from its parent."""
        own = self._state.get("own_from")
        ordinal = self._line.get("ordinal")
        return own is not None and isinstance(ordinal, int) and 0 < ordinal < own

    def _read_meta(self) -> Record:
        payload, state = self._payload, self._state
        thread = get_name(payload, "id") or get_name(payload, "session_id")
        # Copies of the metadata of ancestors follow; the last one names the origin of copied lines.
        state["origin"] = thread
        if "born" in state:
            return self._record
        state["born"] = self._at or 0.0
        # The lines before this one repeat the context of the parent.
        own_from = get_count(payload, "subagent_history_start_ordinal")
        if own_from:
            state["own_from"] = own_from
        facts: SessionFacts = {}
        started = parse_time(payload.get("timestamp"))
        if started is not None:
            facts["started_at"] = started
        folder, branch = get_name(payload, "cwd"), get_name(get_dict(payload, "git"), "branch")
        release = get_name(payload, "cli_version")
        if folder:
            facts["folder"] = folder
        if branch:
            facts["branch"] = branch
        if release:
            facts["agent_version"] = release
        self._add_parent(facts, thread)
        return self._record._replace(facts=facts)

    def _add_parent(self, facts: SessionFacts, thread: str | None) -> None:
        """Add the parent to the facts.

        `session_id` of the payload is the root of a tree of subagents, not the thread.
        """
        payload = self._payload
        subagent = get_dict(payload, "source").get("subagent")
        spawned = get_dict({"by": subagent}, "by")
        parent = (
            get_name(get_dict(spawned, "thread_spawn"), "parent_thread_id")
            or get_name(payload, "parent_thread_id")
            or (get_name(payload, "session_id") if subagent else None)
        )
        origin = get_name(payload, "forked_from_id")
        if parent and parent != thread:
            facts["parent_id"], facts["link"] = parent, "delegate"
        elif origin:
            facts["parent_id"], facts["link"] = origin, "branch"
            # Forks with ordinals do not copy: they begin where the copied part would end.
            self._state["has_copies"] = "ordinal" not in self._line
        self._state["is_delegate"] = facts.get("link") == "delegate"

    def _read_turn(self) -> Record:
        facts: SessionFacts = {}
        self._begin_turn()
        model = get_name(self._payload, "model")
        if model and model != self._state.get("model"):
            self._state["model"] = facts["model"] = model
        return self._record._replace(facts=facts or None)

    def _begin_turn(self) -> None:
        turn = get_name(self._payload, "turn_id")
        if turn and turn != self._state.get("turn"):
            self._state["turn"], self._state["place"] = turn, 0

    def _read_event(self) -> Record:
        payload = self._payload
        event = (get_name(payload, "type") or "")[:60]
        record = self._record._replace(type=f"event_msg.{event}")
        if event in ("task_started", "turn_started"):
            self._begin_turn()
            return record
        if event == "token_count":
            usage = self._compute_added_usage()
            return record._replace(facts={"usage": usage}) if usage else record
        if event == "thread_rolled_back":
            turns = get_count(payload, "num_turns")
            return record._replace(rewind=Rewind(turns=turns) if turns else None)
        if event == "thread_name_updated":
            title = get_name(payload, "thread_name")
            return record._replace(facts={"title": title, "title_rank": 0} if title else None)
        if event in ("error", "stream_error"):
            text = get_str(payload, "message")
            return self._build_record(
                record, [Message("system", text, is_error=True)] if text else []
            )
        if event == "item_completed":
            plan = get_dict(payload, "item")
            text = get_str(plan, "text") if plan.get("type") == "Plan" else None
            return self._build_record(record, [Message("assistant", text)] if text else [], plan)
        return record._replace(is_known=event in _REPEATED_EVENTS)

    def _read_item(self) -> Record:
        payload = self._payload
        kind = (get_name(payload, "type") or "")[:60]
        record = self._record._replace(type=f"response_item.{kind}")
        if kind == "message":
            return self._build_record(record, list(self._read_message()), payload)
        if kind == "agent_message":
            return self._build_record(record, [Message("system", _read_content(payload))], payload)
        if kind == "reasoning":
            texts = [*get_dicts(payload, "summary"), *get_dicts(payload, "content")]
            reasoning = join_texts(get_str(text, "text") for text in texts)
            messages = [Message("assistant", "", reasoning=reasoning)] if reasoning else []
            return self._build_record(record, messages, payload)
        if kind.endswith("_output"):
            return self._build_record(record, [self._read_output()], payload)
        if kind.endswith("_call"):
            return self._build_record(record, [self._read_call(kind)], payload)
        return record._replace(is_known=kind in _SILENT_ITEMS)

    def _read_message(self) -> Iterator[Message]:
        payload = self._payload
        text = _read_content(payload)
        attachments = tuple(_list_attachments(payload))
        role = get_name(payload, "role")
        if role == "assistant":
            model = self._state.get("model")
            yield Message("assistant", text, model=model, attachments=attachments)
        elif role != "user" or _is_injected(payload, text):
            yield Message("system", text)
        else:
            context, typed = _split_editor_context(text)
            if context:
                yield Message("system", context)
            prompt = bool(typed) and not self._state.get("is_delegate")
            yield Message("user", typed, is_prompt=prompt, attachments=attachments)

    def _read_call(self, kind: str) -> Message:
        payload = self._payload
        name = get_name(payload, "name") or kind.removesuffix("_call")
        namespace = get_name(payload, "namespace")
        fields = ("arguments", "input", "action", "revised_prompt")
        arguments = next((payload[field] for field in fields if payload.get(field)), None)
        call_id = get_name(payload, "call_id") or get_name(payload, "id")
        full_name = f"{namespace}.{name}" if namespace else name
        call = ToolCall(call_id, full_name, format_value(arguments))
        remember_calls(self._state, [call])
        return Message("assistant", "", tool_calls=(call,), model=self._state.get("model"))

    def _read_output(self) -> Message:
        payload = self._payload
        text, is_error = _read_result(payload)
        call_id = get_name(payload, "call_id")
        name = get_name(payload, "name") or name_tool(self._state, call_id)
        return Message("tool", text, tool_name=name, tool_call_id=call_id, is_error=is_error)

    def _read_compaction(self) -> Record:
        text = get_str(self._payload, "message") or ""
        summary = [Message("system", text, is_summary=True)]
        return self._build_record(self._record._replace(is_compaction=True), summary)

    def _read_agent_message(self) -> Record:
        text = get_str(self._payload, "content") or ""
        return self._build_record(self._record, [Message("system", text)], self._payload)

    def _build_record(
        self, record: Record, messages: list[Message], item: dict[str, Any] | None = None
    ) -> Record:
        """Return the record with its messages, their time and their keys.

        Items have ids since version 0.150, and copies keep them. For older versions the key is the
        turn and the place in the turn, which a copy shares.
        """
        item_id = get_name(item or {}, "id")
        keyed = []
        for index, message in enumerate(messages):
            key = f"{item_id}:{index}" if index else item_id
            keyed.append(message._replace(at=self._at, key=key or self._make_message_key(message)))
        return record._replace(messages=tuple(keyed))

    def _make_message_key(self, message: Message) -> str:
        state = self._state
        if message.is_prompt and "turn" not in state:
            # Versions before 0.80 do not name turns: each prompt begins one.
            state["prompts"], state["place"] = state.get("prompts", 0) + 1, 0
        place = state["place"] = state.get("place", 0) + 1
        # A record that is read alone has another key. The mark excludes it from comparisons.
        return f"~{state.get('origin')}:{state.get('turn', state.get('prompts', 0))}:{place}"

    def _compute_added_usage(self) -> Usage | None:
        """Return the tokens used since the last total.

        The first total of a fork includes the tokens of its parent.
        """
        info = get_dict(self._payload, "info")
        total = _read_tokens(get_dict(info, "total_token_usage"))
        newest = _read_tokens(get_dict(info, "last_token_usage"))
        before = self._state.get("tokens")
        if not any(total):
            return None
        # The totals of a fork go on from its parent, so its own part begins at the last request.
        if before is None:
            before = [max(0, all_ - new) for all_, new in zip(total, newest, strict=True)]
        self._state["tokens"] = total
        if self._state.get("has_copies") and (self._at or 0) < self._state["born"] + _INHERITED_S:
            return None
        uncached, output, cached, written, reasoning = (
            max(0, after - earlier) for after, earlier in zip(total, before, strict=True)
        )
        # Codex counts tokens read from the cache as input too.
        usage = Usage(max(0, uncached - cached - written), output, cached, written, reasoning)
        return usage if any(usage) else None


def _read_tokens(usage: dict[str, Any]) -> list[int]:
    return [
        get_count(usage, "input_tokens"),
        get_count(usage, "output_tokens"),
        get_count(usage, "cached_input_tokens"),
        get_count(usage, "cache_write_input_tokens"),
        get_count(usage, "reasoning_output_tokens"),
    ]


def _read_content(payload: dict[str, Any]) -> str:
    content = payload.get("content")
    if isinstance(content, str):
        return content
    return join_texts(get_str(part, "text") for part in get_dicts(payload, "content"))


def _list_attachments(payload: dict[str, Any]) -> Iterator[Attachment]:
    for part in get_dicts(payload, "content"):
        kind = (get_name(part, "type") or "").removeprefix("input_")
        if kind in ("image", "audio"):
            _, _, data = (get_str(part, f"{kind}_url") or "").partition(";base64,")
            yield Attachment(kind, None, len(data) * 3 // 4 or None)


def _is_injected(payload: dict[str, Any], text: str) -> bool:
    """Return True for context and instructions that Codex sends in the name of the user."""
    metadata = get_dict(payload, "internal_chat_message_metadata_passthrough")
    kinds = metadata.get("content_item_kinds")
    if isinstance(kinds, list) and kinds:
        return not any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)
    return bool(_INJECTED.match(text))


def _split_editor_context(text: str) -> tuple[str, str]:
    """Return the context that an editor put before a prompt, and the prompt."""
    if not text.startswith(_EDITOR_CONTEXT):
        return "", text
    context, _, typed = text.partition(_EDITOR_REQUEST)
    return (context.strip(), typed) if typed else ("", text)


def _read_result(payload: dict[str, Any]) -> tuple[str, bool]:
    """Return the text of an output, and True if the call failed."""
    output = payload.get("output", payload.get("tools"))
    if isinstance(output, str) and output.startswith('{"output":'):
        # Shell calls of older versions wrap the text and the exit code in JSON.
        wrapped = decode_object(output.encode("utf-8", "replace")) or {}
        if "metadata" in wrapped:
            failed = get_count(get_dict(wrapped, "metadata"), "exit_code") != 0
            return get_str(wrapped, "output") or "", failed
    if isinstance(output, str) and output.startswith("Chunk ID:"):
        ended = _EXIT_CODE.search(output, 0, _HEAD_BYTES)
        return output, ended is not None and ended[1] != "0"
    if isinstance(output, dict):
        return _read_content(output) or format_value(output), output.get("success") is False
    if isinstance(output, list):
        return _read_content({"content": output}), False
    return format_value(output), False

"""Recordings of Qwen Code: one file of JSON lines per session and per subagent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from session_core.transcripts.decoding import parse_time
from session_core.transcripts.format import (
    Attachment,
    FileFormat,
    Message,
    ReaderState,
    Record,
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
)
from session_core.transcripts.places import find_agent_folder

_TITLE_RANKS = {"manual": 0, "auto": 1}
_TASK_TITLE_RANK = 3

_SILENT = frozenset(
    {
        "agent_bootstrap",
        "agent_launch_prompt",
        "agent_retry",
        "at_command",
        "attribution_snapshot",
        "branch_checkpoint",
        "file_history_snapshot",
        "goal_runtime",
        "goal_state",
        "rewind",
        "session_artifact_event",
        "session_artifact_snapshot",
        "session_source",
        "turn_result",
        "ui_telemetry",
        "user_text_elements",
    }
)
"""Subtypes of system records without a message."""

_INJECTED = frozenset({"notification", "cron", "goal_runtime"})
"""Subtypes of user records that no person wrote."""


class QwenFormat:
    """The format of Qwen Code."""

    store = "qwen"
    version = 1

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of projects."""
        return (find_agent_folder(self.store, environ, home) / "projects",)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session, or None for a subagent."""
        return None if session_id.startswith("agent-") else ("qwen", "--resume", session_id)

    def match_folder(self, path: str) -> bool:
        """Return True for a project, its chats, and the subagents of a session."""
        parts = path.split("/")
        is_subagent = parts[1:2] == ["subagents"] and len(parts) <= 3  # noqa: PLR2004 -- project/subagents/parent
        return len(parts) == 1 or parts[1:] == ["chats"] or is_subagent

    def match_file(self, path: str) -> SourceFile | None:
        """Return how a recording belongs to a session."""
        place = PurePosixPath(path)
        if place.suffix != ".jsonl":
            return None
        match place.parts:
            case (_, "chats", _):
                return SourceFile(place.stem)
            case (_, "subagents", parent, _):
                sidecars = (str(place.with_suffix(".meta.json")),)
                return SourceFile(place.stem, parent, "delegate", sidecars=sidecars)
        return None

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return the task of a subagent."""
        task = get_str(decode_object(data) or {}, "description")
        return {"title": task, "title_rank": _TASK_TITLE_RANK} if task else {}

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line."""
        record = Record(offset, len(data) + 1, "damaged")
        line = decode_object(data)
        if line is None:
            return record._replace(is_known=False)
        kind = (get_name(line, "type") or "untyped")[:60]
        subtype = (get_name(line, "subtype") or "")[:60]
        record = record._replace(type=f"{kind}.{subtype}" if subtype else kind)
        facts = _read_facts(line, state)
        if kind == "system":
            record = _read_system(record, line, subtype, facts)
        elif kind in _READERS:
            record = record._replace(messages=_add_keys(line, list(_READERS[kind](line, subtype))))
            if kind == "assistant":
                _record_usage(line, facts)
        else:
            record = record._replace(is_known=False)
        return record._replace(facts=facts or None)

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        return Record(offset, length, "cut", is_known=False)


FORMATS: tuple[FileFormat, ...] = (QwenFormat(),)


def _add_keys(line: dict[str, Any], messages: list[Message]) -> tuple[Message, ...]:
    """Return the messages with their time, and with keys that forks keep."""
    uuid, at = get_name(line, "uuid"), parse_time(line.get("timestamp"))
    parent = get_name(line, "parentUuid")
    return tuple(
        message._replace(at=at, key=f"{uuid}:{n}" if uuid and n else uuid, parent_key=parent)
        for n, message in enumerate(messages)
    )


def _read_system(record: Record, line: dict[str, Any], subtype: str, facts: SessionFacts) -> Record:
    payload = get_dict(line, "systemPayload")
    messages: list[Message] = []
    if subtype == "chat_compression":
        history = get_dicts(payload, "compressedHistory")
        # The history after a compression begins with its summary; the rest repeats messages.
        text = _read_text(history[0]) if history else ""
        messages = [Message("system", text, is_summary=True)]
        record = record._replace(is_compaction=True)
    elif subtype == "slash_command":
        messages = list(_read_command(payload))
    elif subtype == "custom_title":
        title = get_str(payload, "customTitle")
        if title:
            source = get_name(payload, "titleSource") or "manual"
            facts["title"], facts["title_rank"] = title, _TITLE_RANKS.get(source, 1)
    elif subtype == "parent_session":
        parent = get_name(payload, "parentSessionId")
        if parent:
            facts["parent_id"], facts["link"] = parent, "delegate"
    elif subtype == "session_model":
        model = get_name(payload, "modelId")
        if model:
            facts["model"] = model
    elif subtype not in _SILENT:
        record = record._replace(is_known=False)
    return record._replace(messages=_add_keys(line, messages))


def _read_command(payload: dict[str, Any]) -> Iterator[Message]:
    """Yield a command as the person typed it, or the displayed text of its result."""
    if get_name(payload, "phase") == "result":
        items = get_dicts(payload, "outputHistoryItems")
        text = join_texts(get_str(item, "text") for item in items)
        if text:
            yield Message("system", text)
    else:
        command = get_str(payload, "rawCommand")
        if command and payload.get("hiddenInvocation") is not True:
            yield Message("user", command)


def _read_user(line: dict[str, Any], subtype: str) -> Iterator[Message]:
    shown = get_str(get_dict(line, "systemPayload"), "displayText")
    text = shown or _read_text(get_dict(line, "message"))
    attachments = tuple(_list_attachments(line))
    if subtype in _INJECTED or get_name(line, "provenance") == "system":
        yield Message("system", text)
    elif text or attachments:
        prompt = bool(text) and line.get("isSidechain") is not True
        yield Message("user", text, is_prompt=prompt, attachments=attachments)


def _read_assistant(line: dict[str, Any], subtype: str) -> Iterator[Message]:
    parts = get_dicts(get_dict(line, "message"), "parts")
    calls = [get_dict(part, "functionCall") for part in parts if "functionCall" in part]
    yield Message(
        "assistant",
        _read_text(get_dict(line, "message")),
        reasoning=join_texts(get_str(p, "text") for p in parts if p.get("thought") is True),
        tool_calls=tuple(
            ToolCall(
                get_name(c, "id"), get_name(c, "name") or "unknown", format_value(c.get("args"))
            )
            for c in calls
        ),
        model=get_name(line, "model"),
        attachments=tuple(_list_attachments(line)),
    )


def _read_results(line: dict[str, Any], subtype: str) -> Iterator[Message]:
    outcome = get_dict(line, "toolCallResult")
    failed = get_name(outcome, "status") in ("error", "cancelled")
    for part in get_dicts(get_dict(line, "message"), "parts"):
        result = get_dict(part, "functionResponse")
        response = get_dict(result, "response")
        text = get_str(response, "output") or get_str(response, "error") or ""
        name, call_id = get_name(result, "name"), get_name(result, "id")
        if text or name:
            is_error = failed or "error" in response
            yield Message("tool", text, tool_name=name, tool_call_id=call_id, is_error=is_error)


_READERS = {"user": _read_user, "assistant": _read_assistant, "tool_result": _read_results}


def _read_text(message: dict[str, Any]) -> str:
    parts = get_dicts(message, "parts")
    return join_texts(get_str(part, "text") for part in parts if part.get("thought") is not True)


def _list_attachments(line: dict[str, Any]) -> Iterator[Attachment]:
    for part in get_dicts(get_dict(line, "message"), "parts"):
        data = get_dict(part, "inlineData")
        mime = get_name(data, "mimeType")
        if mime:
            size = len(get_str(data, "data") or "") * 3 // 4
            yield Attachment(mime.partition("/")[0], get_name(data, "displayName"), size or None)


def _read_facts(line: dict[str, Any], state: ReaderState) -> SessionFacts:
    facts: SessionFacts = {}
    at = parse_time(line.get("timestamp"))
    if at is not None and "started" not in state:
        state["started"] = facts["started_at"] = at
    folder, branch = get_name(line, "cwd"), get_name(line, "gitBranch")
    release, model = get_name(line, "version"), get_name(line, "model")
    if folder and "folder" not in state:
        # A session is resumed in the folder in which it began.
        state["folder"] = facts["folder"] = folder
    if branch and branch != state.get("branch"):
        state["branch"] = facts["branch"] = branch
    if release and release != state.get("release"):
        state["release"] = facts["agent_version"] = release
    if model and model != state.get("model"):
        state["model"] = facts["model"] = model
    origin = get_name(get_dict(line, "forkedFrom"), "sessionId")
    if origin and "origin" not in state:
        state["origin"] = facts["parent_id"] = origin
        facts["link"] = "branch"
    return facts


def _record_usage(line: dict[str, Any], facts: SessionFacts) -> None:
    tokens = get_dict(line, "usageMetadata")
    cached = get_count(tokens, "cachedContentTokenCount")
    # Qwen Code counts tokens read from the cache as input too.
    usage = Usage(
        max(0, get_count(tokens, "promptTokenCount") - cached),
        get_count(tokens, "candidatesTokenCount"),
        cached,
        reasoning_tokens=get_count(tokens, "thoughtsTokenCount"),
    )
    if any(usage):
        facts["usage"] = usage

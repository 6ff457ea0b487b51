"""Recordings of Gemini CLI, and transcripts of Antigravity in the same folder.

Gemini CLI appends each state of a message: the last record with an id counts. It repeats the whole
history when it resumes, and replaces the history by a summary when it compacts. Messages that such
a history leaves out stay in the session.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from session_core.transcripts.decoding import parse_time
from session_core.transcripts.format import (
    Attachment,
    FileFormat,
    Message,
    ReaderState,
    Record,
    Rewind,
    SessionFacts,
    SourceFile,
    ToolCall,
    Usage,
)
from session_core.transcripts.formats.fields import (
    decode_object,
    find_between,
    format_value,
    get_count,
    get_dict,
    get_dicts,
    get_name,
    get_str,
    join_texts,
)
from session_core.transcripts.places import find_agent_folder

_ID_LENGTH = 8
"""The length of the id in the name of a recording. Folders of subagents have the whole id."""

_FILE = re.compile(r"session-[0-9T-]{16,24}-(?P<id>[0-9A-Za-z_]+)\.jsonl?")
_FOLDER = re.compile(r"Workspace Directories:\*\*\s*\n\s*- ([^\n]{1,4096})")
_CONTEXT = ("<session_context>", "This is the Gemini CLI. We are setting up the context")


class GeminiFormat:
    """The format of Gemini CLI."""

    store = "gemini"
    version = 1

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of projects."""
        return (find_agent_folder(self.store, environ, home) / "tmp",)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session, or None if its whole id is unknown."""
        return ("gemini", "--resume", session_id) if len(session_id) > _ID_LENGTH else None

    def match_folder(self, path: str) -> bool:
        """Return True for a project, its chats, and the subagents of a chat."""
        parts = path.split("/")
        return len(parts) == 1 or (parts[1] == "chats" and len(parts) <= 3)  # noqa: PLR2004 -- project/chats/parent

    def match_file(self, path: str) -> SourceFile | None:
        """Return the session of a recording. Subagents are in a folder of their parent."""
        match path.split("/"):
            case (project, "chats", name) if file_match := _FILE.fullmatch(name):
                sidecars = (f"{project}/.project_root",)
                is_document = name.endswith(".json")
                return SourceFile(file_match["id"], is_document=is_document, sidecars=sidecars)
            case (project, "chats", parent, name) if name.endswith(".jsonl") and name != ".jsonl":
                sidecars = (f"{project}/.project_root",)
                session_id = name.removesuffix(".jsonl")
                return SourceFile(session_id, parent[:_ID_LENGTH], "delegate", sidecars=sidecars)
        return None

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return the folder of a project."""
        folder = data.decode("utf-8", "replace").strip()
        return {"folder": folder} if folder.startswith("/") or folder[1:2] == ":" else {}

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line, or of a document of an older version."""
        record = Record(offset, len(data) + 1, "damaged")
        line = decode_object(data)
        if line is None:
            return record._replace(is_known=False)
        if get_name(line, "$rewindTo"):
            return record._replace(type="$rewindTo", rewind=Rewind(key=line["$rewindTo"]))
        if "$set" in line:
            changes = get_dict(line, "$set")
            return _read_metadata(record._replace(type="$set"), changes, state)
        if get_name(line, "id"):
            kind = (get_name(line, "type") or "untyped")[:60]
            facts: SessionFacts = {}
            messages = _read_message(line, state, facts)
            _record_usage(line, state, facts)
            record = record._replace(type=kind, messages=tuple(messages), facts=facts or None)
            return record._replace(is_known=kind in _ROLES)
        if get_name(line, "sessionId"):
            return _read_metadata(record._replace(type="metadata"), line, state)
        return record._replace(type="untyped", is_known=False)

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        return Record(offset, length, "cut", is_known=False)


class AntigravityFormat:
    """The format of Antigravity."""

    store = "antigravity"
    version = 1

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder that contains the folders of the command, application and editor."""
        return (find_agent_folder(self.store, environ, home),)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return None, because no command continues a conversation by its id."""
        return None

    def match_folder(self, path: str) -> bool:
        """Return True for the folders on the way to a transcript."""
        parts = path.split("/")
        fixed = (None, "brain", None, ".system_generated", "logs")
        return parts[0].startswith("antigravity") and all(
            want in (None, part) for part, want in zip(parts, (*fixed, ""), strict=False)
        )

    def match_file(self, path: str) -> SourceFile | None:
        """Return the conversation of a transcript, which its folder names."""
        match path.split("/"):
            case (product, "brain", session_id, ".system_generated", "logs", "transcript.jsonl"):
                return SourceFile(session_id) if product.startswith("antigravity") else None
        return None

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return no facts, because transcripts have no sidecars."""
        return {}

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one step. Unfinished steps are written again later."""
        record = Record(offset, len(data) + 1, "damaged")
        line = decode_object(data)
        if line is None:
            return record._replace(is_known=False)
        source = get_name(line, "source") or ""
        kind = (get_name(line, "type") or source or "untyped")[:60]
        known = source in ("USER_EXPLICIT", "USER_IMPLICIT", "MODEL", "SYSTEM")
        record = record._replace(type=kind, is_known=known)
        if not known or get_name(line, "status") in ("PENDING", "RUNNING", "GENERATING"):
            return record
        at = parse_time(line.get("created_at"))
        messages = tuple(m._replace(at=at) for m in _read_step(line, source, kind))
        usage = Usage(get_count(line, "input_tokens"), get_count(line, "output_tokens"))
        facts: SessionFacts | None = {"usage": usage} if any(usage) else None
        return record._replace(messages=messages, facts=facts)

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        return Record(offset, length, "cut", is_known=False)


FORMATS: tuple[FileFormat, ...] = (GeminiFormat(), AntigravityFormat())

_ROLES = frozenset({"user", "gemini", "model", "info", "error", "warning"})


def _read_metadata(record: Record, changes: dict[str, Any], state: ReaderState) -> Record:
    """Return the facts and the history that the metadata of a session contains."""
    facts: SessionFacts = {}
    started, summary = parse_time(changes.get("startTime")), get_str(changes, "summary")
    if started is not None:
        facts["started_at"] = started
    if summary:
        facts["title"], facts["title_rank"] = summary, 1
    session_id = get_name(changes, "sessionId")
    if session_id:
        facts["resume_id"] = session_id
    folders = changes.get("directories")
    if isinstance(folders, list) and folders and isinstance(folders[0], str):
        facts["folder"] = folders[0][:4096]
    history = get_dicts(changes, "messages")
    is_compaction = _is_replaced_history(history, state)
    messages: list[Message] = []
    for item in history:
        # Copies must not replace the first recording, because their tool results are shortened.
        messages += [m._replace(replaces=False) for m in _read_message(item, state, facts)]
        if record.type == "metadata":
            _record_usage(item, state, facts)
    if is_compaction and messages:
        # The messages after the summary were recorded before, and have other ids here.
        messages = [messages[0]._replace(role="system", is_summary=True, is_prompt=False)]
    return record._replace(
        messages=tuple(messages), facts=facts or None, is_compaction=is_compaction
    )


def _is_replaced_history(history: list[dict[str, Any]], state: ReaderState) -> bool:
    """Return True if a history does not begin with the first message of the conversation."""
    own = (item for item in history if not _is_context(item))
    first = next((get_name(item, "id") for item in own if _read_parts(item.get("content"))), None)
    if first is None:
        return False
    before = state.get("first", first)
    state["first"] = first
    return bool(before != first)


def _is_context(item: dict[str, Any]) -> bool:
    return item.get("type") == "user" and _read_parts(item.get("content")).startswith(_CONTEXT)


def _read_message(line: dict[str, Any], state: ReaderState, facts: SessionFacts) -> list[Message]:
    kind, key = get_name(line, "type"), get_name(line, "id")
    if _is_context(line):
        # The client begins each conversation with this context, which no person wrote.
        folder = _FOLDER.search(_read_parts(line.get("content"))[:20_000])
        if folder and "folder" not in facts:
            facts["folder"] = folder[1].strip()
        return []
    if _read_parts(line.get("content")):
        state.setdefault("first", key)
    if kind == "user":
        messages = list(_read_user(line))
    elif kind in ("gemini", "model"):
        messages = list(_read_answer(line))
    else:
        text = _read_parts(line.get("content"))
        messages = [Message("system", text, is_error=kind == "error")] if text else []
    at = parse_time(line.get("timestamp"))
    return [
        message._replace(at=at, key=f"{key}:{place}" if place else key, replaces=True)
        for place, message in enumerate(messages)
    ]


def _read_user(line: dict[str, Any]) -> Iterator[Message]:
    """Yield the text that a person typed. Tool results are part of the calling answer."""
    text = _read_parts(line.get("displayContent")) or _read_parts(line.get("content"))
    attachments = tuple(_list_attachments(line.get("content")))
    if text or attachments:
        # A command of the client is not a prompt for the agent.
        prompt = bool(text) and not text.startswith(("/", "?"))
        yield Message("user", text, is_prompt=prompt, attachments=attachments)


def _read_answer(line: dict[str, Any]) -> Iterator[Message]:
    calls = get_dicts(line, "toolCalls")
    thoughts = get_dicts(line, "thoughts")
    yield Message(
        "assistant",
        _read_parts(line.get("content")),
        reasoning=join_texts(
            ": ".join(filter(None, (get_str(t, "subject"), get_str(t, "description"))))
            for t in thoughts
        ),
        tool_calls=tuple(
            ToolCall(
                get_name(c, "id"), get_name(c, "name") or "unknown", format_value(c.get("args"))
            )
            for c in calls
        ),
        model=get_name(line, "model"),
    )
    for call in calls:
        text = _read_result(call)
        failed = get_name(call, "status") in ("error", "cancelled")
        if text or failed:
            name, call_id = get_name(call, "name"), get_name(call, "id")
            yield Message("tool", text, tool_name=name, tool_call_id=call_id, is_error=failed)


def _read_result(call: dict[str, Any]) -> str:
    texts = []
    for part in get_dicts(call, "result"):
        response = get_dict(get_dict(part, "functionResponse"), "response")
        texts.append(get_str(response, "output") or get_str(response, "error"))
    shown = call.get("resultDisplay")
    return join_texts(texts) or (shown if isinstance(shown, str) else "")


def _read_parts(content: Any) -> str:
    """Return the text of content, which is a text, a part, or a list of either."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return get_str(content, "text") or ""
    if not isinstance(content, list):
        return ""
    texts = (p if isinstance(p, str) else get_str(p, "text") for p in content if _is_shown(p))
    return "".join(text for text in texts if text)


def _is_shown(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and part.get("thought") is not True)


def _list_attachments(content: Any) -> Iterator[Attachment]:
    for part in get_dicts({"content": content}, "content"):
        data = get_dict(part, "inlineData")
        mime = get_name(data, "mimeType")
        if mime:
            size = len(get_str(data, "data") or "") * 3 // 4
            yield Attachment(mime.partition("/")[0], None, size or None)


def _record_usage(line: dict[str, Any], state: ReaderState, facts: SessionFacts) -> None:
    """Add the model and the tokens of an answer to the facts, once per answer."""
    model, key = get_name(line, "model"), get_name(line, "id")
    earlier = facts.get("usage", Usage())
    if model and model != state.get("model"):
        state["model"] = facts["model"] = model
    tokens = get_dict(line, "tokens")
    if not tokens or state.get("counted") == key:
        return
    state["counted"] = key
    cached, thoughts = get_count(tokens, "cached"), get_count(tokens, "thoughts")
    # Gemini counts tokens read from the cache as input too.
    usage = Usage(
        max(0, get_count(tokens, "input") - cached),
        get_count(tokens, "output") + thoughts,
        cached,
        reasoning_tokens=thoughts,
    )
    if any(usage):
        facts["usage"] = Usage._make(map(operator.add, earlier, usage))


def _read_step(line: dict[str, Any], source: str, kind: str) -> Iterator[Message]:
    text = get_str(line, "content") or ""
    if source == "USER_EXPLICIT":
        typed = find_between(text, "<USER_REQUEST>", "</USER_REQUEST>")
        typed = _remove_metadata(text if typed is None else typed)
        if typed:
            yield Message("user", typed, is_prompt=True)
    elif source != "MODEL":
        if text:
            yield Message("system", text)
    elif kind in ("PLANNER_RESPONSE", "MODEL"):
        calls = tuple(
            ToolCall(None, get_name(call, "name") or "unknown", format_value(call.get("args")))
            for call in get_dicts(line, "tool_calls")
        )
        thinking = get_str(line, "thinking") or ""
        if text or thinking or calls:
            yield Message("assistant", text, reasoning=thinking, tool_calls=calls)
    elif text:
        failed = get_name(line, "status") in ("ERROR", "FAILED")
        yield Message("tool", text, tool_name=kind.lower(), is_error=failed)


def _remove_metadata(text: str) -> str:
    for tag in ("ADDITIONAL_METADATA", "USER_SETTINGS_CHANGE"):
        before, tag_start, rest = text.partition(f"<{tag}>")
        if tag_start:
            text = before + rest.partition(f"</{tag}>")[2]
    return text.strip()

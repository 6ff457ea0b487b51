"""Transcripts of Claude Code: one file of JSON lines for each session and each subagent.

Messages are in the order of the file. The chain of `parentUuid` orders branches and is not
followed, because it does not decide which messages exist.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
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
    find_between,
    format_value,
    get_cost,
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

_WITHOUT_MESSAGES = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "atis-latch",
        "attribution-snapshot",
        "content-replacement",
        "file-history-delta",
        "file-history-snapshot",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "relocated",
        "tag",
        "tools-used",
        "worktree-state",
    }
)

_TITLES = {
    "custom-title": ("customTitle", 0),
    "ai-title": ("aiTitle", 1),
    "last-prompt": ("lastPrompt", 2),
    "summary": ("summary", 3),
}
"""The field and the rank of each record type with a title."""

_TASK_TITLE_RANK = 4

# Requests to the model and its instructions repeat the text of messages, and they are more than
# half of a file: they are recognised before they are decoded.
_REQUEST = b'{"type":"api-request'
_SNAPSHOT = b'"attachment":{"type":"prompt_snapshot"'
_HEAD_BYTES = 400

_LONGEST_TYPE = 60

_INJECTED = re.compile(
    r"\s*(?:<(command-message|command-name|local-command-caveat|local-command-stdout"
    r"|local-command-stderr|bash-input|bash-stdout|bash-stderr|session-start-hook|system-reminder"
    r"|task-notification|user-prompt-submit-hook|user-memory-input|teammate-message)\b"
    r"|\[Request interrupted by user|Caveat: The messages below were generated)"
)
_EDITOR_CONTEXT = re.compile(
    r"\s*<(ide_opened_file|ide_selection|ide_diagnostics)>.*?</\1>\s*", re.DOTALL
)
_TYPE = re.compile(rb'"type":"([a-z_-]{1,40})"')


class ClaudeCodeFormat:
    """The format of Claude Code."""

    store = "claude-code"
    version = 1

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of projects, and the folder of transcripts of older versions."""
        config = find_agent_folder(self.store, environ, home)
        return (config / "projects", config / "transcripts")

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session, or None for a subagent."""
        return None if session_id.startswith("agent-") else ("claude", "--resume", session_id)

    def match_folder(self, path: str) -> bool:
        """Return False for folders of tool results."""
        return not path.endswith("/tool-results")

    def match_file(self, path: str) -> SourceFile | None:
        """Return the session of a transcript. Subagents are in folders below their parent."""
        base = path.removesuffix(".jsonl")
        folder, _, name = base.rpartition("/")
        if base == path or not name:
            return None
        if name.startswith("agent-"):
            folders = folder.split("/")
            parent = folders[1] if len(folders) > 1 else None
            return SourceFile(name, parent, "delegate", sidecars=(f"{base}.meta.json",))
        if "/" in folder:
            return None
        return SourceFile(name, sidecars=(f"{base}/custom-title.json",))

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return the title of a session, or the task of a subagent."""
        value = decode_object(data) or {}
        title = get_str(value, "customTitle")
        if title:
            return {"title": title, "title_rank": 0}
        task = get_str(value, "description")
        return {"title": task, "title_rank": _TASK_TITLE_RANK - 1} if task else {}

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line."""
        length = len(data) + 1
        if data.startswith(_REQUEST):
            return Record(offset, length, "api-request")
        if _SNAPSHOT in data[:_HEAD_BYTES]:
            return Record(offset, length, "attachment")
        line = decode_object(data)
        if line is None:
            return Record(offset, length, "damaged", is_known=False)
        kind = (get_name(line, "type") or "untyped")[:_LONGEST_TYPE]
        if kind in ("user", "assistant", "system", "attachment"):
            return _read_chain_record(line, kind, offset, length, state)
        facts = _read_title(line, kind) or _read_cost(line, kind, state)
        _note_copied_beginning(parse_time(line.get("timestamp")), state)
        known = kind in _WITHOUT_MESSAGES or kind in _TITLES or kind == "cost-state"
        return Record(offset, length, kind, facts=facts, is_known=known)

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        type_match = _TYPE.search(head)
        kind = type_match[1].decode() if type_match else "cut"
        return Record(offset, length, kind, is_known=kind.startswith("api-request"))


FORMATS: tuple[FileFormat, ...] = (ClaudeCodeFormat(),)


def _read_chain_record(
    line: dict[str, Any], kind: str, offset: int, length: int, state: ReaderState
) -> Record:
    at = parse_time(line.get("timestamp"))
    messages = _add_keys(_READERS[kind](line), line, at, state)
    facts = _read_facts(line, at, state)
    if kind == "assistant":
        usage = _compute_added_usage(line, state)
        if usage:
            facts["usage"] = usage
    return Record(
        offset,
        length,
        kind,
        messages,
        facts or None,
        is_compaction=_is_compaction(line, state),
    )


def _add_keys(
    messages: Iterable[Message], line: dict[str, Any], at: float | None, state: ReaderState
) -> tuple[Message, ...]:
    """Return the messages of a line with time, tool names, and keys that copies share."""
    uuid, parent = get_name(line, "uuid"), get_name(line, "parentUuid")
    completed = []
    for index, message in enumerate(messages):
        if message.tool_calls:
            remember_calls(state, message.tool_calls)
        call_id = message.tool_call_id
        tool = name_tool(state, call_id) if call_id else None
        key = f"{uuid}:{index}" if uuid and index else uuid
        completed.append(message._replace(at=at, key=key, parent_key=parent, tool_name=tool))
    return tuple(completed)


def _read_user(line: dict[str, Any]) -> Iterator[Message]:
    content = get_dict(line, "message").get("content", line.get("content"))
    if isinstance(content, str):
        return _read_texts(line, [content], [])
    blocks = get_dicts({"content": content}, "content")
    results = [block for block in blocks if block.get("type") == "tool_result"]
    texts = [get_str(block, "text") for block in blocks if block.get("type") == "text"]
    return chain(map(_read_result, results), _read_texts(line, texts, blocks))


def _read_texts(
    line: dict[str, Any], texts: Sequence[str | None], blocks: list[dict[str, Any]]
) -> Iterator[Message]:
    """Yield the text that an editor added and the text of the person as two messages."""
    attachments = tuple(_list_attachments(blocks))
    whole = join_texts(texts)
    if line.get("isCompactSummary") is True:
        yield Message("system", whole, is_summary=True)
        return
    context, typed = _split_editor_context(whole)
    if context:
        yield Message("system", context)
    if typed and _is_injected(line, typed):
        yield _read_injected(typed)
    elif typed or attachments:
        prompt = bool(typed) and line.get("isSidechain") is not True
        yield Message("user", typed, is_prompt=prompt, attachments=attachments)


def _read_injected(text: str) -> Message:
    """Return a command as a message of the user, or any other wrapper as a system message."""
    name = find_between(text, "<command-name>", "</command-name>")
    if not name:
        return Message("system", text)
    arguments = find_between(text, "<command-args>", "</command-args>") or ""
    return Message("user", f"{name} {arguments}".strip())


def _read_assistant(line: dict[str, Any]) -> Iterator[Message]:
    message = get_dict(line, "message")
    content = message.get("content", line.get("content"))
    blocks = get_dicts({"content": content}, "content")
    texts = [content] if isinstance(content, str) else [get_str(block, "text") for block in blocks]
    # Most messages have text only, and most files have many thousands of them.
    others = [block for block in blocks if block.get("type") != "text"]
    model = get_name(message, "model")
    yield Message(
        "assistant",
        join_texts(texts),
        group=get_name(message, "id"),
        reasoning=join_texts([get_str(block, "thinking") for block in others]),
        tool_calls=tuple(_list_calls(others)),
        model=None if model == "<synthetic>" else model,
        is_error=line.get("isApiErrorMessage") is True,
        attachments=tuple(_list_attachments(others)),
    )
    yield from _list_server_results(others)


def _read_system(line: dict[str, Any]) -> Iterator[Message]:
    text = get_str(line, "content")
    is_error = get_name(line, "level") == "error" or get_name(line, "subtype") == "api_error"
    if not text and is_error:
        text = format_value(line.get("error"))
    if text:
        yield Message("system", text, is_error=is_error)


def _read_attachment(line: dict[str, Any]) -> Iterator[Message]:
    """Yield prompts that were queued while the model worked, and mentioned files."""
    attachment = get_dict(line, "attachment")
    kind = get_name(attachment, "type")
    if kind == "queued_command":
        prompt = attachment.get("prompt")
        text = format_value(prompt) if isinstance(prompt, str) else ""
        blocks = get_dicts(attachment, "prompt")
        texts = [text, *(get_str(block, "text") for block in blocks)]
        injected = get_name(attachment, "commandMode") == "task-notification"
        marked = line | {"isMeta": injected or attachment.get("isMeta") is True}
        yield from _read_texts(marked, texts, blocks)
    elif kind in ("file", "compact_file_reference", "pdf_reference", "directory"):
        name = get_name(attachment, "filename") or get_name(attachment, "path")
        yield Message("system", "", attachments=(Attachment(kind, name),))


_READERS = {
    "user": _read_user,
    "assistant": _read_assistant,
    "system": _read_system,
    "attachment": _read_attachment,
}


def _read_result(block: dict[str, Any]) -> Message:
    content = block.get("content")
    blocks = get_dicts(block, "content")
    text = content if isinstance(content, str) else join_texts(get_str(b, "text") for b in blocks)
    return Message(
        "tool",
        text,
        tool_call_id=get_name(block, "tool_use_id"),
        is_error=block.get("is_error") is True,
        attachments=tuple(_list_attachments(blocks)),
    )


def _list_calls(blocks: list[dict[str, Any]]) -> Iterator[ToolCall]:
    for block in blocks:
        if block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
            name = get_name(block, "name") or "unknown"
            yield ToolCall(get_name(block, "id"), name, format_value(block.get("input")))


def _list_server_results(blocks: list[dict[str, Any]]) -> Iterator[Message]:
    """Yield the results of tools that ran at the vendor, from the content of the answer."""
    for block in blocks:
        kind = get_name(block, "type") or ""
        if kind.endswith("_tool_result"):
            text = format_value(block.get("content"))
            yield Message("tool", text, tool_call_id=get_name(block, "tool_use_id"))


def _list_attachments(blocks: list[dict[str, Any]]) -> Iterator[Attachment]:
    for block in blocks:
        kind = get_name(block, "type")
        if kind in ("image", "document"):
            data = get_str(get_dict(block, "source"), "data") or ""
            yield Attachment(kind, get_str(block, "title"), len(data) * 3 // 4 or None)


def _split_editor_context(text: str) -> tuple[str, str]:
    """Return the context that an editor put before a prompt, and the prompt."""
    end = 0
    while context_match := _EDITOR_CONTEXT.match(text, end):
        end = context_match.end()
    return text[:end].strip(), text[end:]


def _is_injected(line: dict[str, Any], text: str) -> bool:
    return (
        line.get("isMeta") is True
        or get_name(line, "promptSource") == "system"
        or bool(_INJECTED.match(text))
    )


def _is_compaction(line: dict[str, Any], state: ReaderState) -> bool:
    """Return True once for a boundary and its summary. Older versions wrote no boundary."""
    if line.get("subtype") == "compact_boundary":
        state["boundary"] = True
        return True
    if line.get("isCompactSummary") is True:
        return not state.pop("boundary", False)
    return False


def _read_title(line: dict[str, Any], kind: str) -> SessionFacts | None:
    field, rank = _TITLES.get(kind, ("", 0))
    title = get_str(line, field)
    return {"title": title, "title_rank": rank} if title else None


def _read_cost(line: dict[str, Any], kind: str, state: ReaderState) -> SessionFacts | None:
    """Return the cost since the last total.

    A fork begins with copies of older messages and with the total of its parent, which does not
    belong to the fork. Its own cost is counted from its first total on.
    """
    if kind != "cost-state":
        return None
    total = get_cost(line, "totalCostUSD")
    before = state.get("cost", total if state.get("copies") else 0.0)
    state["cost"] = total
    return {"usage": Usage(cost_usd=total - before)} if total > before else None


def _read_facts(line: dict[str, Any], at: float | None, state: ReaderState) -> SessionFacts:
    facts: SessionFacts = {}
    if at is not None and "started" not in state:
        state["started"] = facts["started_at"] = at
    _note_copied_beginning(at, state)
    if "folder" not in state and get_name(line, "cwd"):
        # The first folder is the one whose name the file is under: resuming works there only.
        state["folder"] = facts["folder"] = line["cwd"]
    branch = get_name(line, "gitBranch")
    # Outside of a repository it is `HEAD`, which is not a branch.
    if branch and branch not in ("HEAD", state.get("branch")):
        state["branch"] = facts["branch"] = branch
    release = get_name(line, "version")
    if release and release != state.get("release"):
        state["release"] = facts["agent_version"] = release
    model = get_name(get_dict(line, "message"), "model")
    if model and model not in ("<synthetic>", state.get("model")):
        state["model"] = facts["model"] = model
    _read_lineage(line, state, facts)
    return facts


def _note_copied_beginning(at: float | None, state: ReaderState) -> None:
    """Record in the state that a file begins with copies.

    Copies are recognised because they are older than the lines before them.
    """
    if at is None:
        return
    newest: float = state.get("newest", at)
    if at < newest - 1:
        state["copies"] = True
    state["newest"] = max(at, newest)


def _read_lineage(line: dict[str, Any], state: ReaderState, facts: SessionFacts) -> None:
    is_copy = "forkedFrom" in line
    if state.get("linked") or not (is_copy or line.get("isSidechain") is True):
        return
    origin = get_name(get_dict(line, "forkedFrom"), "sessionId")
    parent = get_name(line, "sessionId")
    if origin:
        facts["parent_id"], facts["link"] = origin, "branch"
    elif get_name(line, "agentId") and line.get("isSidechain") is True and parent:
        facts["parent_id"], facts["link"] = parent, "delegate"
        task = next(_read_user(line), None)
        if task and task.role == "user" and task.text:
            facts["title"] = task.text.strip().partition("\n")[0][:100]
            facts["title_rank"] = _TASK_TITLE_RANK
    state["linked"] = bool(origin or "link" in facts)


def _compute_added_usage(line: dict[str, Any], state: ReaderState) -> Usage | None:
    """Return the tokens that a streamed part of a message adds to the earlier parts."""
    message = get_dict(line, "message")
    usage = get_dict(message, "usage")
    total = added = [
        get_count(usage, "input_tokens"),
        get_count(usage, "output_tokens"),
        get_count(usage, "cache_read_input_tokens"),
        get_count(usage, "cache_creation_input_tokens"),
        get_count(get_dict(usage, "output_tokens_details"), "thinking_tokens"),
    ]
    group = get_name(message, "id")
    before = state.get("counted") if group and group == state.get("group") else None
    if before:
        total = list(map(max, total, before))
        added = list(map(operator.sub, total, before))
    state["group"], state["counted"] = group, total
    # Versions before 2.0 state a cost with each message, and no total.
    cost = get_cost(line, "costUSD")
    return Usage._make((*added, cost)) if cost or any(added) else None

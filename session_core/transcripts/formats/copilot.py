"""Events of Copilot CLI: one folder per session, with a file of JSON lines.

A subagent writes into the file of its session: its events have an `agentId`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    format_value,
    get_count,
    get_dict,
    get_dicts,
    get_name,
    get_str,
    name_tool,
    remember_calls,
)
from session_core.transcripts.places import find_agent_folder

# Requests to the model repeat all messages; they are not decoded.
_REQUEST = b'{"type":"model.'

_SILENT = (
    "abort",
    "assistant.idle",
    "assistant.intent",
    "assistant.reasoning",
    "assistant.turn_end",
    "assistant.turn_start",
    "assistant.usage",
    "hook.end",
    "hook.start",
    "model.",
    "permission.",
    "session.background_tasks_changed",
    "session.compaction_start",
    "session.idle",
    "session.info",
    "session.mode_changed",
    "session.permissions_changed",
    "session.plan_changed",
    "session.shutdown",
    "session.task_complete",
    "session.tools_updated",
    "session.truncation",
    "session.usage_",
    "skill.invoked",
    "subagent.",
    "system.message",
    "tool.user_requested",
    "tool.execution_start",
    "tool.execution_progress",
    "tool.execution_partial_result",
)
"""Prefixes of event types without a message. Tool calls are in the answer as well."""


class CopilotFormat:
    """The format of Copilot CLI."""

    store = "copilot"
    version = 1

    def find_roots(self, environ: Mapping[str, str], home: Path) -> Sequence[Path]:
        """Return the folder of sessions."""
        return (find_agent_folder(self.store, environ, home) / "session-state",)

    def build_resume_command(self, session_id: str) -> tuple[str, ...] | None:
        """Return the command that continues a session."""
        return ("copilot", f"--resume={session_id}")

    def match_folder(self, path: str) -> bool:
        """Return True for the folder of a session, and False for the folders below it."""
        return "/" not in path

    def match_file(self, path: str) -> SourceFile | None:
        """Return the session of a file of events. Older versions had no folders."""
        match path.split("/"):
            case (session_id, "events.jsonl"):
                return SourceFile(session_id, sidecars=(f"{session_id}/workspace.yaml",))
            case (name,) if name.endswith(".jsonl") and name != ".jsonl":
                return SourceFile(name.removesuffix(".jsonl"))
        return None

    def read_sidecar(self, path: str, data: bytes) -> SessionFacts:
        """Return the folder, the branch and the name of a workspace."""
        import yaml  # noqa: PLC0415 -- slow to import, and only this format needs it

        try:
            workspace = yaml.safe_load(data)
        except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError):
            return {}
        if not isinstance(workspace, dict):
            return {}
        facts: SessionFacts = {}
        folder, branch = get_name(workspace, "cwd"), get_name(workspace, "branch")
        if folder:
            facts["folder"] = folder
        if branch:
            facts["branch"] = branch
        title = get_str(workspace, "name") or get_str(workspace, "summary")
        if title:
            # Without a name of its own, a session is named by its first prompt.
            facts["title"] = title
            facts["title_rank"] = 0 if workspace.get("user_named") is True else 2
        return facts

    def read_record(self, data: bytes, offset: int, state: ReaderState) -> Record:
        """Return the record of one line."""
        record = Record(offset, len(data) + 1, "damaged")
        if data.startswith(_REQUEST):
            return record._replace(type="model")
        line = decode_object(data)
        if line is None:
            return record._replace(is_known=False)
        kind = (get_name(line, "type") or "untyped")[:60]
        record = record._replace(type=kind)
        reader = _READERS.get(kind)
        if reader is None:
            facts = _read_facts(line, kind, state)
            known = facts is not None or kind.startswith(_SILENT)
            return record._replace(facts=facts or None, is_known=known)
        messages = list(reader(line, state))
        at, key = parse_time(line.get("timestamp")), get_name(line, "id")
        numbered = tuple(
            message._replace(at=at, key=f"{key}:{n}" if key and n else key)
            for n, message in enumerate(messages)
        )
        facts = _note_model_change(get_name(get_dict(line, "data"), "model"), state)
        is_compaction = kind == "session.compaction_complete" and bool(messages)
        return record._replace(messages=numbered, facts=facts or None, is_compaction=is_compaction)

    def read_cut_record(self, head: bytes, offset: int, length: int, state: ReaderState) -> Record:
        """Return a record without messages for a line above the cap."""
        return Record(offset, length, "cut", is_known=head.startswith(_REQUEST))


FORMATS: tuple[FileFormat, ...] = (CopilotFormat(),)


def _read_user(line: dict[str, Any], state: ReaderState) -> Iterator[Message]:
    """Yield a prompt. Messages of skills and agents have a source other than the user."""
    data = get_dict(line, "data")
    text = get_str(data, "content") or ""
    attachments = tuple(
        Attachment(get_name(item, "type") or "file", get_name(item, "displayName"))
        for item in get_dicts(data, "attachments")
    )
    source = get_name(data, "source") or "user"
    # The task of a subagent, which no person typed.
    if get_name(line, "agentId"):
        yield Message("user", text)
    elif source != "user" or text.startswith("<skill-context"):
        yield Message("system", text)
    elif text or attachments:
        yield Message("user", text, is_prompt=bool(text), attachments=attachments)


def _read_answer(line: dict[str, Any], state: ReaderState) -> Iterator[Message]:
    data = get_dict(line, "data")
    calls = tuple(
        ToolCall(
            get_name(request, "toolCallId"),
            get_name(request, "name") or "unknown",
            format_value(request.get("arguments")),
        )
        for request in get_dicts(data, "toolRequests")
    )
    remember_calls(state, calls)
    text, reasoning = get_str(data, "content") or "", get_str(data, "reasoningText") or ""
    if text or reasoning or calls:
        model = get_name(data, "model")
        yield Message("assistant", text, reasoning=reasoning, tool_calls=calls, model=model)


def _read_result(line: dict[str, Any], state: ReaderState) -> Iterator[Message]:
    data = get_dict(line, "data")
    call_id = get_name(data, "toolCallId")
    result = data.get("result")
    text = get_str(get_dict(data, "result"), "content") or format_value(
        None if isinstance(result, dict) else result
    )
    text = text or get_str(get_dict(data, "error"), "message") or ""
    exit_code = get_dict(data, "shellExecution").get("exitCode")
    failed = data.get("success") is False or (isinstance(exit_code, int) and exit_code != 0)
    name = name_tool(state, call_id)
    yield Message("tool", text, tool_name=name, tool_call_id=call_id, is_error=failed)


def _read_system(line: dict[str, Any], state: ReaderState) -> Iterator[Message]:
    text = get_str(get_dict(line, "data"), "content")
    if text:
        yield Message("system", text)


def _read_notice(line: dict[str, Any], state: ReaderState) -> Iterator[Message]:
    text = get_str(get_dict(line, "data"), "message")
    if text:
        yield Message("system", text, is_error=get_name(line, "type") == "session.error")


def _read_compaction(line: dict[str, Any], state: ReaderState) -> Iterator[Message]:
    data = get_dict(line, "data")
    text = get_str(data, "summaryContent")
    if text and data.get("success") is not False:
        yield Message("system", text, is_summary=True)


_READERS: dict[str, Callable[[dict[str, Any], ReaderState], Iterator[Message]]] = {
    "user.message": _read_user,
    "assistant.message": _read_answer,
    "tool.execution_complete": _read_result,
    "system.notification": _read_system,
    "session.error": _read_notice,
    "session.warning": _read_notice,
    "session.compaction_complete": _read_compaction,
}


def _read_facts(line: dict[str, Any], kind: str, state: ReaderState) -> SessionFacts | None:
    """Return the facts that an event states, or None for an event of another type."""
    data = get_dict(line, "data")
    if kind in ("session.start", "session.resume"):
        return _read_start(data, state)
    if kind == "session.context_changed":
        return _read_context(data)
    if kind == "session.title_changed":
        title = get_str(data, "title")
        return {"title": title, "title_rank": 1} if title else {}
    if kind == "session.model_change":
        return (
            {}
            if get_name(line, "agentId")
            else _note_model_change(get_name(data, "newModel"), state)
        )
    if kind == "session.usage_record":
        return _read_usage(get_dict(data, "usage"), state)
    if kind == "session.shutdown":
        return _read_total_usage(data, state)
    return None


def _read_start(data: dict[str, Any], state: ReaderState) -> SessionFacts:
    facts = _read_context(get_dict(data, "context"))
    facts |= _note_model_change(get_name(data, "selectedModel"), state)
    started, release = parse_time(data.get("startTime")), get_name(data, "copilotVersion")
    if started is not None:
        facts["started_at"] = started
    if release:
        facts["agent_version"] = release
    return facts


def _read_context(context: dict[str, Any]) -> SessionFacts:
    facts: SessionFacts = {}
    folder, branch = get_name(context, "cwd"), get_name(context, "branch")
    if folder:
        facts["folder"] = folder
    if branch:
        facts["branch"] = branch
    return facts


def _note_model_change(model: str | None, state: ReaderState) -> SessionFacts:
    if not model or model == state.get("model"):
        return {}
    state["model"] = model
    return {"model": model}


def _read_usage(usage: dict[str, Any], state: ReaderState) -> SessionFacts:
    cached, written = get_count(usage, "cacheReadTokens"), get_count(usage, "cacheWriteTokens")
    state["counts"] = True
    # Copilot CLI counts tokens read from or written to the cache as input too.
    total = Usage(
        max(0, get_count(usage, "inputTokens") - cached - written),
        get_count(usage, "outputTokens"),
        cached,
        written,
        get_count(usage, "reasoningTokens"),
    )
    return {"usage": total} if any(total) else {}


def _read_total_usage(data: dict[str, Any], state: ReaderState) -> SessionFacts:
    """Return the total usage of a run, for versions that do not state each request.

    The cost is in credits, not in dollars, and is left out.
    """
    # This version states each request, and they were counted.
    if state.get("counts"):
        return {}
    totals = [0] * 5
    for metrics in get_dict(data, "modelMetrics").values():
        if isinstance(metrics, dict):
            usage = _read_usage(get_dict(metrics, "usage"), {}).get("usage", Usage())
            totals = [total + int(number) for total, number in zip(totals, usage[:5], strict=True)]
    return {"usage": Usage(*totals)} if any(totals) else {}

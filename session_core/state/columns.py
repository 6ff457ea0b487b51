"""The keyword columns of sessions, messages and usage that callers pass.

A home may have further columns of messages, which `append_messages` stores too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict


class NewSessionColumns(TypedDict, total=False):
    """Columns for `create_session`.

    A number, such as the id of a chat, is stored as its digits.
    """

    user_id: str | int | None
    session_key: str | None
    chat_id: str | int | None
    chat_type: str | None
    thread_id: str | int | None
    display_name: str | None
    origin_json: str | Mapping[str, Any] | None
    model_config: str | Mapping[str, Any] | None
    system_prompt: str | None
    cwd: str | None
    git_branch: str | None
    git_repo_root: str | None
    profile_name: str | None


class SessionColumnUpdates(NewSessionColumns, total=False):
    """Columns for `update_session`."""

    model: str | None
    parent_session_id: str | None
    pinned: int | None
    handoff_state: str | None
    handoff_platform: str | None
    handoff_error: str | None
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None
    compression_failure_cooldown_until: float | None
    compression_failure_error: str | None
    compression_fallback_streak: int | None


class _MessageValues(TypedDict, total=False):
    tool_call_id: str | None
    tool_calls: Sequence[Mapping[str, Any]] | str | None
    tool_name: str | None
    token_count: int | None
    finish_reason: str | None
    reasoning: str | None
    reasoning_content: str | None
    reasoning_details: Any
    codex_reasoning_items: Any
    codex_message_items: Any
    platform_message_id: str | int | None
    api_content: str | None
    effect_disposition: str | None
    observed: bool | int | None
    payload_json: Any


class NewMessageColumns(_MessageValues, total=False):
    """Columns for `append_message`.

    A time is a number of seconds, a datetime or an ISO 8601 text.
    """

    timestamp: float | str | datetime | None
    name: str | None
    """The name of the tool in the format of the OpenAI API."""
    message_id: str | int | None
    """The id on the platform, as platforms call it."""
    annotations: Any


class MessageColumnUpdates(_MessageValues, total=False):
    """Columns for `update_message`. None empties a column."""

    role: str
    content: Any


class UsageColumns(TypedDict, total=False):
    """Counts of tokens and costs in US dollars for `record_auxiliary_usage`."""

    api_call_count: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    estimated_cost_usd: float | None
    actual_cost_usd: float | None
    cost_status: str | None
    cost_source: str | None
    pricing_version: str | None
    billing_provider: str | None
    billing_base_url: str | None
    billing_mode: str | None


class TokenColumns(UsageColumns, total=False):
    """Counts of tokens and costs in US dollars for `update_token_counts`."""

    model: str | None

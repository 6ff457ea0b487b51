"""Jobs of the driver for the compressor of a real hermes-agent.

The answers of its model are given by the test. This module runs under the Python of a hermes-agent
and imports none of it before its home is set.
"""

from __future__ import annotations

import time
from typing import Any

_LONG = " They went along the river and looked for the ferry." * 8


class Compression:
    """The jobs. Conversations are changed by the code of Hermes."""

    db: Any

    def summary_in(self, session_id: str) -> list[Any]:
        """Return the position and the text of the newest summary in a conversation."""
        messages = self.db.get_messages_as_conversation(session_id)
        engine = _make_engine().__class__
        return list(engine._find_latest_context_summary(messages, 0, len(messages)))

    def condense(self, session_id: str, summary: str, keep: int) -> dict[str, Any]:
        """Let it compress a conversation, and return the result and the input of its model."""
        engine = _make_engine()
        engine.tail_token_budget = 1
        engine.protect_last_n = keep
        told: dict[str, Any] = {}

        def generate(turns: list[dict[str, Any]], *_: Any, **__: Any) -> str:
            told.update(turns=turns, previous=engine._previous_summary)
            return engine._with_summary_prefix(summary)

        engine._generate_summary = generate
        messages = self.db.get_messages_as_conversation(session_id)
        return {"messages": engine.compress(messages), **told}

    def compact(self, session_id: str, summary: str, keep: int) -> None:
        """Compress in place."""
        result = self.condense(session_id, summary, keep)
        self.db.archive_and_compact(session_id, result["messages"])

    def rotate(self, session_id: str, child: str, summary: str, keep: int) -> None:
        """Compress into a continuation, in the same steps as Hermes."""
        found = self.condense(session_id, summary, keep)
        old = self.db.get_session(session_id)
        self.db.end_session(session_id, "compression")
        self.db.create_session(child, old["source"], parent_session_id=session_id)
        if old["title"]:
            self.db.set_session_title(child, self.db.get_next_title_in_lineage(old["title"]))
        self.db.replace_messages(child, found["messages"])

    def converse(self, session_id: str, numbers: list[int], pause: float) -> list[str]:
        """Append numbered questions with tool calls, and return the contents of all messages."""
        said: list[str] = []
        for number in numbers:
            call = {"id": f"theirs_{number}", "type": "function",
                    "function": {"name": "look", "arguments": "{}"}}  # fmt: skip
            for role, columns in (
                ("user", {}),
                ("assistant", {"tool_calls": [call]}),
                ("tool", {"tool_call_id": call["id"], "tool_name": "look"}),
                ("assistant", {}),
            ):
                said.append(f"theirs {number}.{len(said)}.{_LONG}")
                self.db.append_message(session_id, role, said[-1], **columns)
                time.sleep(pause)
        return said


def _make_engine() -> Any:
    from agent.context_compressor import ContextCompressor  # noqa: PLC0415

    return ContextCompressor(model="none", config_context_length=200_000, quiet_mode=True)

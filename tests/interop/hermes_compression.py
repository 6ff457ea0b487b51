"""The compressor of a real hermes-agent: the jobs of the driver that concern it.

Its model is asked for nothing: what it would have said is given. Runs under the Python of a
hermes-agent; nothing of it is imported before its home is set.
"""

from __future__ import annotations

import time
from typing import Any

_LONG = " They went along the river and looked for the ferry." * 8


class Compression:
    """The jobs; what is done to a conversation is done by their code."""

    db: Any

    def summary_in(self, session_id: str) -> list[Any]:
        """Return where it finds the newest summary of a conversation, and what that says."""
        messages = self.db.get_messages_as_conversation(session_id)
        engine = _make_engine().__class__
        return list(engine._find_latest_context_summary(messages, 0, len(messages)))

    def condense(self, session_id: str, summary: str, keep: int) -> dict[str, Any]:
        """Have it compress a conversation; return that, and what its model would have been told."""
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
        """Compress in place as it does."""
        found = self.condense(session_id, summary, keep)
        self.db.archive_and_compact(session_id, found["messages"])

    def rotate(self, session_id: str, child: str, summary: str, keep: int) -> None:
        """Compress into a continuation, in the steps in which it does that."""
        found = self.condense(session_id, summary, keep)
        old = self.db.get_session(session_id)
        self.db.end_session(session_id, "compression")
        self.db.create_session(child, old["source"], parent_session_id=session_id)
        if old["title"]:
            self.db.set_session_title(child, self.db.get_next_title_in_lineage(old["title"]))
        self.db.replace_messages(child, found["messages"])

    def converse(self, session_id: str, seconds: float, pause: float) -> list[str]:
        """Say something for so long, questions that take a call each; return the contents."""
        said: list[str] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            number = len(said) // 4
            call = {"id": f"theirs_{number}", "type": "function",
                    "function": {"name": "look", "arguments": "{}"}}  # fmt: skip
            for role, columns in (
                ("user", {}),
                ("assistant", {"tool_calls": [call]}),
                ("tool", {"tool_call_id": call["id"], "tool_name": "look"}),
                ("assistant", {}),
            ):
                said.append(f"theirs {len(said)}.{_LONG}")
                self.db.append_message(session_id, role, said[-1], **columns)
                time.sleep(pause)
        return said


def _make_engine() -> Any:
    from agent.context_compressor import ContextCompressor  # noqa: PLC0415

    return ContextCompressor(model="none", config_context_length=200_000, quiet_mode=True)

"""Random operations in two equal homes: by Hermes in one, by our library in the other."""

from __future__ import annotations

import random

import pytest

from tests.interop.twins import NOW, Twins

STEPS = 60
WORDS = ("deploy", "数据库", "Миграция", "🚀 ship", "foo_bar.baz", "قاعدة", "zebra", "a" * 300)


class RandomHour:
    """Chooses the next operation from the state of our home, which equals that of Hermes."""

    def __init__(self, twins: Twins, seed: str) -> None:
        self.twins = twins
        self.chance = random.Random(seed)
        self.at = NOW
        self.sessions = ["cli_work", "compacted", "rewound", "chain_3", "telegram_1", "odd"]

    def step(self) -> str:
        """Run one operation in both homes and return its name."""
        verbs = [self.append] * 6 + [self.create, self.end, self.reopen, self.title, self.rewind]
        verbs += [self.replace, self.compact, self.archive, self.count, self.delete]
        verb = self.chance.choice(verbs)
        verb(self.chance.choice(self.sessions))
        return verb.__name__

    def message(self) -> dict[str, object]:
        """Return a random message."""
        self.at += 1
        text = " ".join(self.chance.choices(WORDS, k=3))
        parts = [{"type": "text", "text": text}]
        message = {"role": self.chance.choice(["user", "assistant", "tool"]), "timestamp": self.at}
        message["content"] = self.chance.choice([text, text, "", None, parts])
        if message["role"] == "assistant" and self.chance.random() < 0.5:
            message["tool_calls"] = [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}]
            message["reasoning"] = text
        if message["role"] == "tool":
            message |= {"tool_name": "ls", "tool_call_id": "c"}
        return message

    def append(self, session: str) -> None:
        """Append a message."""
        message = self.message()
        role = message.pop("role")
        content = message.pop("content")
        self.twins.both("append_message", session, role, content, **message)

    def create(self, parent: str) -> None:
        """Create a session, a branch or a delegate."""
        name = f"new_{self.at}_{self.chance.random()}"
        mark = self.chance.choice([None, {"_delegate_from": parent}, {"_branched_from": parent}])
        self.twins.both("create_session", name, "cli", parent_session_id=parent, model_config=mark)
        self.sessions.append(name)

    def end(self, session: str) -> None:
        """End a session."""
        reason = self.chance.choice(["compression", "cli_close", "agent_close", None])
        self.twins.both("end_session", session, reason)

    def reopen(self, session: str) -> None:
        """Reopen a session."""
        self.twins.both("reopen_session", session)

    def title(self, session: str) -> None:
        """Set a title, which may be taken."""
        self.twins.try_both("set_session_title", session, self.chance.choice(WORDS))

    def rewind(self, session: str) -> None:
        """Rewind, and sometimes restore."""
        users = [
            row["id"] for row in self.twins.ours.get_messages(session) if row["role"] == "user"
        ]
        if users:
            target = self.chance.choice(users)
            self.twins.both("rewind_to_message", session, target)
            if self.chance.random() < 0.5:
                self.twins.both("restore_rewound", session, target)

    def replace(self, session: str) -> None:
        """Replace all messages."""
        messages = [self.message() for _ in range(self.chance.randrange(4))]
        self.twins.both("replace_messages", session, messages)

    def compact(self, session: str) -> None:
        """Compact in place."""
        self.twins.both("archive_and_compact", session, [self.message(), self.message()])

    def archive(self, session: str) -> None:
        """Archive or unarchive a conversation."""
        quiet = self.chance.choice(["trunk", "tui_open", session])
        if (
            not self.twins.ours.list_children(quiet)
            and self.twins.ours.get_link_kind(quiet) is None
        ):
            self.twins.both("set_session_archived", quiet, archived=self.chance.random() < 0.5)

    def count(self, session: str) -> None:
        """Record the usage of a call."""
        tokens = {"input_tokens": self.chance.randrange(99), "api_call_count": 1}
        self.twins.both("update_token_counts", session, **tokens)

    def delete(self, session: str) -> None:
        """Delete a session, unless few remain."""
        if len(self.sessions) > 4:
            self.twins.both("delete_session", session)
            alive = self.twins.ours.get_session
            self.sessions = [one for one in self.sessions if alive(one)]


@pytest.mark.requirement("interop:hours")
@pytest.mark.parametrize("seed", range(3))
def test_random_hour_leaves_equal_homes(version, built, tmp_path, seed):
    twins = Twins(version, built(version), tmp_path)
    twins.theirs.sql("DELETE FROM table_of_the_future")
    twins.ours._write(lambda handle: handle.execute_update("DELETE FROM table_of_the_future"))
    try:
        hour = RandomHour(twins, f"{version} {seed}")
        done = [hour.step() for _ in range(STEPS)]
        assert len(set(done)) > 5
        twins.assert_equal()
    finally:
        twins.close()

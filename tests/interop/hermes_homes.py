"""A realistic and damaged home, made by the real `SessionDB` and `SessionStore`.

Runs under the Python of a hermes-agent. Features that a version does not have are omitted.
"""

from __future__ import annotations

import inspect
import json
import time
from pathlib import Path
from typing import Any

DAY = 86400.0
CALL = {"name": "terminal", "arguments": json.dumps({"command": "make deploy_all"})}
CALLS = [{"id": "call_1", "type": "function", "function": CALL}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SCRIPTS = (
    ("zh", "数据库架构的决定 我们用事件日志", "好的 事件日志已经建好"),
    ("ja", "データベースを移行してください", "移行が終わりました。東京リージョンです"),
    ("ko", "데이터베이스 마이그레이션 상태를 알려줘", "마이그레이션이 끝났습니다"),
    ("ar", "قاعدة البيانات جاهزة للنشر", "تم النشر بنجاح"),
    ("ru", "Проверь миграцию базы данных", "Миграция прошла успешно, ошибок нет"),
    ("emoji", "ship it 🚀🚀 café naïve Größe", "done 🎉 — ÅNGSTRÖM unit"),
)


def build(db: Any, home: Path, *, damaged: bool = True) -> None:
    """Fill the home."""
    for fill in (
        _add_terminal_sessions,
        _add_gateway_sessions,
        _add_continued_conversation,
        _add_delegates,
        _add_branches,
        _add_compacted_session,
        _add_rewound_session,
        _add_content_kinds,
        _add_scripts,
        _add_ghosts,
        _add_orphans,
        _add_titles,
        _add_token_counts,
    ):
        fill(db)
    if damaged:
        _add_damage(db)
    _add_routes(home)


def run(db: Any, statements: list[list[Any]]) -> list[list[Any]]:
    """Run `[sql, *values]` statements in one transaction of the connection, and return the rows."""
    connection = db._conn
    connection.execute("BEGIN IMMEDIATE")
    rows = [connection.execute(sql, values).fetchall() for sql, *values in statements]
    connection.execute("COMMIT")
    return rows


def session(db: Any, session_id: str, source: str = "cli", **columns: Any) -> str:
    """Create a session, and set columns that `create_session` of this version does not accept."""
    age = columns.pop("age", 0.0)
    known = inspect.signature(db._insert_session_row).parameters
    given = {name: value for name, value in columns.items() if name in known}
    db.create_session(session_id, source, **given)
    rest = {name: value for name, value in columns.items() if name not in known}
    rest |= {"started_at": time.time() - age} if age else {}
    have = {row[1] for row in db._conn.execute("PRAGMA table_info(sessions)")}
    for name in set(rest) & have:
        sql = f"UPDATE sessions SET {name} = ? WHERE id = ?"  # noqa: S608 -- a column it has
        run(db, [[sql, rest[name], session_id]])
    return session_id


def say(db: Any, session_id: str, *texts: Any, age: float = 0.0) -> list[int]:
    """Append messages of user and assistant in turn."""
    return [
        db.append_message(
            session_id,
            ("user", "assistant")[number % 2],
            text,
            timestamp=time.time() - age + number,
        )
        for number, text in enumerate(texts)
    ]


def end(db: Any, session_id: str, reason: str | None, age: float) -> None:
    """End a session at a time in the past."""
    db.end_session(session_id, reason)
    run(db, [["UPDATE sessions SET ended_at = ? WHERE id = ?", time.time() - age, session_id]])


def _add_terminal_sessions(db: Any) -> None:
    session(db, "cli_work", model="some-model", system_prompt="be brief", cwd="/srv/app", age=DAY)
    db.set_session_title("cli_work", "Deploy the app")
    db.append_message("cli_work", "system", "you are helpful")
    db.append_message("cli_work", "user", "please run the deploy for foo_bar.baz and a1b2-c3")
    reasons = {"reasoning": "first look", "reasoning_content": "", "finish_reason": "tool_calls"}
    details = {
        "reasoning_details": [{"type": "summary", "text": "look"}],
        "codex_reasoning_items": [{"id": "rs_1"}],
        "codex_message_items": [{"id": "msg_1"}],
    }
    db.append_message("cli_work", "assistant", "", tool_calls=CALLS, **reasons, **details)
    result = {"tool_call_id": "call_1", "tool_name": "terminal"}
    db.append_message("cli_work", "tool", '{"output": "deployed revision 4711"}', **result)
    db.append_message("cli_work", "assistant", "Deployed revision 4711.", token_count=12)
    session(db, "tui_open", "tui", age=3 * DAY)
    say(db, "tui_open", "what is left to do", "two tasks are left to do")
    session(db, "cron_job1_20250101", "cron", age=2 * DAY)
    say(db, "cron_job1_20250101", "nightly report", "all services are green")
    end(db, "cron_job1_20250101", "cron_complete", 2 * DAY - 60)
    session(db, "ended_for_nothing", age=DAY)
    say(db, "ended_for_nothing", "bye")
    db.end_session("ended_for_nothing", None)
    session(db, "put_away", age=30 * DAY)
    say(db, "put_away", "an old deploy", "it went well")
    db.set_session_archived("put_away", archived=True)
    session(db, "_underscore", age=DAY)
    say(db, "_underscore", "ids that begin with an underscore are real")


def _add_gateway_sessions(db: Any) -> None:
    for number, source in enumerate(("telegram", "discord", "slack", "whatsapp"), 1):
        key = f"agent:main:{source}:dm:{number}"
        chat = {"session_key": key, "chat_id": str(number), "chat_type": "dm"}
        name = session(db, f"{source}_1", source, user_id=f"u{number}", **chat, age=DAY * number)
        ids = say(db, name, f"hello from {source}", f"hello back to {source}")
        db.append_message(name, "user", "seen", platform_message_id=f"m{number}", observed=True)
        if hasattr(db, "record_gateway_session_peer"):
            db.record_gateway_session_peer(name, source=source, user_id=f"u{number}", **chat)
        assert ids


def _add_continued_conversation(db: Any) -> None:
    """Add a conversation with two continuations and a delegate from before the first of them."""
    chat = {"session_key": "agent:main:telegram:dm:77", "chat_id": "77", "chat_type": "dm"}
    session(db, "chain_1", "telegram", user_id="u77", **chat, age=9 * DAY)
    say(db, "chain_1", "plan the holiday", "where to", age=9 * DAY)
    db.set_session_title("chain_1", "Holiday")
    session(
        db,
        "chain_1_helper",
        "cli",
        parent_session_id="chain_1",
        age=8.5 * DAY,
        model_config={"_delegate_from": "chain_1"},
    )
    say(db, "chain_1_helper", "find a train", age=8.5 * DAY)
    end(db, "chain_1", "compression", 8.2 * DAY)
    session(db, "chain_2", "telegram", parent_session_id="chain_1", age=8 * DAY)
    say(db, "chain_2", "summary: the holiday is in Lisbon", "go on", age=8 * DAY)
    db.set_session_title("chain_2", "Holiday #2")
    end(db, "chain_2", "compression", 7.6 * DAY)
    session(db, "chain_3_stale", "telegram", parent_session_id="chain_2", age=7.5 * DAY)
    say(db, "chain_3_stale", "a sibling that was given up", age=7.5 * DAY)
    end(db, "chain_3_stale", "agent_close", 7.2 * DAY)
    session(db, "chain_3", "telegram", parent_session_id="chain_2", **chat, age=7 * DAY)
    say(db, "chain_3", "book the hotel in Lisbon", "booked", age=7 * DAY)
    db.set_session_title("chain_3", "Holiday #3")
    session(db, "no_child", "cli", age=6 * DAY)
    say(db, "no_child", "compressed, and the child was never stored", age=6 * DAY)
    end(db, "no_child", "compression", 6 * DAY - 60)


def _add_delegates(db: Any) -> None:
    session(db, "boss", "cli", age=5 * DAY)
    say(db, "boss", "delegate the research", age=5 * DAY)
    for name, parent in (("helper", "boss"), ("helper_of_helper", "helper")):
        session(
            db,
            name,
            "subagent",
            parent_session_id=parent,
            age=5 * DAY,
            model_config={"_delegate_from": parent},
        )
        say(db, name, f"research by {name}", "found it", age=5 * DAY)
    session(db, "a_tool", "tool", parent_session_id="boss", age=5 * DAY)
    say(db, "a_tool", "an inner call", age=5 * DAY)
    session(db, "of_unknown_kind", "cli", parent_session_id="boss", age=5 * DAY)
    say(db, "of_unknown_kind", "nobody knows why this has a parent", age=5 * DAY)


def _add_branches(db: Any) -> None:
    session(db, "trunk", "cli", age=4 * DAY)
    say(db, "trunk", "shall we use rust or go", "go", age=4 * DAY)
    session(
        db,
        "branch_marked",
        "cli",
        parent_session_id="trunk",
        age=3.9 * DAY,
        model_config={"_branched_from": "trunk"},
    )
    say(db, "branch_marked", "shall we use rust or go", "rust then", age=3.9 * DAY)
    session(db, "old_trunk", "cli", age=4 * DAY)
    say(db, "old_trunk", "tabs or spaces", age=4 * DAY)
    end(db, "old_trunk", "branched", 3.5 * DAY)
    session(db, "branch_legacy", "cli", parent_session_id="old_trunk", age=3 * DAY)
    say(db, "branch_legacy", "spaces", age=3 * DAY)


def _add_compacted_session(db: Any) -> None:
    session(db, "compacted", "discord", age=6 * DAY)
    ids = say(
        db,
        "compacted",
        "the zebra migration begins",
        "zebra step one",
        "zebra step two",
        "all zebra steps are done",
        age=6 * DAY,
    )
    if not hasattr(db, "archive_and_compact"):
        return
    kept = db.get_messages_as_conversation("compacted")[-1:]
    summary = {"role": "user", "content": "[CONTEXT COMPACTION] zebra is done"}
    db.archive_and_compact("compacted", [summary, *kept])
    say(db, "compacted", "what about the giraffe", "the giraffe is next")
    db.archive_and_compact("compacted", [{"role": "user", "content": "zebra, giraffe: done"}])
    db.append_message("compacted", "assistant", "anything else")
    session(db, "revived", "slack", age=6 * DAY)
    ids = say(db, "revived", "the okapi question", "the okapi answer", age=6 * DAY)
    db.archive_and_compact("revived", [{"role": "user", "content": "okapi summary"}])
    db.restore_rewound("revived", ids[0])


def _add_rewound_session(db: Any) -> None:
    session(db, "rewound", "slack", age=DAY)
    ids = say(
        db,
        "rewound",
        "keep this marmot",
        "kept",
        "take the marmot back",
        "sorry",
        "撤回这个数据库问题",
        "抱歉",
    )
    db.rewind_to_message("rewound", ids[2])
    db.append_message("rewound", "user", "another marmot instead")
    session(db, "restored", "slack", age=DAY)
    ids = say(db, "restored", "one lemur", "two lemurs", "three lemurs", "four lemurs")
    db.rewind_to_message("restored", ids[2])
    db.restore_rewound("restored", ids[2])


def _add_content_kinds(db: Any) -> None:
    """Add messages with every kind of content."""
    session(db, "parts", "whatsapp", age=2 * DAY)
    text = [{"type": "text", "text": "what is on this wombat photo"}, IMAGE]
    db.append_message("parts", "user", text)
    db.append_message("parts", "assistant", "a wombat")
    db.append_message("parts", "user", [{"type": "text", "text": "图片里有什么动物呢"}])
    db.append_message("parts", "user", {"type": "text", "text": "a mapping with a quokka"})
    session(db, "only_parts", "whatsapp", age=2 * DAY)
    db.append_message("only_parts", "user", text)
    session(db, "odd", "cli", age=2 * DAY)
    for content in (
        "",
        None,
        123,
        b"\x01\x02 bytes",
        "a\x00b",
        "lone \ud800 surrogate",
        "x" * 9000,
    ):
        try:
            db.append_message("odd", "user", content)
        except UnicodeEncodeError:
            assert not hasattr(db, "promote_to_session_reset")  # the versions that know no better
    db.append_message("odd", "session_meta", None)
    db.append_message("odd", "user", "an odd role follows", timestamp=1.0)
    db.append_message("odd", "narrator", "in the beginning")
    db.append_message("odd", "user", "  padded with spaces \n")
    same = time.time()
    for number in range(3):
        db.append_message("odd", "user", f"same moment {number}", timestamp=same)
    unreadable = db.append_message("odd", "assistant", "")
    broken = "UPDATE messages SET content = ?, tool_calls = '[broken' WHERE id = ?"
    run(db, [[broken, "\x00json:[broken", unreadable]])


def _add_scripts(db: Any) -> None:
    for name, asked, answered in SCRIPTS:
        session(db, f"script_{name}", "telegram", age=DAY)
        say(db, f"script_{name}", asked, answered)
        db.set_session_title(f"script_{name}", f"{asked[:8]} {name}")


def _add_ghosts(db: Any) -> None:
    for name, age, reason in (
        ("ghost", 2 * DAY, "tui_close"),
        ("ghost_parent", 2 * DAY, "compression"),
        ("ghost_fresh", 100.0, "tui_close"),
        ("ghost_titled", 2 * DAY, "tui_close"),
        ("ghost_open", 2 * DAY, None),
    ):
        session(db, name, "tui", age=age)
        if reason:
            end(db, name, reason, min(age, 1.5 * DAY))
    db.set_session_title("ghost_titled", "I have a name")
    session(db, "ghost_child", "tui", parent_session_id="ghost_parent", age=DAY)
    say(db, "ghost_child", "the child of a ghost")


def _add_orphans(db: Any) -> None:
    """Add continuations that never ran, and similar sessions."""
    old = 10 * DAY
    for name, age, columns in (
        ("orphan", old, {}),
        ("orphan_fresh", DAY, {}),
        ("orphan_called", old, {"api_call_count": 3}),
        ("orphan_unknown", old, {"api_call_count": None}),
        ("orphan_titled", old, {}),
        ("orphan_empty", old, {}),
        ("orphan_ended", old, {}),
    ):
        parent = session(db, f"{name}_parent", "cli", age=age + DAY)
        say(db, parent, f"before {name}", age=age + DAY)
        end(db, parent, "compression", age + 60)
        session(db, name, "cli", parent_session_id=parent, age=age, **columns)
        if name != "orphan_empty":
            say(db, name, f"after {name}", age=age)
    db.set_session_title("orphan_titled", "Named orphan")
    db.end_session("orphan_ended", "cli_close")
    session(db, "orphan_of_live_parent", "cli", parent_session_id="boss", age=old)
    say(db, "orphan_of_live_parent", "my parent lives", age=old)


def _add_titles(db: Any) -> None:
    for number, title in enumerate(
        (
            "Trip",
            "Trip #2",
            "Trip #7",
            "Trip (2)",
            "50% off",
            "50_ off",
            "Zero\u200bwidth  space",
            "👩\u200d👩\u200d👧 family",
            "Überschrift",
            "überschrift",
            "x" * 100,
        )
    ):
        session(db, f"titled_{number}", "cli", age=DAY * (20 - number))
        db.set_session_title(f"titled_{number}", title)


def _add_token_counts(db: Any) -> None:
    session(db, "counted", "cli", model="m1", age=DAY)
    route = {"billing_provider": "openrouter", "billing_base_url": "https://x.test"}
    db.update_token_counts(
        "counted", 100, 20, model="m1", api_call_count=1, estimated_cost_usd=0.25, **route
    )
    db.update_token_counts("counted", 50, 5, model="m2", cache_read_tokens=7, api_call_count=1)
    session(db, "counted_whole", "telegram", age=DAY)
    db.update_token_counts("counted_whole", 900, 90, model="m1", absolute=True, api_call_count=4)
    if hasattr(db, "record_auxiliary_usage"):
        db.record_auxiliary_usage("counted", "vision", model="eye", input_tokens=9)
    say(db, "counted", "how much was it", "a quarter")


def _add_damage(db: Any) -> None:
    session(db, "drifted", "cli", age=DAY)
    say(db, "drifted", "my counter is wrong", "so it is")
    session(db, "cycle_a", "cli", age=DAY)
    session(db, "cycle_b", "cli", parent_session_id="cycle_a", age=DAY)
    say(db, "cycle_a", "round", age=DAY)
    say(db, "cycle_b", "and round", age=DAY)
    session(db, "own_parent", "cli", age=DAY)
    say(db, "own_parent", "I am my own grandfather", age=DAY)
    for text in ("said twice", "said twice"):
        db.append_message("own_parent", "user", text)
    run(
        db,
        [
            ["UPDATE sessions SET message_count = 0 WHERE id = 'drifted'"],
            ["UPDATE sessions SET parent_session_id = 'cycle_b' WHERE id = 'cycle_a'"],
            ["UPDATE sessions SET parent_session_id = 'own_parent' WHERE id = 'own_parent'"],
            ["ALTER TABLE sessions ADD COLUMN of_the_future TEXT DEFAULT 'kept'"],
            ["ALTER TABLE messages ADD COLUMN of_the_future INTEGER DEFAULT 7"],
            ["CREATE TABLE table_of_the_future (id INTEGER PRIMARY KEY, session_id TEXT)"],
            ["INSERT INTO table_of_the_future VALUES (1, 'cli_work')"],
        ],
    )


def _add_routes(home: Path) -> None:
    """Let the real session store route three chats."""
    from gateway.config import GatewayConfig, Platform  # noqa: PLC0415 -- only after its home is set
    from gateway.session import SessionSource, SessionStore  # noqa: PLC0415

    store = SessionStore(home / "sessions", GatewayConfig())
    for platform, chat in ((Platform.TELEGRAM, "901"), (Platform.DISCORD, "902")):
        chat_type = "dm" if platform is Platform.TELEGRAM else "group"
        source = SessionSource(platform, chat, f"Chat {chat}", chat_type, "u9", "Somebody")
        entry = store.get_or_create_session(source)
        store._db.append_message(entry.session_id, "user", f"routed by the store to {chat}")
    store._db.close()

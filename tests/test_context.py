"""The current session: each turn sees its own, and so do the subprocesses that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import anyio
import pytest

from session_core import context
from session_core.chats import Platform
from session_core.context import (
    VARIABLE_NAMES,
    build_child_env,
    get_current_session_id,
    get_session_env,
    session_context,
    set_current_session_id,
)
from session_core.errors import InvalidInput

ID = "HERMES_SESSION_ID"


@pytest.fixture(autouse=True)
def _clear_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unset the variables of the current session, in this context and in the process."""
    for name in VARIABLE_NAMES.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(context._ProcessState, "has_contexts", False)
    token = context._variables.set({})
    yield
    context._variables.reset(token)


@pytest.mark.requirement("current:session")
def test_current_session_sets_context_and_environment() -> None:
    set_current_session_id("s1")
    assert (get_session_env(ID), os.environ[ID], get_current_session_id()) == ("s1", "s1", "s1")


def test_clearing_session_clears_context_and_environment() -> None:
    set_current_session_id("s1")
    set_current_session_id(None)
    assert (get_session_env(ID, "default"), os.environ.get(ID)) == ("", None)
    assert get_current_session_id() is None


@pytest.mark.requirement("current:session")
def test_unset_variable_falls_back_to_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SESSION_CHAT_ID", "42")
    assert get_session_env("HERMES_SESSION_CHAT_ID", "default") == "42"


def test_unset_variable_returns_default() -> None:
    assert get_session_env("HERMES_SESSION_CHAT_ID") == ""
    assert get_session_env("HERMES_SESSION_CHAT_ID", "default") == "default"


@pytest.mark.requirement("current:session")
def test_cleared_variable_ignores_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SESSION_CHAT_ID", "42")
    for cleared in ("", None):
        with session_context(chat_id=cleared):
            assert get_session_env("HERMES_SESSION_CHAT_ID", "default") == ""


def test_session_context_sets_and_restores_variables() -> None:
    with session_context(session_id="outer", platform=Platform.TELEGRAM, chat_id=42):
        with session_context(session_id="inner", HERMES_UI_SESSION_ID="tab"):
            inner = [
                get_session_env(VARIABLE_NAMES[name])
                for name in ("session_id", "platform", "chat_id")
            ]
            assert inner == ["inner", "telegram", "42"]
            assert get_session_env("HERMES_UI_SESSION_ID") == "tab"
            set_current_session_id("rotated")
            assert get_current_session_id() == "rotated"
        assert get_current_session_id() == "outer"
        assert get_session_env("HERMES_UI_SESSION_ID", "none") == "none"
    assert "HERMES_SESSION_ID" not in context._variables.get()


def test_session_context_restores_after_error() -> None:
    with pytest.raises(ZeroDivisionError), session_context(platform="cli"):
        _ = 1 / 0
    assert get_session_env("HERMES_SESSION_PLATFORM") == ""


def test_session_context_without_inherit_starts_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HERMES_SESSION_USER_ID", "of the process")
    with (
        session_context(session_id="a", thread_id="7"),
        session_context(inherit=False, session_id="b"),
    ):
        assert get_current_session_id() == "b"
        assert get_session_env("HERMES_SESSION_THREAD_ID", "default") == ""
        assert get_session_env("HERMES_SESSION_USER_ID", "default") == ""


def test_session_context_refuses_unknown_variable() -> None:
    with pytest.raises(InvalidInput, match="got 'chatid'"):
        session_context(session_id="s", chatid=1).__enter__()
    assert get_session_env(ID, "none") == "none"


def test_child_env_adds_context_to_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    before = dict(os.environ)
    with session_context(session_id="s1", platform="telegram", chat_id=""):
        env = build_child_env({"MORE": "1"})
    assert os.environ == before
    assert env == {
        **before,
        "HERMES_SESSION_ID": "s1",
        "HERMES_SESSION_PLATFORM": "telegram",
        "HERMES_SESSION_CHAT_ID": "",
        "MORE": "1",
    }


@pytest.mark.requirement("current:session")
def test_child_process_sees_session_of_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    set_current_session_id("of the process")
    with session_context(session_id="of the turn"):
        code = f"import os; print(os.environ[{ID!r}])"
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=build_child_env(),
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.stdout.strip() == "of the turn"


@pytest.mark.requirement("current:session")
@pytest.mark.parametrize(("name", "seen"), [("Ann\ud83d", "Ann?"), ("An\0n", "Ann"), ("Åñ", "Åñ")])
def test_child_env_cleans_invalid_characters(name: str, seen: str) -> None:
    code = "import os; print(ascii(os.environ['HERMES_SESSION_USER_NAME']))"
    with session_context(session_id="s1", user_name=name):
        child = [sys.executable, "-c", code]
        ran = subprocess.run(
            child, env=build_child_env(), capture_output=True, text=True, check=True
        )
    assert ran.stdout.strip() == ascii(seen)


@pytest.mark.requirement("current:session")
@pytest.mark.parametrize("session_id", ["a\0b", "a\ud83d", 5])
def test_unstorable_session_id_is_not_current(session_id: Any) -> None:
    set_current_session_id("s1")
    with pytest.raises(InvalidInput):
        set_current_session_id(session_id)
    assert (get_current_session_id(), os.environ[ID]) == ("s1", "s1")


def test_child_env_drops_stale_session() -> None:
    def turn() -> None:
        with session_context(platform="telegram"):
            set_current_session_id("of another turn")

    copy_context().run(turn)
    assert os.environ[ID] == "of another turn"
    assert ID not in build_child_env()


@pytest.mark.requirement("current:session")
def test_new_thread_ignores_stale_session() -> None:
    def turn() -> None:
        with session_context(platform="telegram"):
            set_current_session_id("of another turn")

    copy_context().run(turn)
    seen: list[str | None] = []

    def look() -> None:
        seen.extend([get_current_session_id(), get_session_env(ID, "none")])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [None, "none"]
    assert os.environ[ID] == "of another turn"


def test_program_without_contexts_passes_session_on() -> None:
    copy_context().run(set_current_session_id, "the one")
    assert build_child_env()[ID] == get_current_session_id() == "the one"


def test_inherited_environment_session_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ID, "given from outside")
    with session_context(platform="cli"):
        assert build_child_env()[ID] == "given from outside"


@pytest.mark.requirement("current:session")
def test_concurrent_threads_see_own_session() -> None:
    barrier = threading.Barrier(32)
    seen: dict[int, list[str]] = {}

    def turn(number: int) -> None:
        with session_context(session_id=f"s{number}", chat_id=number):
            barrier.wait()
            set_current_session_id(f"s{number} rotated")
            barrier.wait()
            seen[number] = [
                get_session_env(ID),
                build_child_env()[ID],
                get_session_env("HERMES_SESSION_CHAT_ID"),
            ]

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {
        number: [f"s{number} rotated", f"s{number} rotated", str(number)] for number in range(32)
    }


@pytest.mark.requirement("current:session")
@pytest.mark.anyio
async def test_concurrent_tasks_see_own_session() -> None:
    seen: dict[int, list[str | None]] = {}
    everybody = anyio.Event()
    begun = []

    async def turn(number: int) -> None:
        with session_context(session_id=f"s{number}"):
            set_current_session_id(f"s{number} rotated")
            begun.append(number)
            if len(begun) == 32:
                everybody.set()
            await everybody.wait()
            in_thread = await anyio.to_thread.run_sync(get_current_session_id)
            seen[number] = [get_current_session_id(), in_thread]

    async with anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(turn, number)
    assert seen == {number: [f"s{number} rotated"] * 2 for number in range(32)}

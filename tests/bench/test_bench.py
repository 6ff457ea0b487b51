"""The bench runs. No test asserts a speed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench import shapes
from tests.peers import ROOT

QUICK = shapes.HOME_SHAPES[True]


@pytest.mark.parametrize("shape", QUICK, ids=lambda shape: shape.name)
def test_same_seed_gives_same_home(shape):
    first, second = (list(shapes.HomeWriter(shape).list_sessions()) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("shape", QUICK, ids=lambda shape: shape.name)
def test_planted_text_stands_in_single_session(shape):
    home = shapes.HomeWriter(shape)
    texts = {
        session.row["id"]: "\n".join(message["content"] for message in session.messages)
        for session in home.list_sessions()
    }
    planted = home.plants.tokens + home.plants.cjk
    assert len(planted) == 40
    for text, inside in planted:
        assert [key for key, content in texts.items() if text in content] == [inside]


def test_skewed_home_has_longest_session_newest():
    home = shapes.HomeWriter(QUICK[1])
    last = {
        session.row["id"]: max(message["timestamp"] for message in session.messages)
        for session in home.list_sessions()
        if session.messages
    }
    assert max(last, key=last.__getitem__) == shapes.make_session_id(home.longest)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quick_bench_prints_every_row(tmp_path):
    command = [sys.executable, "-m", "tests.bench", "--quick", "--home", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for what in (
        "list newest 20, warm",
        "list newest 20, cold",
        "read page 1 of 3,000 messages",
        "search a rare word",
        "planted exact tokens found",
        "planted CJK pairs found",
        "plain questions, hit@5",
        "append, single",
        "append, 8 writers",
        "lag of the loop, lock held",
        "database size by content",
        "change a route of 1,000",
        "change a route, 1,000 by 100",
        "facts kept of",
        "other formats",
        "plan 2,000 messages",
        "health of 600 sessions",
        "prune 120 sessions",
        "lost of what Hermes wrote meanwhile",
        "start to the first answer",
        "memory after the first call",
        "list of tools, tokens",
        "wire: list newest 20",
        "wire: read newest page of 3,000",
        "wire: search a rare word",
        "wire: a commit until it is heard",
        "transcripts: first list without an index",
        "wire, agentsview: common word",
    ):
        assert what in result.stdout


def test_unknown_bench_row_is_refused():
    command = [sys.executable, "-m", "tests.bench", "--rows", "speed"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "no row speed" in result.stderr

"""The sets of plain questions: each has an answer that nothing else has."""

from __future__ import annotations

import pytest

from tests.bench.plain_questions.questions import load_questions, make_conversations

SETS = ("home", "agents")


@pytest.mark.parametrize("name", SETS)
def test_set_has_forty_answers(name):
    questions = load_questions(name)
    assert len(questions) == 40
    for question in questions:
        assert any(question.answer in text for _, text in question.turns), question.text
        assert question.decoys
        assert not any(question.answer in text for text in question.decoys)


def test_agents_answer_ten_questions_each():
    agents = [question.agent for question in load_questions("agents")]
    assert {agent: agents.count(agent) for agent in agents} == dict.fromkeys(
        ("claude-code", "codex", "gemini", "opencode"), 10
    )


@pytest.mark.parametrize("name", SETS)
def test_questions_are_answered_once(name):
    questions = load_questions(name)
    conversations = make_conversations(questions, 3000)
    assert sorted(item.question for item in conversations if item.question is not None) == list(
        range(40)
    )
    for question in questions:
        texts = [text for item in conversations for _, text in item.turns]
        assert sum(question.answer in text for text in texts) == 1, question.answer

"""The source of a plan's summary, and redaction of extractive summaries."""

from __future__ import annotations

import pytest

from session_core import AsyncCompressor, InvalidInput
from session_core.compression import NotCompressed
from tests.compression.homes import LAST, Chat, append_more

SECRET = "Zx9Qw3Rt7Yp1"


def test_summary_plan_requires_summary(chat: Chat) -> None:
    compressor, before = chat.compressor(), chat.texts()
    plan = compressor.plan(chat.session_id, keep_last=LAST, method="summary")
    for refuse in (compressor.check, compressor.apply):
        with pytest.raises(InvalidInput, match="waits for a summary that you write"):
            refuse(plan.plan)
    assert chat.texts() == before
    assert compressor.apply(plan.plan, "Ports were decided.").rows


def test_extractive_plan_refuses_summary(chat: Chat) -> None:
    compressor = chat.compressor()
    plan = compressor.plan(chat.session_id, keep_last=LAST, method="extractive")
    with pytest.raises(InvalidInput, match="extractive summary"):
        compressor.apply(plan.plan, "Ports were decided.")
    result = compressor.apply(plan.plan)
    compressor.check(plan.plan, "what a finished plan is given does not matter")
    assert compressor.apply(plan.plan, "nor here") == result


@pytest.mark.parametrize("summary", [None, "Ports were decided."])
def test_plan_without_method_accepts_both(chat: Chat, summary: str | None) -> None:
    compressor = chat.compressor()
    plan = compressor.plan(chat.session_id, keep_last=LAST)
    assert compressor.apply(plan.plan, summary).rows


def test_unknown_method_error_lists_methods(chat: Chat) -> None:
    with pytest.raises(InvalidInput, match="one of summary, extractive, got 'model'"):
        chat.compressor().plan(chat.session_id, method="model")  # type: ignore[arg-type]


def test_stop_before_commit_keeps_plan_open(
    chat: Chat,
) -> None:
    compressor, before = chat.compressor(), chat.whole()
    plan = compressor.plan(chat.session_id, keep_last=LAST)
    with pytest.raises(NotCompressed, match="was stopped; apply it again") as stopped:
        compressor.apply(plan.plan, stop=lambda: True)
    assert stopped.value.code == "stopped"
    assert chat.whole() == before
    assert compressor.apply(plan.plan, stop=lambda: False).rows


def test_cleaned_text_is_absent_from_summary(chat: Chat) -> None:
    for number in range(10):
        chat.say(f"ticket XY-{number} uses {SECRET}{number} on port {7000 + number}")
    append_more(chat)
    append_more(chat)
    seen: list[int] = []

    def clean(messages):
        seen.append(len(messages))
        return lambda text: text.replace(SECRET, "it")

    compressor = chat.compressor(clean=clean)
    plan = compressor.plan(chat.session_id, keep_last=LAST, method="extractive")
    assert SECRET in str(chat.texts())
    assert SECRET not in str(plan.brief)
    assert plan.brief.must_survive
    result = compressor.apply(plan.plan)
    assert SECRET not in str(chat.texts(result.session_id))
    assert set(seen) == {plan.brief.messages}


def test_summary_without_cleaner_is_verbatim(chat: Chat) -> None:
    chat.say(f"we decided to use port 7001 and ticket XY-{SECRET}")
    append_more(chat)
    append_more(chat)
    compressor = chat.compressor()
    plan = compressor.plan(chat.session_id, keep_last=LAST)
    result = compressor.apply(plan.plan)
    assert SECRET in str(chat.texts(result.session_id))


@pytest.mark.anyio
async def test_async_compressor_checks_plan(chat: Chat) -> None:
    compressor = AsyncCompressor(chat.compressor())
    plan = await compressor.plan(chat.session_id, keep_last=LAST, method="summary")
    with pytest.raises(InvalidInput):
        await compressor.check(plan.plan)

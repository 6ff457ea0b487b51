"""By whom the summary of a plan is written, and what is not to be said again in one of ours."""

from __future__ import annotations

import pytest

from session_core import AsyncCompressor, InvalidInput, NotCompressed
from tests.compression.homes import LAST, Chat, say_more

SECRET = "Zx9Qw3Rt7Yp1"


def test_summary_plan_requires_summary(chat: Chat) -> None:
    compressor, before = chat.compressor(), chat.texts()
    planned = compressor.plan(chat.session_id, keep_last=LAST, method="summary")
    for refuse in (compressor.check, compressor.apply):
        with pytest.raises(InvalidInput, match="waits for a summary that you write"):
            refuse(planned.plan)
    assert chat.texts() == before
    assert compressor.apply(planned.plan, "Ports were decided.").rows


def test_extractive_plan_refuses_summary(chat: Chat) -> None:
    compressor = chat.compressor()
    planned = compressor.plan(chat.session_id, keep_last=LAST, method="extractive")
    with pytest.raises(InvalidInput, match="extractive summary"):
        compressor.apply(planned.plan, "Ports were decided.")
    done = compressor.apply(planned.plan)
    compressor.check(planned.plan, "what a finished plan is given does not matter")
    assert compressor.apply(planned.plan, "nor here") == done


@pytest.mark.parametrize("summary", [None, "Ports were decided."])
def test_plan_without_method_accepts_both(chat: Chat, summary: str | None) -> None:
    compressor = chat.compressor()
    planned = compressor.plan(chat.session_id, keep_last=LAST)
    assert compressor.apply(planned.plan, summary).rows


def test_unknown_method_error_lists_methods(chat: Chat) -> None:
    with pytest.raises(InvalidInput, match="one of summary, extractive, got 'model'"):
        chat.compressor().plan(chat.session_id, method="model")  # type: ignore[arg-type]


def test_stop_before_commit_keeps_plan_open(
    chat: Chat,
) -> None:
    compressor, before = chat.compressor(), chat.whole()
    planned = compressor.plan(chat.session_id, keep_last=LAST)
    with pytest.raises(NotCompressed, match="was stopped; apply it again") as stopped:
        compressor.apply(planned.plan, stop=lambda: True)
    assert stopped.value.code == "stopped"
    assert chat.whole() == before
    assert compressor.apply(planned.plan, stop=lambda: False).rows


def test_cleaned_text_is_absent_from_summary(chat: Chat) -> None:
    for number in range(10):
        chat.say(f"ticket XY-{number} uses {SECRET}{number} on port {7000 + number}")
    say_more(chat)
    say_more(chat)
    seen: list[int] = []

    def clean(messages):
        seen.append(len(messages))
        return lambda text: text.replace(SECRET, "it")

    compressor = chat.compressor(clean=clean)
    planned = compressor.plan(chat.session_id, keep_last=LAST, method="extractive")
    assert SECRET in str(chat.texts())
    assert SECRET not in str(planned.brief)
    assert planned.brief.must_survive
    done = compressor.apply(planned.plan)
    assert SECRET not in str(chat.texts(done.session_id))
    assert set(seen) == {planned.brief.messages}


def test_summary_without_cleaner_is_verbatim(chat: Chat) -> None:
    chat.say(f"we decided to use port 7001 and ticket XY-{SECRET}")
    say_more(chat)
    say_more(chat)
    compressor = chat.compressor()
    planned = compressor.plan(chat.session_id, keep_last=LAST)
    done = compressor.apply(planned.plan)
    assert SECRET in str(chat.texts(done.session_id))


@pytest.mark.anyio
async def test_async_compressor_checks_plan(chat: Chat) -> None:
    compressor = AsyncCompressor(chat.compressor())
    planned = await compressor.plan(chat.session_id, keep_last=LAST, method="summary")
    with pytest.raises(InvalidInput):
        await compressor.check(planned.plan)

"""The retention report of a compression, and the facts that a brief lists."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from session_core.compression import retention, summary_message
from session_core.compression.extractive import passages, scoring
from session_core.compression.retention import RetentionReport


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_distinct_facts_count_once_per_kind() -> None:
    messages = [user("see OPS-1 and OPS-2"), user("OPS-1 is in /etc/relay.conf")]
    assert retention.measure_retention(messages, "OPS-1 is done") == RetentionReport(
        3, 1, {"path": (1, 0), "identifier": (2, 1)}
    )


def test_fact_in_remaining_messages_is_kept() -> None:
    stays: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "OPS-1"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "OPS-2"},
    ]
    assert retention.measure_retention([user("OPS-1 OPS-2 OPS-3")], "", stays).kept == 2


def test_part_of_longer_name_is_lost() -> None:
    assert retention.measure_retention([user("see OPS-1")], "OPS-12 and DEVOPS-1").kept == 0
    assert retention.measure_retention([user("see OPS-1")], "OPS-12, (OPS-1)").kept == 1


def test_unspaced_script_facts_are_found() -> None:
    messages = [user("我们决定采用v2.1。")]
    assert retention.measure_retention(messages, "然后我们决定采用v2.1。好").by_kind == {
        "decision": (1, 1),
        "identifier": (1, 1),
    }


def test_paraphrased_fact_is_lost() -> None:
    messages = [user("We decided to keep the relay.")]
    assert retention.measure_retention(
        messages, "It was decided that the relay stays."
    ).by_kind == {"decision": (1, 0)}


def select_facts(messages: list[dict[str, Any]], limit: int) -> tuple[str, ...]:
    return scoring.select_best_facts(
        scoring.score_passages(passages.read_passages(messages)), limit
    )


def test_empty_range_has_no_facts() -> None:
    assert retention.measure_retention([], "some text OPS-1") == RetentionReport(0, 0, {})


def test_retention_report_round_trips_through_json() -> None:
    report = retention.measure_retention([user("see OPS-1")], "OPS-1")
    assert RetentionReport.from_json(json.loads(json.dumps(asdict(report)))) == report


def test_earlier_summary_facts_are_counted() -> None:
    messages = [
        *summary_message.build_messages("- see OPS-1\n- see OPS-2", None, "user"),
        user("OPS-3"),
    ]
    assert retention.measure_retention(messages, "OPS-2").by_kind == {"identifier": (3, 1)}
    assert select_facts(messages, 1) == ("OPS-1",)


def test_best_facts_must_survive() -> None:
    noise = "\n".join(f"src/a/b{number}.py" for number in range(50))
    messages = [
        {"role": "tool", "tool_call_id": "a", "content": noise},
        user("We decided to keep the relay. It lives in /opt/relay/main.toml."),
    ]
    assert select_facts(messages, 2) == (
        "We decided to keep the relay.",
        "/opt/relay/main.toml",
    )
    assert len(select_facts(messages, 5)) == 5
    assert select_facts(messages, 0) == ()

"""The retention report of a compression, and the statements that a brief lists."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from session_core.compression import retention, summary_message
from session_core.compression.extractive import statements, summarize
from session_core.compression.retention import RetentionReport


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_statements_count_once_per_kind() -> None:
    messages = [
        user("We decided to keep the relay in Ravenna."),
        user("We decided to keep the relay in Ravenna."),
        user("Never store card numbers."),
        assistant("Sure, let me look."),
    ]
    report = retention.measure_retention(messages, "Never store card numbers.")
    assert report == RetentionReport(2, 1, {"decision": (1, 0), "rule": (1, 1)})


def test_statement_in_remaining_messages_is_kept() -> None:
    stays = [{"role": "tool", "tool_call_id": "a", "content": "Never store card numbers."}]
    assert retention.measure_retention([user("Never store card numbers.")], "", stays).kept == 1


def test_statement_without_its_number_is_lost() -> None:
    messages = [user("We decided on a limit of 250 rows.")]
    assert retention.measure_retention(messages, "We decided on a limit of 400 rows.").kept == 0
    assert retention.measure_retention(messages, "Decided: a limit of 250 rows").kept == 1


def test_unspaced_script_statements_are_found() -> None:
    messages = [user("我们决定采用v2.1。")]
    report = retention.measure_retention(messages, "然后我们决定采用v2.1。好")
    assert report.by_kind == {"decision": (1, 1)}


def test_superseded_and_done_statements_are_not_counted() -> None:
    messages = [
        user("The door code of the cellar is 4711."),
        assistant("We still need to renew the certificate of the relay."),
        user("Correction: the door code of the cellar is 5822."),
        assistant("The certificate of the relay is renewed."),
    ]
    assert retention.measure_retention(messages, "").by_kind == {"changed": (1, 0), "done": (1, 0)}


def test_statements_lost_earlier_are_counted() -> None:
    text = "9 statements so far\nDecided:\nWe keep the relay in Ravenna."
    messages = [*summary_message.build_messages(text, None, "assistant"), user("Never use FTP.")]
    report = retention.measure_retention(messages, "We keep the relay in Ravenna.")
    assert report == RetentionReport(10, 1, {"decision": (1, 1), "rule": (1, 0)})


def test_empty_range_has_no_statements() -> None:
    assert retention.measure_retention([], "some text OPS-1") == RetentionReport(0, 0, {})


def test_retention_report_round_trips_through_json() -> None:
    report = retention.measure_retention([user("Never use FTP.")], "Never use FTP.")
    assert RetentionReport.from_json(json.loads(json.dumps(asdict(report)))) == report


def test_essential_statements_are_those_of_the_digest() -> None:
    noise = "\n".join(f"src/a/b{number}.py" for number in range(50))
    messages = [
        {"role": "tool", "tool_call_id": "a", "content": noise},
        user("We decided to keep the relay in Ravenna. It lives in /opt/relay/main.toml."),
    ]
    found = statements.read_statements(messages)
    chosen = summarize.choose_items(found, 400)
    assert summarize.list_essential_texts(chosen) == [
        "We decided to keep the relay in Ravenna.",
        "It lives in /opt/relay/main.toml.",
    ]

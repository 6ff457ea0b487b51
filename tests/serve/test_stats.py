"""`sessions_stats`: the report, its counts and its findings."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("serving:stats")
async def test_stats_report_has_contract_keys(call, key, home_path):
    report = await call("sessions_stats")
    assert list(report) == [
        "home",
        "stores",
        "sessions",
        "messages",
        "size",
        "growth_per_week",
        "tokens",
        "cost",
        "findings",
        "sqlite",
        "gateway_live",
        "estimated",
    ]
    assert list(report["sessions"]) == ["total", "open", "ended", "archived", "by_source"]
    assert list(report["size"]) == ["db", "wal", "index", "free", "trash"]
    assert (report["home"], report["messages"]) == (str(home_path), 1)
    assert report["sessions"]["by_source"]["telegram"] == 1


@pytest.mark.requirement("serving:stats")
async def test_stats_finding_names_repair_call(call, db):
    db.append_message("old", "user", "x", timestamp=1.6e9, create={"started_at": 1.6e9})
    db.end_session("old", "user_exit")
    findings = {finding["code"]: finding for finding in (await call("sessions_stats"))["findings"]}
    assert findings["old_sessions"]["tool"] == "sessions_prune(what='sessions')"


@pytest.mark.requirement("serving:stats")
async def test_stats_report_counts_sessions(call, db):
    for name in ("open", "ended", "archived"):
        db.append_message(name, "user", "hello", create={"source": "cli"})
        db.append_message(name, "assistant", "hi")
    db.update_token_counts("open", input_tokens=700, output_tokens=30, estimated_cost_usd=0.25)
    db.update_token_counts("ended", input_tokens=300, output_tokens=12, estimated_cost_usd=0.5)
    db.end_session("ended", "user_exit")
    db.set_session_archived("archived", archived=True)
    db.archive_and_compact("open", [{"role": "user", "content": "[summary]"}])
    report = await call("sessions_stats")
    counts = {"total": 3, "open": 1, "ended": 1, "archived": 1, "by_source": {"cli": 3}}
    assert report["sessions"] == counts
    assert report["messages"] == sum(db.message_count(n) for n in ("open", "ended", "archived"))
    assert {"input": 1000, "output": 42}.items() <= report["tokens"].items()
    assert report["cost"] == 0.75
    assert report["growth_per_week"] > 0
    assert report["size"]["db"] > 0
    assert report["gateway_live"] is False
    assert report["sqlite"].startswith("SQLite 3.")
    for finding in report["findings"]:
        assert list(finding) == ["code", "count", "bytes", "what", "tool"]

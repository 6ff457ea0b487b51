"""The home that the bench fills by COPY is one that the engine could have filled."""

from __future__ import annotations

from tests.bench import postgres_scale
from tests.bench.postgres_scale import LARGEST, RARE_WORD, Scale


def test_copied_home_has_right_counters() -> None:
    scale = Scale(600, 40)
    with postgres_scale.build_home(scale) as (db, _):
        sessions = db.find_sessions(postgres_scale.SessionFilter())
        assert len(sessions) == 40
        assert sum(db.summarize_session(one).messages for one in sessions) == 600
        assert db.get_revision(LARGEST).last_id == db.read_window(LARGEST).messages[-1]["id"]
        assert len(db.search(RARE_WORD, per="message", limit=50).hits) == 20
        added = db.append_message(LARGEST, "user", "one more")
        assert added == 601
        assert db.search("one more").hits[0].message_id == added

"""One answer shows one moment of the home, also if another process commits meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.tool_dispatcher import bind_call
from mcp_serve.tool_list import load_specs

APPEND = """
import sys
from session_core import SessionDB
with SessionDB(sys.argv[1]) as db:
    db.append_message("s1", "user", "from another process")
    db.set_session_title("s1", "Later")
"""


@pytest.mark.requirement("serving:snapshot")
def test_answer_shows_one_moment(db, home_path, monkeypatch):
    for number in range(3):
        db.append_message("s1", "user", f"line {number}", create={"source": "cli"})
    served = ServedStores(ServerOptions(home=str(home_path)))
    home = served.get_home()
    summarize = home.db.summarize_session

    def summarize_then_append(session_id):
        summary = summarize(session_id)
        # Between two parts of the answer, another process commits.
        subprocess.run([sys.executable, "-c", APPEND, str(home.db_path)], check=True)
        return summary

    monkeypatch.setattr(home.db, "summarize_session", summarize_then_append)
    (spec,) = (spec for spec in load_specs() if spec.name == "sessions_read")
    arguments = dict(spec.arguments.read({"session": "s1"}))
    read = bind_call(spec, arguments, served)
    for count, title in ((3, None), (4, "Later")):
        answer = read()
        assert (answer["session"]["messages"], answer["session"]["title"]) == (count, title)
        assert len(answer["messages"]) == count
    served.close()

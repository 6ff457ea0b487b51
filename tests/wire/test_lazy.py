"""Before the first answer only the SDK and a few small modules of ours are loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from session_core import SessionDB

LOADED = """
import json, sys
from mcp.server.mcpserver import MCPServer
MCPServer("bare")
import pydantic
bare = {name.split(".")[0] for name in sys.modules}
from mcp_serve.stores.stores import ServerOptions, ServedStores
from mcp_serve import server
server.create_server(ServedStores(ServerOptions(home=sys.argv[1])))
ours = [name for name in sys.modules if name.split(".")[0] in ("mcp_serve", "session_core")]
theirs = {name.split(".")[0] for name in sys.modules} - bare - {"mcp_serve", "session_core"}
print(json.dumps([sorted(ours), sorted(theirs)]))
"""

READ = """
import json, sys, anyio
from mcp_serve.tool_dispatcher import ToolDispatcher
from mcp_serve.stores.stores import ServerOptions, ServedStores
from mcp_serve.tool_list import load_spec
caller = ToolDispatcher(ServedStores(ServerOptions(home=sys.argv[1])))
async def call(name, **given):
    return await caller.call_tool(load_spec(name), given)
async def read():
    (first, *_) = (await call("sessions_list"))["sessions"]
    unused = ("session_core.ledger.types", "session_core.state.sqlite.search.search")
    assert not {*unused, "session_core.state.merged_search"} & set(sys.modules)
    await call("sessions_read", session=first["id"])
    await call("sessions_search", query="hello")
anyio.run(read)
parts = ("compression", "maintenance", "lifecycle", "hooks", "routing")
ours = [name for name in sys.modules if name.startswith("session_core.")]
print(json.dumps(sorted(name for name in ours if name.split(".")[1] in parts)))
"""


VERBS = """
import sys
from mcp_serve.cli.main import main
session, *verbs = sys.argv[2:]
for verb in verbs:
    words = verb.split() + ([session] if verb == "show" else [])
    assert main(["--home", sys.argv[1], *words]) == 0, verb
    assert not {"mcp", "mcp_types"} & set(sys.modules), verb
"""


@pytest.mark.requirement("wire:start")
def test_startup_loads_few_modules(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    ours, theirs = json.loads(result.stdout)
    assert ours == [
        "mcp_serve",
        "mcp_serve.features",
        "mcp_serve.features.subscriptions",
        "mcp_serve.sdk",
        "mcp_serve.sdk.extensions",
        "mcp_serve.sdk.factory",
        "mcp_serve.sdk.lazy",
        "mcp_serve.sdk.private",
        "mcp_serve.sdk.wire_messages",
        "mcp_serve.server",
        "mcp_serve.stores",
        "mcp_serve.stores.stores",
        "session_core",
        "session_core._lazy",
        "session_core._version",
        "session_core.errors",
        "session_core.home",
        "session_core.transcripts",
        "session_core.transcripts.places",
    ]
    assert theirs == []


@pytest.mark.requirement("wire:start")
def test_reading_loads_no_maintenance_modules(served_home):
    result = subprocess.run(
        [sys.executable, "-c", READ, str(served_home)], capture_output=True, text=True, check=True
    )
    assert json.loads(result.stdout) == []


@pytest.mark.requirement("wire:start")
def test_help_loads_no_sdk():
    text = "import sys; from mcp_serve.cli import main; print('mcp' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


@pytest.mark.requirement("wire:start")
def test_serve_options_load_no_database():
    text = (
        "import sys; from mcp_serve.cli import main; main.build_parser(['serve']); "
        "print({'sqlite3', 'session_core.types', 'pydantic'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    assert result.stdout == "set()\n"


@pytest.mark.requirement("wire:start")
def test_verbs_load_no_sdk(served_home):
    with SessionDB(served_home / "state.db", read_only=True) as db:
        (first, *_) = db.list_sessions().items
    reading = ("list", "show", "search hello", "routes", "stats", "log", "trash list", "restore")
    changing = ("prune --plan-only", "finalize abandoned --plan-only")
    arguments = [str(served_home), first.id, *reading, *changing]
    result = subprocess.run(
        [sys.executable, "-c", VERBS, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr

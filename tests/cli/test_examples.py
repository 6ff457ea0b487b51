"""Every example of `--help` and of the README runs in a shell with a sample home.

An example is indented in the help of its verb, with its effect after two spaces. Its objects are in
the home of `tests/readme/home.py`, or are made just before it runs.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import uuid
from importlib import import_module
from pathlib import Path

import pytest

from mcp_serve.cli import main
from mcp_serve.cli.command_errors import DECLINED, DONE, INTERRUPTED
from session_core import open_home
from tests import postgres_server
from tests.docs.pages import PAGES, find_code_blocks
from tests.homes import add_message, connect
from tests.postgres_home import get_home_address
from tests.readme import home
from tests.readme.parts import README
from tests.serve.test_transcripts import write_codex
from tests.thorough import take_share
from tests.transcripts.trees import ClaudeTree

CONTINUOUS_COMMANDS = ("serve --http", "watch")
"""Examples that run until they are ended; all others exit by themselves without a terminal."""

PLANNED = {"compress": f"{home.LEDGER} --method summary"}
"""What a verb is asked to plan where an example has the handle of a plan: else nothing more."""

FILES = {
    "mine.md": "The schema of the ledger changes in two steps: currency nullable, then NOT NULL.",
    "summary.md": "The ledger gets a currency in two steps, nullable first.",
}
"""Files that examples read."""


def _find_examples(text):
    """Return the commands of the examples in a text, without their descriptions."""
    lines = re.findall(r"^  (\S.*)$", text or "", re.MULTILINE)
    commands = (re.split(r"\s{2,}", line)[0] for line in lines)
    return [command for command in commands if re.search(r"\bmcp-sessions ", command)]


def _find_page_examples():
    """Return the commands of the `bash` blocks in the README and in `docs/`."""
    lines = (
        line
        for page in (README, *PAGES)
        for text in find_code_blocks(page, "bash")
        for line in text.splitlines()
    )
    return [re.split(r"\s{2,}#", line)[0] for line in lines]


def _find_verb_examples(verb):
    return _find_examples(getattr(import_module(main.VERBS[verb][0]), "EXAMPLES", None))


EXAMPLES = sorted(
    {
        *_find_examples(main._EXAMPLES),
        *_find_page_examples(),
        *(one for v in main.VERBS for one in _find_verb_examples(v)),
    }
)


@pytest.fixture(name="person")
def _person(tmp_path, forks):
    """A user with a Hermes home, a project and the command on the path."""
    user = tmp_path / "person"
    home.build_home(user / ".hermes")
    (user / "shop").mkdir()
    path = f"{forks.command.parent}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(user), "PATH": path, "PYTHONIOENCODING": "utf-8", "TMPDIR": str(tmp_path)}


@pytest.fixture(name="shell")
def _shell(person):
    def shell(line, **more):
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"} | more
        command = ["bash", "-o", "pipefail", "-c", line]
        return subprocess.Popen(
            command, cwd=person["HOME"], env=person, start_new_session=True, **given
        )

    return shell


@pytest.fixture(name="answer")
def _answer(forks, person):
    """Return the JSON answer of a command."""

    def answer(line):
        _, *words = shlex.split(line)
        result = forks.run([*words, "--json"], person, person["HOME"])
        assert result.code in (DONE, DECLINED), result.err
        return json.loads(result.out)

    return answer


def _prepare_example(line, person, answer):
    """Create the plans and batches that an example names, and return it with their handles."""
    folder = Path(person["HOME"])
    for name, text in FILES.items():
        if name in line:
            (folder / name).write_text(text)
    for written in re.findall(r"> *(\S+)", line):
        Path(written.replace("~", person["HOME"])).parent.mkdir(parents=True, exist_ok=True)
    if " keep forget codex" in line:
        write_codex(folder, "019a0000-0000-7000-8000-000000000001", "rename the ledger table")
    if "0190a3f2" in line:
        ClaudeTree(folder).write("0190a3f2-1111-4222-8333-444455556666", ["which database"])
    if "postgresql://" in line:
        line = _replace_address(line, folder)
    if " import " in line:
        answer("mcp-sessions export --out sessions.jsonl")
    verb = line.split()[1]
    if re.search(r"--plan p-\w+", line):
        plan = answer(f"mcp-sessions {verb} {PLANNED.get(verb, '')} --plan-only")["plan"]
        line = re.sub(r"(?<=--plan )p-\w+", plan, line)
    if re.search(r"\bb-\w+", line):
        batch = answer(f"mcp-sessions edit {home.LEDGER} --title Another --yes")["batch"]
        line = re.sub(r"\bb-\w+", batch, line)
    return line


def _replace_address(line, folder):
    """Return an example with the address of a home of this run, or of a new schema to migrate."""
    address = get_home_address(folder)
    with open_home(address) as shared:
        shared.db.append_message("shared", "user", "hello", create={"source": "cli"})
    if " migrate " in line:
        address = f"{postgres_server.get_owner_address()}&schema=t{uuid.uuid4().hex[:12]}"
    return re.sub(r"'postgresql://[^']*'", shlex.quote(address), line)


def _remove_missing_tools(line):
    """Drop a pipe into a program that is not installed."""
    first, _, rest = line.partition(" | ")
    return line if rest and shutil.which(rest.split()[0]) else first


def _is_continuous(line):
    return any(f"mcp-sessions {words}" in line for words in CONTINUOUS_COMMANDS)


@pytest.mark.requirement("project:examples")
@pytest.mark.parametrize(
    "line", take_share([one for one in EXAMPLES if not _is_continuous(one)], 3)
)
def test_example_runs_as_described(line, person, shell, answer):
    ready = _remove_missing_tools(_prepare_example(line, person, answer))
    process = shell(ready, stdin=subprocess.DEVNULL)
    said, error = process.communicate(timeout=100)
    # No person is there to confirm: a verb that asks has shown its plan, and stops.
    expected = (DONE,) if "--yes" in line or "--plan-only" in line else (DONE, DECLINED)
    assert process.returncode in expected, said + error
    assert "Traceback" not in error


@pytest.mark.requirement("project:examples")
@pytest.mark.parametrize("line", [one for one in EXAMPLES if _is_continuous(one)])
def test_continuous_example_prints_and_stops(line, person, shell):
    database = Path(person["HOME"], ".hermes", "state.db")
    both = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = shell(f"exec {line.split(' | ')[0]}", **both)
    try:
        while not select.select([process.stdout], [], [], 0.2)[0]:
            with connect(database) as connection:  # something to watch
                add_message(connection, home.LEDGER)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (DONE, INTERRUPTED, -signal.SIGINT)


@pytest.mark.requirement("project:examples")
@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_has_example(verb):
    assert [one for one in EXAMPLES if re.search(rf"mcp-sessions {verb}\b", one)]

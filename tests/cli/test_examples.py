"""What `--help` shows can be typed as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys

import pytest

from mcp_serve.cli import completion, export, importing, stats, watch
from mcp_serve.cli.main import parser_of
from session_core import SessionDB
from tests.cli.at_terminal import Person

MODULES = {"stats": stats, "export": export, "import": importing, "completion": completion}
SHIMS = {
    "mcp-sessions": f'exec {shlex.quote(sys.executable)} -m mcp_serve.cli.main "$@"',
    "jq": "cat",
}


def examples(module):
    lines = module.EXAMPLES.partition("examples:\n")[2].splitlines()
    return [re.split(" {2,}", line.strip())[0] for line in lines]


@pytest.fixture(name="person")
def _person(tmp_path):
    """Somebody with a session of that id, a project, folders and a file that was exported."""
    person = Person(tmp_path, tmp_path / "h")
    with SessionDB(person.home / "state.db") as db:
        said = {"source": "cli", "cwd": str(tmp_path / "shop")}
        db.append_message("20261118_0915", "user", "hello", create=said)
    for folder in (".zfunc", ".config/fish/completions", "bin",
                   ".local/share/bash-completion/completions"):  # fmt: skip
        (tmp_path / folder).mkdir(parents=True)
    for name, does in SHIMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return person


@pytest.mark.parametrize("verb", MODULES)
def test_each_example_does_what_it_says(person, verb):
    if verb == "import":
        assert person.run("export", "--out", "sessions.jsonl").returncode == 0
    path = f"{person.folder / 'bin'}:{person.env['PATH']}"
    for line in examples(MODULES[verb]):
        done = subprocess.run(
            [shutil.which("bash"), "-o", "pipefail", "-c", line],
            env=person.env | {"PATH": path},
            cwd=person.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line


def test_each_example_of_what_does_not_end_is_understood():
    for line in examples(watch):
        _, *given = shlex.split(line.partition(" | ")[0])
        assert parser_of(given).parse_args(given).verb == "watch"

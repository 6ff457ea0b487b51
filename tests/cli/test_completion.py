"""Completion scripts, run in their shells."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mcp_serve.cli.main import VERBS
from tests.cli.command_user import CommandUser

BASH_SCRIPT = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
"$(complete -p mcp-sessions | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(name="person")
def _person(forks, tmp_path):
    return CommandUser(forks, tmp_path, tmp_path / "none")


def write_script(person, shell):
    result = person.run("completion", shell)
    assert (result.code, result.err) == (0, "")
    path = person.folder / f"mcp-sessions.{shell}"
    path.write_text(result.out, "utf-8")
    return path


def complete_words(person, *words):
    """Return the completions of bash for the last word."""
    given = [
        "bash",
        "-c",
        BASH_SCRIPT,
        "bash",
        str(write_script(person, "bash")),
        "mcp-sessions",
        *words,
    ]
    result = subprocess.run(
        given, env=person.env, cwd=person.folder, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


@pytest.mark.requirement("reports:completion")
def test_bash_completes_every_verb(person):
    assert complete_words(person, "") >= set(VERBS)
    assert complete_words(person, "sta") == {"stats"}


@pytest.mark.requirement("reports:completion")
def test_bash_completes_options_and_choices(person):
    assert complete_words(person, "export", "--out") == {"--out"}
    assert complete_words(person, "export", "--format", "") == {"jsonl", "md"}
    assert complete_words(person, "list", "--status", "ar") == {"archived"}
    assert complete_words(person, "completion", "z") == {"zsh"}
    assert "--deep" in complete_words(person, "stats", "--")


@pytest.mark.requirement("reports:completion")
def test_bash_completes_file_arguments(person):
    (person.folder / "said.jsonl").touch()
    (person.folder / "folder").mkdir()
    assert complete_words(person, "import", "sa") == {"said.jsonl"}
    assert complete_words(person, "--home", "fo") == {"folder"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shell_script_contains_every_verb(person, shell):
    text = write_script(person, shell).read_text("utf-8")
    assert [verb for verb in VERBS if verb not in text] == []


@pytest.mark.requirement("reports:completion")
@pytest.mark.system
def test_zsh_loads_completion_script(person):
    (person.folder / "_mcp-sessions").write_bytes(write_script(person, "zsh").read_bytes())
    asked = "fpath=($PWD $fpath); autoload -U compinit; compinit -D -u; "
    asked += "autoload +X _mcp-sessions; print -r -- $_comps[mcp-sessions]"
    result = subprocess.run(
        [shutil.which("zsh"), "-f", "-c", asked],
        env=person.env,
        cwd=person.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.stdout.split(), result.stderr) == (["_mcp-sessions"], "")


@pytest.mark.requirement("reports:completion")
@pytest.mark.system
def test_fish_completes_verbs(person):
    path = write_script(person, "fish")
    asked = f"source {path}; complete -C 'mcp-sessions list --status ar'"
    result = subprocess.run(
        [shutil.which("fish"), "--no-config", "-c", asked],
        env=person.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split()[0] == "archived"


def test_unknown_shell_is_reported(person):
    result = person.run("completion", "cmd")
    assert result.code == 2
    assert "fish" in result.err

"""The examples of the README and of `docs/` pass `mypy --strict` and pyright.

Those of an agent SDK are checked against that SDK, in an environment of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, find_code_blocks
from tests.node import MODULES, find_node, install_modules
from tests.peers import peer_python
from tests.readme.parts import README, ROOT

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

SDKS = ("openai", "claude", "pydantic-ai", "adk")
"""The extras of the adapters that examples import."""


def find_sdk(block: str) -> str | None:
    """Return the extra of the adapter that an example imports."""
    found = re.search(r"^from session_core\.adapters\.(\w+) import", block, re.MULTILINE)
    return found[1].replace("_", "-") if found else None


def write_examples(folder: Path, sdk: str | None) -> Path:
    """Write the examples that an environment can import. Return the Python of the environment."""
    pages = [README, ROOT / "session_core" / "README.md", *PAGES]
    blocks = [block for page in pages for block in find_code_blocks(page, "python")]
    assert {find_sdk(block) for block in blocks} == {None, *SDKS}
    for number, block in enumerate(each for each in blocks if find_sdk(each) == sdk):
        (folder / f"example_{number}.py").write_text(block, encoding="utf-8")
    return Path(sys.executable) if sdk is None else peer_python(f"sdk-{sdk}")


def run_checker(folder: Path, *command: str) -> None:
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.requirement("project:types")
@pytest.mark.parametrize("sdk", [None, *SDKS])
def test_examples_pass_mypy(tmp_path, sdk):
    python = write_examples(tmp_path, sdk)
    options = ("--strict", "--config-file=", "--cache-dir=cache", f"--python-executable={python}")
    run_checker(tmp_path, sys.executable, "-m", "mypy", *options, *map(str, tmp_path.glob("*.py")))


@pytest.mark.requirement("project:types")
@pytest.mark.parametrize("sdk", [None, *SDKS])
def test_examples_pass_pyright(tmp_path, sdk):
    python = write_examples(tmp_path, sdk)
    pyright = install_modules(*MODULES["types"]) / "pyright" / "index.js"
    run_checker(tmp_path, str(find_node()), str(pyright), f"--pythonpath={python}", str(tmp_path))


@pytest.mark.requirement("project:types")
def test_wrong_column_is_a_type_error(tmp_path):
    code = (
        'from session_core import SessionDB\nSessionDB("a.db").create_session("s", "x", cdw="/")\n'
    )
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "example.py"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert 'Unexpected keyword argument "cdw"' in process.stdout

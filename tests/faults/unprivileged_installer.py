"""A user who runs verbs, with a configuration folder that belongs to another user.

It takes that folder, a folder for a first try of each verb, and the verbs as JSON. It prints the
exit code and the output of each verb.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from mcp_serve.cli.main import main
from tests.faults.unprivileged_ledger import NOBODY_UID


def attempt_verb(home: str, arguments: list[str]) -> tuple[int, str]:
    """Run a verb, and return its exit code and output."""
    os.environ["HOME"] = home
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        return main(arguments), said.getvalue()


if __name__ == "__main__":
    home, before, verbs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    os.chdir("/")
    for verb in verbs:
        attempt_verb(before, verb)  # late imports can be read now, and not later by `nobody`
    os.setgroups([])
    os.setgid(NOBODY_UID)
    os.setuid(NOBODY_UID)
    print(json.dumps([attempt_verb(home, verb) for verb in verbs]))

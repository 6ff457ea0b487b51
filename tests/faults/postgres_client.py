"""Runs mutations in forked children, each of which may be killed at any moment.

A line on the input names an address, a mutation and its handle. The child reports its pid, and then
`ack` or its error; after its death `dead` is reported.
"""

from __future__ import annotations

import json
import os
import sys

from session_core import SessionError, open_home
from tests.faults.postgres_homes import MUTATIONS


def serve_children() -> None:
    """Run one child after another, until the input ends."""
    for line in sys.stdin:
        address, name, handle = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _run_mutation(address, name, handle)
            finally:
                os._exit(1)
        os.write(1, f"{pid}\n".encode())
        os.waitpid(pid, 0)
        os.write(1, b"dead\n")


def _run_mutation(address: str, name: str, handle: str) -> None:
    try:
        with open_home(address) as home:
            MUTATIONS[name].run(home, handle)
            os.write(1, b"ack\n")
    except SessionError as error:
        os.write(1, f"{type(error).__name__}: {error}\n".encode())


if __name__ == "__main__":
    serve_children()

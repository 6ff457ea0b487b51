"""`python -m tests.programs`: install the programs of the tests in CI before they are used."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.node import MODULES, find_node, install_modules
from tests.peers import PEERS, peer_python


def main() -> None:
    """Install all that are missing, and print how long each took."""
    began_at = time.monotonic()

    def print_time(name: str) -> None:
        print(f"{name} {time.monotonic() - began_at:.0f} s", flush=True)

    peer_python("uv")
    find_node()
    print_time("uv and node")
    # Each waits for downloads, so that two at once take half the time.
    with ThreadPoolExecutor(2) as threads:
        waiting = {name: threads.submit(peer_python, name) for name in PEERS}
        waiting |= {name: threads.submit(install_modules, *MODULES[name]) for name in MODULES}
        for name, installed in waiting.items():
            installed.result()
            print_time(name)


if __name__ == "__main__":
    main()

"""`python -m tests.adapters`: kill one of two writers, 200 times for each adapter.

CI does a tenth of it, in `test_sdks.py`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.adapters.test_sdks import EXTRAS, run_kills


def main() -> None:
    """Print for each adapter how many steps were acknowledged. None of them was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", metavar="SDK", help=", ".join(EXTRAS))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    for extra in options.extras or EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            home = str(Path(folder) / "home")
            print(extra, run_kills(extra, home, options.kills, options.seed), flush=True)


if __name__ == "__main__":
    main()

"""Build all that is released: `python -m release [--to FOLDER]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from release import bundle, registry
from release.project import ROOT, project


def main() -> int:
    """Build it, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the folder (dist)")
    folder = parser.parse_args().to.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    said = project()
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)  # noqa: S603 -- ours
    stem = f"{said.name.replace('-', '_')}-{said.version}"
    sdist = folder / f"{stem}.tar.gz"
    made = [
        *(folder.glob(f"{stem}-*.whl")),
        sdist,
        bundle.write(said, sdist, folder),
        registry.write(said, folder),
    ]
    print("\n".join(map(str, made)))  # noqa: T201 -- the output of a command
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Build the release artifacts: `python -m release [--to FOLDER]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from release.artifacts import ROOT, read_project, write_bundle, write_registry_entry


def main() -> int:
    """Build the artifacts and print their paths."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument(
        "--to", type=Path, default=ROOT / "dist", help="output folder (default: dist)"
    )
    folder = parser.parse_args().to.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    metadata = read_project()
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)  # noqa: S603 -- our own build
    stem = f"{metadata.name.replace('-', '_')}-{metadata.version}"
    sdist = folder / f"{stem}.tar.gz"
    paths = [
        *(folder.glob(f"{stem}-*.whl")),
        sdist,
        write_bundle(metadata, sdist, folder),
        write_registry_entry(metadata, folder),
    ]
    print("\n".join(map(str, paths)))  # noqa: T201 -- the output of a command
    return 0


if __name__ == "__main__":
    sys.exit(main())

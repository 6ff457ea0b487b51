"""A host on the official library of MCP Apps, in headless Chromium, and a real server over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.card.shown import CardHost
from tests.node import MODULES, find_node, install_modules
from tests.wire.conftest import serve_home

HERE = Path(__file__).parent


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the pages of the host."""

    def log_message(self, *given: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="session", name="modules")
def _modules() -> Path:
    """The packages of the host. A session has them before a test hides the user's folder."""
    return install_modules(*MODULES["card"])


@pytest.fixture(scope="session", name="pages")
def _pages(modules: Path, tmp_path_factory) -> Iterator[int]:
    """The port of the pages of the host, whose script is bundled with the library."""
    folder: Path = tmp_path_factory.mktemp("host")
    for page in ("host.html", "sandbox.html"):
        shutil.copy(HERE / "host" / page, folder)
    bundle = [modules / "esbuild" / "bin" / "esbuild", HERE / "host" / "host.mjs", "--bundle"]
    options = ["--format=esm", "--platform=browser", f"--outfile={folder / 'host.js'}"]
    env = {"NODE_PATH": str(modules), "PATH": os.environ["PATH"]}
    subprocess.run([find_node(), *bundle, *options], env=env, capture_output=True, check=True)
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="session", name="browser")
def _browser():
    """Chromium of the system, driven by playwright."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- only these tests need it

    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(name="host")
def _host(browser, pages: int, home_path: Path) -> Iterator[CardHost]:
    """The host, next to a server of the home."""
    origin = f"http://127.0.0.1:{pages}"
    with serve_home(home_path, "--allow-origin", origin) as (_, port):
        host = CardHost(browser, pages, port)
        yield host
        host.close()

"""A card as a host shows it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlsplit

from tests.wire.conftest import TOKEN

WIDE, PHONE = 820, 360

_CAPABILITIES = {"serverTools": {}, "updateModelContext": {"text": {}}}


class CardHost:
    """Opens cards in separate pages and records the requests of the pages."""

    def __init__(self, browser: Any, pages: int, port: int) -> None:
        self._browser = browser
        self._pages = pages
        self._port = port
        self._contexts: list[Any] = []
        self.requested: set[str] = set()
        self.errors: list[str] = []

    def show(
        self,
        tool: str,
        *,
        width: int = WIDE,
        theme: str = "light",
        capabilities: dict[str, Any] = _CAPABILITIES,
        reply: str | None = None,
        variables: dict[str, str] | None = None,
        **given: Any,
    ) -> Card:
        """Call a tool and show its card. `reply` answers the question before a change."""
        asked = {
            "address": f"http://127.0.0.1:{self._port}/mcp",
            "token": TOKEN,
            "sandbox": f"http://localhost:{self._pages}/sandbox.html",
            "name": tool,
            "given": given,
            "context": {
                "theme": theme,
                "locale": "en-US",
                "timeZone": "UTC",
                "styles": {"variables": variables or {}},
            },
            "reply": reply,
            "capabilities": capabilities,
        }
        context = self._browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme
        )
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: self.requested.add(urlsplit(request.url).netloc))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._read_console)
        page.goto(f"http://127.0.0.1:{self._pages}/host.html#{quote(json.dumps(asked))}")
        return Card(page)

    def _read_console(self, line: Any) -> None:
        if line.type == "error":
            self.errors.append(line.text)

    @property
    def own_addresses(self) -> set[str]:
        """The addresses of the host itself and of the server."""
        ports = {"127.0.0.1": (self._pages, self._port), "localhost": (self._pages,)}
        return {f"{name}:{port}" for name, listed in ports.items() for port in listed}

    def close(self) -> None:
        """Close the pages."""
        for context in self._contexts:
            context.close()


class Card:
    """One card in the page of its host."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.frame = page.frame_locator("iframe").frame_locator("iframe")
        self.frame.locator("main[aria-busy=false]").wait_for()

    @property
    def heading(self) -> str:
        """The heading."""
        return str(self.frame.locator("h1").inner_text())

    @property
    def told(self) -> list[str]:
        """The texts that the card gave the host for the model."""
        return list(self.page.evaluate("window.told"))

    def find_button(self, name: str) -> Any:
        """Return a button by its text."""
        return self.frame.get_by_role("button", name=name, exact=True)

    def click(self, name: str) -> None:
        """Click a button."""
        self.find_button(name).click()

    def wait_for_heading(self, text: str) -> None:
        """Wait until the heading has this text."""
        self.frame.locator("h1", has_text=text).wait_for()

    def wait_for_height(self) -> None:
        """Wait until the host has given the card the height that it takes, and not more."""
        for _ in range(1500):
            room = self.page.locator("iframe").bounding_box()["height"]
            taken = self.frame.locator("body").bounding_box()["height"]
            if taken <= room < taken + 1:
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"the card takes {taken} of {room}")

    def measure(self) -> dict[str, Any]:
        """Return the room of the document, the room that it takes, and the text that is cut."""
        script = """document => {
          const element = document.ownerDocument.documentElement;
          return {room: element.clientWidth, taken: element.scrollWidth};
        }"""
        return dict(self.frame.locator("body").evaluate(script))

"""Chromium without a window, as the pages' tests use it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OTHER_HOST = "speech.test"
"""A name of this machine that browsers do not trust as they trust localhost."""
PATIENCE = 60_000
"""Milliseconds until a test gives up."""


def program() -> str | None:
    """Path of the browser; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium(microphone: Path | None = None) -> Iterator[Any]:
    """Start the browser; skip the test where none is installed.

    Args:
        microphone: wav file that the microphone gives once, from the moment when a page opens it.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the package playwright is not installed"
    )
    path = program()
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    options = ["--no-sandbox", f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1"]
    if microphone is not None:
        options += [
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={microphone}%noloop",
        ]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Visitor:
    """A person with a browser of their own: open pages, and what they asked of the network."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._contexts: list[Any] = []
        self.addresses: list[str] = []
        self.complaints: list[str] = []
        self.sent: list[str | bytes] = []
        """Frames that WebSockets sent."""

    def visit(
        self,
        url: str,
        *,
        script: str = "",
        allowed: tuple[str, ...] = ("microphone",),
        **options: Any,
    ) -> Any:
        """Open a page.

        Args:
            script: runs before the scripts of the page.
            allowed: what the person allows the page.
            options: of the browser's context, such as viewport and color_scheme.
        """
        context = self._browser.new_context(permissions=list(allowed), **options)
        context.set_default_timeout(PATIENCE)
        self._contexts.append(context)
        page = context.new_page()
        context.on("request", lambda request: self.addresses.append(request.url))
        page.on("websocket", self._listen)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)
        if script:
            page.add_init_script(script)
        page.goto(url)
        # /health was asked
        page.locator("#model:not(:empty), #notices:not(:empty)").first.wait_for()
        return page

    def leave(self) -> None:
        """Close all pages; no request went to another host, and no script failed or was blocked."""
        for context in self._contexts:
            context.close()
        hosts = {
            urlsplit(address).hostname
            for address in self.addresses
            if not address.startswith("blob:")
        }
        assert hosts <= {"127.0.0.1", OTHER_HOST}
        assert self.complaints == []

    def _listen(self, socket: Any) -> None:
        self.addresses.append(socket.url)
        socket.on("framesent", lambda frame: self.sent.append(frame))

    def _note(self, message: Any) -> None:
        """The browser logs refused requests as errors as well; these are tested elsewhere."""
        if (
            message.type == "error"
            and "Failed to load resource" not in message.text
            and "WebSocket" not in message.text
        ):
            self.complaints.append(message.text)


def words_of(recording: Any) -> str:
    """The final words of a recording on the page, also of rows that `content-visibility: auto` has
    not rendered yet.
    """
    return " ".join(recording.locator(".segment .word").all_text_contents())

"""A real browser: Chromium, told what to do by WebDriver, which is JSON over HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""How WebDriver calls the id of an element."""
ANSWER_MAX_S = 60.0
LOOK_EVERY_S = 0.01
FOCUS_MAX = 100
"""After so many times Tab, all of a page of the tests has had the focus."""
CONTROL, ENTER, TAB = "\ue009", "\ue007", "\ue004"
"""How WebDriver calls keys."""
BUILD = Path(__file__).parents[2] / "build"
SCREENSHOTS = BUILD / "screenshots"
AXE = BUILD / "interop" / "axe" / "axe_playwright_python" / "axe.min.js"
"""The script of axe."""

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def missing() -> str:
    """Why there is no browser to be used; empty if there is one."""
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"not installed: {', '.join(programs)} (make interop)" if programs else ""


class BrowserError(AssertionError):
    """What the browser was told could not be done."""


class Browser:
    """A window of Chromium."""

    def __init__(self, port: int, folder: str, *options: str) -> None:
        self._port = port
        self._session = ""
        chosen = {
            "args": [*OPTIONS, f"--user-data-dir={folder}", *options],
            "binary": shutil.which("chromium"),
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": chosen,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._do("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _do(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_MAX_S)
        data = json.dumps(body or {}) if method == "POST" else None
        try:
            connection.request(method, self._session + path, data, {"content-type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise BrowserError(value)
        return value

    def go(self, url: str) -> None:
        self._do("POST", "/url", {"url": url})

    @property
    def url(self) -> str:
        return str(self._do("GET", "/url"))

    @property
    def text(self) -> str:
        """What the page shows."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str, *values: Any) -> Any:
        return self._do("POST", "/execute/sync", {"script": script, "args": list(values)})

    def list_violations(self) -> list[str]:
        """What axe finds that keeps people from using the page, each with the first element that does."""
        self.run(f"{AXE.read_text()}; window.axe = axe")
        script = (
            "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then("
            "found => done(found.violations.map(v => `${v.id}: ${v.help}: ${v.nodes[0].html}`)),"
            "problem => done([String(problem)]))"
        )
        return [str(found) for found in self._do("POST", "/execute/async", {"script": script, "args": []})]

    def _find(self, selector: str) -> str:
        using = "link text" if selector.startswith("=") else "css selector"
        found = self._do("POST", "/element", {"using": using, "value": selector.removeprefix("=")})
        return f"/element/{found[ELEMENT]}"

    @contextmanager
    def loading_a_page(self) -> Iterator[None]:
        """Waits for the page that the block leads to. A click is answered before its form is sent."""
        self.run("document.documentElement.dataset.former = ''")
        yield
        self.wait_for(
            "return document.readyState === 'complete' && !('former' in document.documentElement.dataset)"
        )

    def wait_for(self, script: str) -> None:
        """Until a script answers with true. A page that is being left answers nothing."""
        deadline = time.monotonic() + ANSWER_MAX_S
        while time.monotonic() < deadline:
            try:
                if self.run(script):
                    return
            except BrowserError:
                pass
            time.sleep(LOOK_EVERY_S)
        raise AssertionError(f"waited in vain for: {script}, at {self.url}: {self.text}")

    def click(self, selector: str) -> None:
        """Press an element that leads to another page: a CSS selector, or ``=`` and the text of a link."""
        with self.loading_a_page():
            self._do("POST", f"{self._find(selector)}/click")

    def write(self, selector: str, text: str) -> None:
        """Put text into a field, in the place of what is there."""
        field = self._find(selector)
        self._do("POST", f"{field}/clear")
        self._do("POST", f"{field}/value", {"text": text})

    def press(self, keys: str, *, holding: str = "") -> None:
        """Press keys where the focus is, one after the other, while another one is held down."""
        strokes = [(kind, key) for key in keys for kind in ("keyDown", "keyUp")]
        if holding:
            strokes = [("keyDown", holding), *strokes, ("keyUp", holding)]
        actions = [{"type": kind, "value": key} for kind, key in strokes]
        self._do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def tab_to(self, text: str) -> None:
        """Move the focus on until it is on an element with a text."""
        for _ in range(FOCUS_MAX):
            self.press(TAB)
            if self.run("return document.activeElement.textContent") == text:
                return
        raise AssertionError(f"the Tab key does not lead to {text!r} at {self.url}: {self.text}")

    @contextmanager
    def phone(self, width: int = 390, height: int = 844) -> Iterator[None]:
        """Shows pages as a phone of this size does. A window cannot be made that narrow."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self._tell("Emulation.setDeviceMetricsOverride", metrics)
        try:
            yield
        finally:
            self._tell("Emulation.clearDeviceMetricsOverride", {})

    def _tell(self, command: str, values: dict[str, Any]) -> None:
        """Tell Chromium what WebDriver has no word for."""
        self._do("POST", "/goog/cdp/execute", {"cmd": command, "params": values})

    def save_screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        (SCREENSHOTS / f"{name}.png").write_bytes(base64.b64decode(self._do("GET", "/screenshot")))

    def problems(self) -> list[str]:
        """What the console complains about since the last look."""
        lines = self._do("POST", "/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]

    def hosts(self) -> set[str]:
        """To whom requests were sent since the last look."""
        hosts = set()
        for line in self._do("POST", "/se/log", {"type": "performance"}):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                hosts |= {url.netloc} if url.scheme in ("http", "https") else set()
        return hosts

    def close(self) -> None:
        self._do("DELETE", "")


@contextmanager
def open_browser(*options: str) -> Iterator[Browser]:
    """A browser with nothing remembered, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    try:
        while "started successfully" not in (line := driver.stdout.readline()):
            assert line, "chromedriver did not start"
        with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
            browser = Browser(port, folder, *options)
            try:
                yield browser
            finally:
                browser.close()
    finally:
        driver.terminate()
        driver.wait()
        driver.stdout.close()

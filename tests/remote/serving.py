"""A server of the native API in this process, on a free port, for as long as a block lasts."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from penstock.lake.catalogue import Catalogue
from penstock.server.access import Gate, OpenGate
from penstock.server.app import Application
from penstock.server.limits import Limits
from penstock.server.logs import Log
from penstock.server.native import NATIVE


class Served:
    """A running server: where it is, and what it logged."""

    def __init__(self, port: int, log: io.BytesIO) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    @property
    def log(self) -> str:
        return self._log.getvalue().decode()


@contextmanager
def serving(catalogue: Catalogue, *, gate: Gate | None = None, limits: Limits = Limits()) -> Iterator[Served]:
    """Serve a catalogue until the block ends."""
    log = io.BytesIO()
    application = Application(
        catalogue, [NATIVE], gate=gate or OpenGate(any_location=True), log=Log(log), limits=limits
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)  # who connects before the server runs waits for it
    config = uvicorn.Config(application, log_config=None, lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield Served(int(listening.getsockname()[1]), log)
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        application.stop()
        listening.close()

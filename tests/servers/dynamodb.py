"""DynamoDB Local, Amazon's own, in memory, with a table's name for whoever asks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import java
from tests.servers.process import HOST, Process, accepts, free_ports, running

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

REGION = "us-east-1"
TABLE = "penstock-test"


class DynamoDBPlace(msgspec.Struct, frozen=True):
    """The name of a table that is not there yet, and what is needed to get there."""

    table: str
    endpoint: str | None
    region: str
    access_key: str | None
    secret_key: str | None

    @property
    def url(self) -> str:
        """The address as `penstock.open` takes it; the keys are in `environment`."""
        where = f"&endpoint={quote(self.endpoint, safe=':/')}" if self.endpoint else ""
        return f"dynamodb://{self.table}?region={self.region}{where}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that carry the keys; none where the machine's own are used."""
        if self.access_key is None or self.secret_key is None:
            return {}
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def client(self) -> DynamoDBClient:
        """A plain boto3 client of the server, which tries nothing twice; close it."""
        return boto3.client(
            "dynamodb",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=64),
        )


class DynamoDBServer:
    """A running server."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port
        self.endpoint = f"http://{HOST}:{port}"
        self.place = DynamoDBPlace(TABLE, self.endpoint, REGION, "tests", "no-secret")

    def is_ready(self) -> bool:
        if not accepts(self.port):
            return False
        with closing(self.place.client()) as client:
            try:
                client.list_tables()
            except (BotoCoreError, ClientError):
                return False
        return True


def launch() -> DynamoDBServer:
    [port] = free_ports(1)
    server = DynamoDBServer(java.launch("dynamodb", port), port)
    server.process.wait_until(server.is_ready)
    return server


@contextmanager
def started() -> Iterator[DynamoDBServer]:
    """A server while the block runs."""
    with running(launch) as server:
        yield server


def place_of(url: str) -> DynamoDBPlace:
    """The place that a user's own `dynamodb://table?endpoint=…&region=…` names."""
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return DynamoDBPlace(
        table=parts.netloc,
        endpoint=options.get("endpoint"),
        region=options.get("region", REGION),
        access_key=None,
        secret_key=None,
    )


@contextmanager
def fresh_table(place: DynamoDBPlace) -> Iterator[DynamoDBPlace]:
    """The name of a table that is not there; if it is there at the end, it is deleted."""
    fresh = msgspec.structs.replace(place, table=f"{place.table}-{secrets.token_hex(6)}")
    try:
        yield fresh
    finally:
        with closing(fresh.client()) as client:
            for name in tables(client, fresh.table):
                client.delete_table(TableName=name)


def tables(client: DynamoDBClient, prefix: str) -> list[str]:
    pages = client.get_paginator("list_tables").paginate()
    return [name for page in pages for name in page["TableNames"] if name.startswith(prefix)]

"""Object storage for the tests: SeaweedFS, a real S3 server, and moto, which only acts like one.

SeaweedFS keeps its conditional writes under races (`tests/stores/test_server_races.py` holds it to that);
moto looks first and writes after, so nothing that hangs on a race may be tested on it.
"""

from __future__ import annotations

import json
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.process import HOST, Missing, Process, accepts, free_ports, new_directory, running, start

BUCKET = "penstock-test"
REGION = "us-east-1"
WEED = Path(sys.executable).with_name("weed")
MOTO = Path(sys.executable).with_name("moto_server")
PAUSING_MOTO = Path(__file__).with_name("pausing_moto.py")


class S3Place(msgspec.Struct, frozen=True):
    """An empty part of a bucket, and what is needed to get there."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str
    access_key: str | None
    secret_key: str | None

    @property
    def url(self) -> str:
        """The address as `penstock.open` takes it; the keys are in `environment`."""
        where = f"&endpoint={quote(self.endpoint, safe=':/')}" if self.endpoint else ""
        return f"s3://{self.bucket}/{self.prefix}?region={self.region}{where}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that carry the keys; none where the machine's own are used."""
        if self.access_key is None or self.secret_key is None:
            return {}
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def client(self) -> Any:
        """A plain boto3 client of the server, which tries nothing twice; close it."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=64),
        )


class S3Server:
    """A running server with one bucket."""

    def __init__(self, process: Process, port: int, access_key: str, secret_key: str) -> None:
        self.process = process
        self.port = port
        self.endpoint = f"http://{HOST}:{port}"
        self.bucket = S3Place(BUCKET, "", self.endpoint, REGION, access_key, secret_key)

    def is_ready(self) -> bool:
        """Whether the bucket is there and an object can be written to it."""
        if not accepts(self.port):
            return False
        with closing(self.bucket.client()) as client:
            try:
                client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
                client.delete_object(Bucket=BUCKET, Key="ready")
            except (BotoCoreError, ClientError):
                return False
        return True


def launch_seaweedfs() -> S3Server:
    if not WEED.exists():
        raise Missing("SeaweedFS is not installed: run `make setup`")
    directory = new_directory()
    access_key, secret_key = secrets.token_hex(10), secrets.token_hex(20)
    keys = {"accessKey": access_key, "secretKey": secret_key}
    identity = {"name": "tests", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]}
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(8)
    s3_port = ports[6]
    parts = ["master", "volume", "filer", "s3"]
    process = start(
        [
            WEED,
            "server",
            f"-dir={directory}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-s3",
            f"-s3.config={directory / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={directory / 's3.sock'}",
            f"-filer.localSocket={directory / 'filer.sock'}",
            *(f"-{part}.port={port}" for part, port in zip(parts, ports[::2], strict=True)),
            *(f"-{part}.port.grpc={port}" for part, port in zip(parts, ports[1::2], strict=True)),
            # It speaks to nobody but the tests.
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256",
            "-master.electionTimeout=1s",
            # Objects of our size stay in its index; a volume for them takes seconds to prepare.
            "-filer.saveToFilerLimit=1048576",
            "-volume.max=50",
            "-volume.preStopSeconds=0",
        ],
        directory,
        stop_signal=signal.SIGKILL,
    )
    server = S3Server(process, s3_port, access_key, secret_key)
    process.wait_until(server.is_ready)
    return server


def launch_moto(*, pausing: bool = False) -> S3Server:
    if not MOTO.exists():
        raise Missing("moto is not installed: run `make setup`")
    directory = new_directory()
    [port] = free_ports(1)
    program = [sys.executable, PAUSING_MOTO] if pausing else [MOTO]
    process = start([*program, "-H", HOST, "-p", str(port)], directory, stop_signal=signal.SIGKILL)
    server = S3Server(process, port, "tests", "no-secret")
    process.wait_until(server.is_ready)
    return server


@contextmanager
def seaweedfs() -> Iterator[S3Server]:
    """A SeaweedFS server while the block runs."""
    with running(launch_seaweedfs) as server:
        yield server


@contextmanager
def moto(*, pausing: bool = False) -> Iterator[S3Server]:
    """A moto server while the block runs; one that is pausing lets two writers meet."""
    with running(lambda: launch_moto(pausing=pausing)) as server:
        yield server


def place_of(url: str) -> S3Place:
    """The place that a user's own `s3://bucket/prefix?endpoint=…&region=…` names."""
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    return S3Place(
        bucket=parts.netloc,
        prefix=parts.path.strip("/"),
        endpoint=options.get("endpoint"),
        region=options.get("region", REGION),
        access_key=None,
        secret_key=None,
    )


@contextmanager
def fresh_place(bucket: S3Place) -> Iterator[S3Place]:
    """An empty prefix in a bucket, emptied again at the end."""
    name = f"test-{secrets.token_hex(6)}"
    place = msgspec.structs.replace(bucket, prefix=f"{bucket.prefix}/{name}".strip("/"))
    try:
        yield place
    finally:
        if place.access_key is None:
            empty(place)


def empty(place: S3Place) -> None:
    with closing(place.client()) as client:
        for page in client.get_paginator("list_objects_v2").paginate(
            Bucket=place.bucket, Prefix=place.prefix
        ):
            for each in page.get("Contents", ()):
                client.delete_object(Bucket=place.bucket, Key=each["Key"])

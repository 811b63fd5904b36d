"""Where tests have lakes and tables that others read too: on a disk, and in a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock import Settings
from penstock.lake.lake import Lake
from tests.servers.s3 import S3Place

SETTINGS = Settings(publish_wait_s=20.0)


class Home(msgspec.Struct, frozen=True):
    """A place for tables; the environment holds what opens it."""

    directory: Path
    """On the disk, for the lake itself."""
    tables: str
    """Tables are below it."""
    bucket: S3Place | None = None

    @contextmanager
    def lake(self, name: str = "lake") -> Iterator[Lake]:
        """A new lake whose tables are here."""
        warehouse = f"{self.tables}/{name}"
        with penstock.init(
            self.directory / name, warehouse=warehouse, roots=[self.tables], settings=SETTINGS
        ) as lake:
            yield lake

    @property
    def options(self) -> dict[str, str] | None:
        """What deltalake needs to get here."""
        return None if self.bucket is None else environment(self.bucket)

    def copied(self, location: str) -> Path:
        """A table's files on the disk, for a reader that cannot get into a bucket."""
        if self.bucket is None:
            return Path(location)
        copy = self.directory / "copied"
        prefix = location.removeprefix(f"s3://{self.bucket.bucket}/") + "/"
        with closing(self.bucket.client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket.bucket, Prefix=prefix)
            for key in [one["Key"] for page in pages for one in page.get("Contents", ())]:
                path = copy / key.removeprefix(prefix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(client.get_object(Bucket=self.bucket.bucket, Key=key)["Body"].read())
        return copy


def home_on(kind: str, request: pytest.FixtureRequest) -> Home:
    """A new home on the disk or in a bucket, for one test."""
    directory: Path = request.getfixturevalue("tmp_path")
    if kind == "disk":
        return Home(directory, str(directory / "tables"))
    bucket: S3Place = request.getfixturevalue("s3_place")
    for name, value in environment(bucket).items():
        request.getfixturevalue("monkeypatch").setenv(name, value)
    return Home(directory, f"s3://{bucket.bucket}/{bucket.prefix}/tables", bucket)


def environment(bucket: S3Place) -> dict[str, str]:
    """The variables by which programs find a bucket."""
    return {
        **bucket.environment,
        **({"AWS_ENDPOINT_URL": bucket.endpoint} if bucket.endpoint else {}),
        "AWS_REGION": bucket.region,
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }

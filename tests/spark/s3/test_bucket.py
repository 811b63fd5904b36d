"""Tables in a bucket of a real S3 server: Spark writes and reads them over s3a, others read the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.lake.lake import Lake
from tests.interop.delta.homes import Home, home_on
from tests.servers.process import Missing
from tests.spark.s3.counting import Counting
from tests.spark.s3.program import KEY
from tests.spark.s3.sessions import S3Spark

FILES = 4
"""That a job of four tasks writes to a table without partitions."""


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Home:
    return home_on("bucket", request)


@pytest.fixture
def lake(home: Home) -> Iterator[Lake]:
    with home.lake() as lake:
        yield lake


@pytest.fixture
def requests(home: Home) -> Iterator[Counting]:
    """The way to the bucket that only Spark takes."""
    assert home.bucket is not None
    port = urlsplit(home.bucket.endpoint or "").port
    assert port is not None
    proxy = Counting(port)
    with proxy:
        yield proxy


@pytest.fixture
def spark(home: Home, lake: Lake, requests: Counting, tmp_path: Path) -> Iterator[S3Spark]:
    try:
        started = S3Spark(home.directory / "lake", f"http://127.0.0.1:{requests.port}", tmp_path)
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()


@pytest.fixture
def duckdb() -> Iterator[Any]:
    """DuckDB with its Delta extension as it comes from PyPI; nothing is downloaded when tests run."""
    module = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB's Delta extension is not here")
    (found,) = Path(extension.__file__).parent.rglob("delta.duckdb_extension")
    with module.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{found}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.mark.verify
def test_what_spark_writes_to_a_bucket_is_read_by_all_and_takes_no_listing_and_no_copy(
    spark: S3Spark, requests: Counting, lake: Lake, home: Home, duckdb: Any
) -> None:
    from deltalake import DeltaTable

    assert spark.do("append_plain") == 0
    # Each file is written, looked at by Spark for its figures and by the protocol, and its footer read.
    assert requests.kinds() == {"PUT": FILES, "HEAD": 2 * FILES, "GET": FILES}, requests.asked
    for version, step in enumerate(("create", "append", "overwrite_some", "update", "branch")):
        assert spark.do(step) == version
    requests.clear()
    ours = spark.do("read")
    assert requests.kinds()["LIST"] == 0, requests.asked
    assert len(ours) == len({row[0] for row in ours}) == 112
    lake.table(KEY).backfill_to_version()
    location = lake.table(KEY).location
    theirs = DeltaTable(location, storage_options=home.options).to_pyarrow_table().to_pylist()
    assert sorted(_plain(row) for row in theirs) == ours
    copy = home.copied(location)
    scanned = duckdb.execute("FROM delta_scan(?)", [str(copy)]).to_arrow_table()
    assert sorted(_plain(row) for row in scanned.to_pylist()) == ours
    changed = Counter((kind, version) for _, kind, version in spark.do("changes"))
    assert changed[("update_postimage", 3)] == changed[("update_preimage", 3)] == 2


def _plain(row: dict[str, object]) -> list[str]:
    at = str(row["at"]).removesuffix("+00:00")
    return [str(row["id"]).zfill(6), str(row["kind"]), str(row["amount"]), at]

"""Tables for tests of reading: read with and without Penstock's jar, written by a lake or elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Action, Add, Metadata, write_commit
from penstock.formats.delta.protocol.names import LOG, CommitName
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.rows.arrow_types import make_schema
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.spark.jar import COMMIT_PROTOCOL_SETTING, has_classes, has_protocol
from tests.formats.delta.logs import add, protocol
from tests.formats.delta.rows import metadata_for
from tests.spark.conftest import hide_classes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("short_real", pa.float32()),
        ("money", pa.decimal128(10, 2)),
        ("large", pa.decimal128(38, 18)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("flag", pa.bool_()),
    ]
)
"""A column of each type that conditions are about."""

ENGINES = ["jar", "fallback"]
JAR_FIRST = ["jar", pytest.param("fallback", marks=pytest.mark.verify)]
"""``test_job_contract`` tries both ways of a job; what rests on them is tried both ways by `make verify`."""
in_each_engine = pytest.mark.parametrize("engine", JAR_FIRST)
SPARKS_OWN = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"


def using(spark: SparkSession, engine: str) -> SparkSession:
    """The session as it reads and writes with the jar, or as one does that has none.

    The classes are hidden from this thread; the fixture ``spark`` shows them again.
    """
    if engine == "fallback":
        spark.conf.set(COMMIT_PROTOCOL_SETTING, SPARKS_OWN)
        hide_classes(spark)
    assert has_classes(spark) == has_protocol(spark) == (engine == "jar")
    return spark


def shown(rows: DataFrame) -> list[tuple[Any, ...]]:
    """Rows that can be compared although they come in no order, and NaN equals nothing."""
    return sorted((tuple(row) for row in rows.collect()), key=repr)


def adopted(lake: Lake, root: Path, commits: Sequence[Iterable[Action]], key: str = "t") -> Table:
    """A table of a lake that was written elsewhere, with these commits."""
    put_log(root, commits)
    lake.add_root(str(root))
    lake.delta.adopt(str(root), key)
    return lake.table(key)


def unowned(lake: Lake, root: Path, commits: Sequence[Iterable[Action]]) -> TableSnapshot:
    """A table that is read, and that no lake could own."""
    put_log(root, commits)
    place = lake.places.open_place(str(root))
    snapshot = load_snapshot(PlaceFiles(place))
    log = TableVersions(
        key=Key("t"),
        id=UUID(snapshot.metadata.id),
        location=str(root),
        latest_version=snapshot.version,
        published=snapshot.version,
        commits=(),
        protocol="",
        metadata="",
    )
    return TableSnapshot(snapshot, place, log)


def put_log(root: Path, commits: Sequence[Iterable[Action]]) -> None:
    (root / LOG).mkdir(parents=True, exist_ok=True)
    for version, actions in enumerate(commits):
        (root / str(CommitName(version))).write_bytes(write_commit(tuple(actions)))


def with_vectors(data: pa.Table, **properties: str) -> tuple[Action, Metadata]:
    """The beginning of a table with deletion vectors."""
    metadata = metadata_for(
        make_schema(data.schema),
        properties={"delta.enableDeletionVectors": "true"}
        | {name.replace("_", ".", 1): value for name, value in properties.items()},
    )
    return protocol("changeDataFeed", "appendOnly", "invariants", reader=("deletionVectors",)), metadata


def written(lake: Lake, root: Path, metadata: Metadata, data: pa.Table) -> Add:
    """A file that holds rows, and its statistics."""
    root.mkdir(parents=True, exist_ok=True)
    (file,) = write_files(lake.places.open_place(str(root)), metadata, data)
    return file


def put_file(root: Path, name: str, data: pa.Table, **more: Any) -> Add:
    """A file of any name, without statistics."""
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, place)
    return add(name, size=place.stat().st_size, **more)

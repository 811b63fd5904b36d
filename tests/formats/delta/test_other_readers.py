"""Tables that deltalake writes, read by it, by DuckDB and by us: file for file, row for row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import CommitProperties, DeltaTable, TableFeatures, Transaction, write_deltalake

from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    CheckpointMetadata,
    Sidecar,
    decode_path,
    write_commit,
)
from penstock.formats.delta.protocol.names import LAST_CHECKPOINT, LOG, SIDECARS, ClassicName
from penstock.formats.delta.publishing.maintenance import make_checkpoint
from penstock.formats.rows.schema import write_schema
from tests.formats.delta.logs import UUIDS, Table, checkpoint_bytes, opening
from tests.servers.s3 import S3Place

ODD = ["plain", "a b", "ü/%=:?#&", "100%", "%20", "", None]
Rows = Counter[tuple[int, str | None]]


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "kind": pa.array([ODD[one % len(ODD)] for one in ids], pa.string())}
    )


def append(root: str, *ids: int, **options: Any) -> None:
    write_deltalake(root, rows(*ids), mode="append", **options)


def appended(root: str) -> None:
    for number in range(4):
        append(root, number, number + 100)


def overwritten_and_deleted(root: str) -> None:
    append(root, *range(10))
    write_deltalake(root, rows(*range(20, 30)), mode="overwrite")
    append(root, 40, 41)
    DeltaTable(root).delete("id = 21 OR id = 40")
    DeltaTable(root).delete()
    append(root, 50)
    DeltaTable(root).restore(2)


def partitioned_by_odd_values(root: str) -> None:
    append(root, *range(14), partition_by=["kind"])
    append(root, *range(20, 30))
    DeltaTable(root).delete("kind = '100%'")
    DeltaTable(root).delete("kind IS NULL")
    write_deltalake(root, rows(2, 9), mode="overwrite", predicate="kind = 'ü/%=:?#&'")


def with_many_commits_and_checkpoints(root: str) -> None:
    append(root, 0, configuration={"delta.checkpointInterval": "4"}, partition_by=["kind"])
    for number in range(1, 14):
        append(root, number)
        if number % 5 == 0:
            DeltaTable(root).delete(f"id = {number - 1}")


def with_compacted_logs(root: str) -> None:
    append(root, 0, configuration={"delta.checkpointInterval": "100"})
    for number in range(1, 7):
        append(root, number)
        DeltaTable(root).delete(f"id = {number - 1}")
    DeltaTable(root).compact_logs(1, 5)
    DeltaTable(root).compact_logs(6, 9)


def with_streams_properties_and_new_columns(root: str) -> None:
    for number in range(5):
        done = CommitProperties(app_transactions=[Transaction(f"stream-{number % 2}", number)])
        append(root, number, commit_properties=done)
    table = DeltaTable(root)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    table.alter.add_feature([TableFeatures.V2Checkpoint], allow_protocol_versions_increase=True)
    table.create_checkpoint()
    wider = rows(9).append_column("extra", pa.array([{"x": [1]}]))
    write_deltalake(root, wider, mode="append", schema_mode="merge")


STORIES: list[Callable[[str], None]] = [
    appended,
    overwritten_and_deleted,
    partitioned_by_odd_values,
    with_many_commits_and_checkpoints,
    with_compacted_logs,
    with_streams_properties_and_new_columns,
]


@pytest.fixture(params=STORIES, ids=lambda story: story.__name__)
def written(request: pytest.FixtureRequest, table: Table) -> Table:
    """A table in a story, each version of which can be read."""
    request.param(str(table.root))
    return table


def test_every_version_is_what_deltalake_says(written: Table) -> None:
    newest = DeltaTable(str(written.root)).version()
    assert load_snapshot(written.files).version == newest
    for version in range(newest + 1):
        assert_same(load_snapshot(written.files, version), DeltaTable(str(written.root), version=version))


@pytest.mark.parametrize(
    ("shape", "extension"),
    [
        ("parts", "parquet"),
        ("sidecars", "parquet"),
        ("sidecars", "json"),
        ("inline", "parquet"),
        ("inline", "json"),
    ],
)
def test_checkpoints_of_other_shapes_are_what_deltalake_says(
    table: Table, shape: str, extension: str
) -> None:
    with_streams_properties_and_new_columns(str(table.root))
    before = load_snapshot(table.files)
    classic = next((table.root / LOG).glob("*.checkpoint.parquet"))
    version = int(classic.name[:20])
    reshape(table, load_snapshot(table.files, version), shape, extension)
    for name in (
        str(ClassicName(version)),
        LAST_CHECKPOINT,
        *(f"{LOG}{one:020}.json" for one in range(version)),
    ):
        table.delete(name)
    found = load_snapshot(table.files)
    assert found.segment.checkpoint is not None
    assert str(ClassicName(version)) not in found.segment.checkpoint.names
    assert_same(found, DeltaTable(str(table.root)))
    assert {one.path for one in found.read_tombstones()} == {one.path for one in before.read_tombstones()}


def test_every_row_is_what_duckdb_says(written: Table, duckdb: Any) -> None:
    found = load_snapshot(written.files)
    scanned = duckdb.execute("SELECT id, kind FROM delta_scan(?)", [str(written.root)]).fetchall()
    assert rows_of(found, written.root) == Counter(scanned)


def test_a_table_in_a_bucket_is_what_deltalake_says(
    s3_place: S3Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        **s3_place.environment,
        "AWS_REGION": s3_place.region,
        "AWS_ENDPOINT_URL": s3_place.endpoint or "",
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }
    url = f"s3://{s3_place.bucket}/{s3_place.prefix}/some/table"
    properties: dict[str, str | None] = {"delta.checkpointInterval": "3"}
    for number in range(6):
        append(url, number, number + 7, storage_options=options, configuration=properties)
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    with opening() as places:
        found = PlaceFiles(places.open_place(url))
        assert found.url == url
        for version in range(6):
            theirs = DeltaTable(url, version=version, storage_options=options)
            ours = load_snapshot(found, version)
            assert files_of(ours) == files_of_deltalake(theirs)
            assert (ours.segment.checkpoint is None) == (version < 2)
        made = make_checkpoint(places.open_place(url), 4, 0)
        assert made is not None
        ours = load_snapshot(found, 4)
        assert ours.segment.names == ()
        assert files_of(ours) == files_of_deltalake(DeltaTable(url, version=4, storage_options=options))


def assert_same(ours: LogSnapshot, theirs: DeltaTable) -> None:
    assert ours.version == theirs.version()
    assert files_of(ours) == files_of_deltalake(theirs)
    protocol, metadata = theirs.protocol(), theirs.metadata()
    assert ours.protocol.min_reader_version == protocol.min_reader_version
    assert ours.protocol.min_writer_version == protocol.min_writer_version
    assert set(ours.protocol.writer_features or ()) == set(protocol.writer_features or ())
    assert ours.metadata.id == str(metadata.id)
    assert ours.properties == metadata.configuration
    assert list(ours.metadata.partition_columns) == metadata.partition_columns
    assert json.loads(write_schema(ours.schema)) == json.loads(theirs.schema().to_json())
    for app in ("stream-0", "stream-1"):
        ours_of_app = ours.transactions.get(app)
        assert (ours_of_app and ours_of_app.version) == theirs.transaction_version(app)
    assert rows_of(ours, Path(theirs.table_uri.removeprefix("file://"))) == rows_of_deltalake(theirs)


def files_of(ours: LogSnapshot) -> dict[str, tuple[Any, ...]]:
    return {
        decode_path(one.path): (
            one.size,
            one.modification_time,
            json.loads(one.stats or "{}").get("numRecords"),
            one.partition,
        )
        for one in ours.read_files()
    }


def files_of_deltalake(theirs: DeltaTable) -> dict[str, tuple[Any, ...]]:
    found = pa.table(theirs.get_add_actions()).to_pylist()
    return {
        decode_path(one["path"]): (
            one["size_bytes"],
            one["modification_time"],
            one["num_records"],
            one.get("partition") or {},
        )
        for one in found
    }


def rows_of(ours: LogSnapshot, root: Path) -> Rows:
    """The rows that the files hold, with the values of their partitions."""
    found: Rows = Counter()
    for file in ours.read_files():
        read = pq.ParquetFile(root / decode_path(file.path)).read().to_pylist()
        found.update((row["id"], row["kind"] if "kind" in row else file.partition["kind"]) for row in read)
    return found


def rows_of_deltalake(theirs: DeltaTable) -> Rows:
    scanned = pa.table(theirs.scan(columns=["id", "kind"])).to_pylist()
    # Its scan shows an empty partition value as such, where the protocol says that there is none.
    is_partition = bool(theirs.metadata().partition_columns)
    return Counter((row["id"], row["kind"] or None if is_partition else row["kind"]) for row in scanned)


def reshape(table: Table, state: LogSnapshot, shape: str, extension: str) -> None:
    """Write the checkpoint of a version in another shape."""
    files: list[Action] = [*state.read_files(), *state.read_tombstones()]
    rest: list[Action] = [state.protocol, state.metadata, *state.transactions.values()]
    start = f"{LOG}{state.version:020}.checkpoint."
    if shape == "parts":
        table.write(f"{start}{1:010}.{2:010}.parquet", checkpoint_bytes(files))
        table.write(f"{start}{2:010}.{2:010}.parquet", checkpoint_bytes(rest))
        return
    rest.append(CheckpointMetadata(version=state.version))
    if shape == "sidecars":
        data = checkpoint_bytes(files)
        table.write(f"{SIDECARS}{UUIDS[1]}.parquet", data)
        rest.append(Sidecar(path=f"{UUIDS[1]}.parquet", size_in_bytes=len(data), modification_time=0))
        files = []
    actions = [*rest, *files]
    data = write_commit(actions) if extension == "json" else checkpoint_bytes(actions)
    table.write(f"{start}{UUIDS[0]}.{extension}", data)

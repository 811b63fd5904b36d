"""The change data feed: every change of a table once, with the version that made it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import VersionNotFound
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, Metadata, Remove
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import write_schema
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.change_feed import changes
from tests.formats.delta.logs import protocol, remove
from tests.formats.delta.rows import inline_vector, metadata_for, vector_data
from tests.spark.reading_tables import adopted, in_each_engine, put_file, shown, using, with_vectors, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDED = {"delta.enableChangeDataFeed": "true"}
IDS = pa.schema({"id": pa.int64()})


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def fed(spark: SparkSession, first: int, last: int | None = None, **how: Any) -> list[tuple[Any, ...]]:
    """The changes without their times."""
    return shown(changes(spark, "t", first, last, **how).drop("_commit_timestamp"))


def removal(file: Add, **more: Any) -> Remove:
    given = {"partition_values": file.partition_values, "size": file.size, "extended_file_metadata": True}
    return remove(file.path, **given | more)


def test_added_and_removed_files_are_inserted_and_deleted_rows(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    table.append(ids(1, 2))
    table.overwrite(ids(3))
    table.append(ids(4))
    everything = [
        (1, "delete", 2),
        (1, "insert", 1),
        (2, "delete", 2),
        (2, "insert", 1),
        (3, "insert", 2),
        (4, "insert", 3),
    ]
    assert fed(spark, 0) == everything
    assert fed(spark, 2, 2) == [one for one in everything if one[2] == 2]
    assert fed(spark, 0, 0) == []


def test_changes_have_the_columns_and_the_times_that_delta_gives_them(
    spark: SparkSession, lake: Lake
) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    landed = table.append(ids(1))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    rows = changes(spark, "t", 1)
    assert [(one.name, one.dataType.simpleString()) for one in rows.schema] == [
        ("id", "bigint"),
        ("_change_type", "string"),
        ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]
    (row,) = rows.toArrow().to_pylist()
    assert row["_commit_timestamp"] == datetime.fromtimestamp(landed.tables[0].timestamp_ms / 1000, UTC)


def updated(table: Table, partition: dict[str, str | None]) -> None:
    """An update of 2 to 20, as an engine commits it that writes its changes down."""
    root = Path(table.location)
    (file,) = table.snapshot().files("id = 2")
    later = put_file(root, "later.parquet", ids(1, 20), partition_values=partition)
    written = pa.table({"id": [2, 20], "_change_type": ["update_preimage", "update_postimage"]})
    change = put_file(root, "_change_data/cdc.parquet", written)
    cdc = Cdc(path=change.path, partition_values=partition, size=change.size, data_change=False)
    table.append_actions([removal(file), later, cdc])


@in_each_engine
def test_changes_that_were_written_down_are_taken_as_they_are(
    spark: SparkSession, lake: Lake, engine: str
) -> None:
    spark = using(spark, engine)
    schema = pa.schema({"p": pa.string(), "id": pa.int64()})
    table = lake.create_table("t", schema=schema, partition_by="p", properties=RECORDED)
    table.append(pa.table({"p": ["x", "x"], "id": [1, 2]}))
    updated(table, {"p": "x"})
    assert fed(spark, 1) == [
        ("x", 1, "insert", 1),
        ("x", 2, "insert", 1),
        ("x", 2, "update_preimage", 2),
        ("x", 20, "update_postimage", 2),
    ]


def test_files_that_are_only_rearranged_are_no_changes(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    table.append(ids(1, 2))
    (file,) = table.snapshot().files()
    again = put_file(Path(table.location), "again.parquet", ids(2, 1), data_change=False)
    table.append_actions([removal(file, data_change=False), again])
    assert fed(spark, 2) == []


def test_branches_have_changes_of_their_own(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    lake.branch("dev").create()
    lake.table("t", "dev").append(ids(7))
    table.append(ids(1))
    assert table.backfill_to_version() == 1
    assert fed(spark, 1, ref="dev") == [(7, "insert", 1)]
    assert fed(spark, 1) == [(1, "insert", 1)]
    pinned = changes(spark, "t", 0)
    table.append(ids(2))
    assert pinned.count() == 1


def test_versions_that_did_not_record_their_changes_are_refused(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    table.append(ids(1))
    on = table.snapshot().metadata
    table.commit(2, [replace(on, configuration={**on.configuration, "delta.enableChangeDataFeed": "false"})])
    table.append(ids(2))
    table.commit(4, [on])
    table.append(ids(3))
    assert fed(spark, 0, 1) == [(1, "insert", 1)]
    with pytest.raises(InvalidRequest, match="did not record its changes at version 2"):
        changes(spark, "t", 0)
    with pytest.raises(InvalidRequest, match="did not record its changes at version 3"):
        changes(spark, "t", 3)
    assert fed(spark, 4) == [(3, "insert", 5)]


@pytest.mark.parametrize(("first", "last", "problem"), [(9, None, 9), (0, 9, 9), (-1, 1, -1)])
def test_versions_that_do_not_exist_are_named(
    spark: SparkSession, lake: Lake, first: int, last: int | None, problem: int
) -> None:
    lake.create_table("t", schema=IDS, properties=RECORDED).append(ids(1))
    with pytest.raises(VersionNotFound, match=f"no version {problem}: the newest one is 1"):
        changes(spark, "t", first, last)


def test_bounds_in_the_wrong_order_are_a_mistake(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", schema=IDS, properties=RECORDED).append(ids(1))
    with pytest.raises(InvalidRequest, match="1 is later than 0"):
        changes(spark, "t", 1, 0)


def test_a_version_whose_commit_was_cleaned_up_is_named(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    for value in range(3):
        table.append(ids(value))
    table.backfill_to_version()
    lake.delta.checkpoint("t")
    table.append(ids(3))
    root = Path(table.location)
    for version in range(3):
        (root / str(CommitName(version))).unlink()
    assert fed(spark, 3) == [(2, "insert", 3), (3, "insert", 4)]
    with pytest.raises(VersionNotFound, match="version 2"):
        changes(spark, "t", 2)


def test_a_version_whose_data_is_gone_is_named(spark: SparkSession, lake: Lake) -> None:
    kept_no_longer = RECORDED | {"delta.deletedFileRetentionDuration": "interval 0 hours"}
    table = lake.create_table("t", schema=IDS, properties=kept_no_longer)
    table.append(ids(1))
    (file,) = table.snapshot().files()
    table.overwrite(ids(2))
    (Path(table.location) / file.path).unlink()
    with pytest.raises(VersionNotFound, match=f"the changes of version 1 .*{file.path} was removed"):
        changes(spark, "t", 1)


def test_changes_have_the_columns_of_the_last_version(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", schema=IDS, properties=RECORDED)
    table.append(ids(1))
    wider = make_schema(pa.schema({"id": pa.int64(), "note": pa.string()}))
    table.commit(2, [replace(table.snapshot().metadata, schema_string=write_schema(wider))])
    table.append(pa.table({"id": [2], "note": ["n"]}))
    assert fed(spark, 0, 1) == [(1, "insert", 1)]
    assert fed(spark, 0) == [(1, None, "insert", 1), (2, "n", "insert", 3)]


@pytest.mark.parametrize(
    ("older", "newer", "said"),
    [
        (pa.decimal128(10, 2), pa.int64(), r"'v' had the type decimal\(10,2\), and has the type long"),
        (pa.date32(), pa.int32(), "'v' had the type date, and has the type integer"),
        (pa.struct({"x": pa.int64()}), pa.struct({"x": pa.timestamp("us", "UTC")}), "'v.x' had the type"),
        (pa.list_(pa.string()), pa.list_(pa.binary()), "'v.element' had the type string"),
        (pa.int64(), None, "'v' no longer exists"),
    ],
    ids=["decimal", "date", "in a struct", "in an array", "dropped"],
)
def test_rows_that_the_last_columns_would_show_as_others_are_refused(
    spark: SparkSession, lake: Lake, older: Any, newer: Any, said: str
) -> None:
    table = lake.create_table("t", schema=pa.schema({"id": pa.int64(), "v": older}), properties=RECORDED)
    table.append(pa.table({"id": [1], "v": pa.array([None], older)}))
    (file,) = table.snapshot().files()
    columns = {"id": pa.int64()} | ({} if newer is None else {"v": newer})
    metadata = replace(table.snapshot().metadata, schema_string=write_schema(make_schema(pa.schema(columns))))
    table.commit(2, [metadata, removal(file)])
    with pytest.raises(InvalidRequest, match=said) as caught:
        changes(spark, "t", 0)
    assert caught.value.message.endswith("Read the changes up to version 1.")
    assert fed(spark, 0, 1) == [(1, None, "insert", 1)]
    with pytest.raises(InvalidRequest, match=said):
        changes(spark, "t", 2)


def test_types_that_hold_all_older_values_show_them_as_they_were(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    narrow = pa.schema({"a": pa.int32(), "b": pa.float32(), "c": pa.decimal128(5, 2), "d": pa.int16()})
    wide = pa.schema({"a": pa.int64(), "b": pa.float64(), "c": pa.decimal128(9, 4), "d": pa.float64()})
    row = {"a": 7, "b": 0.5, "c": Decimal("12.30"), "d": 3}
    file = put_file(root, "a.parquet", pa.Table.from_pylist([row], schema=narrow))
    commits: list[list[Action]] = [
        [protocol("changeDataFeed"), metadata_for(make_schema(narrow), (), RECORDED), file],
        [metadata_for(make_schema(wide), (), RECORDED), removal(file)],
    ]
    adopted(lake, root, commits)
    values = (7, 0.5, Decimal("12.3000"), 3.0)
    assert fed(spark, 0) == [(*values, "delete", 1), (*values, "insert", 0)]
    assert fed(spark, 1) == [(*values, "delete", 1)]


def test_a_new_deletion_vector_is_the_deletion_of_the_rows_that_it_adds(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    root = tmp_path / "t"
    begin = with_vectors(ids(), delta_enableChangeDataFeed="true")
    file = written(lake, root, begin[1], ids(*range(10)))

    def cut(*rows: int) -> Add:
        return replace(file, deletion_vector=inline_vector(vector_data(rows), len(rows)))

    def uncut(add: Add) -> Remove:
        return removal(add, deletion_vector=add.deletion_vector)

    commits: list[list[Action]] = [
        [*begin, file],
        [uncut(file), cut(3)],
        [uncut(cut(3)), cut(3, 5, 9)],
        [uncut(cut(3, 5, 9)), cut(5)],
        [uncut(cut(5))],
        [cut(0, 1, 2, 3, 4, 5, 6, 7)],
    ]
    adopted(lake, root, commits)
    assert fed(spark, 1, 3) == [
        (3, "delete", 1),
        (3, "insert", 3),
        (5, "delete", 2),
        (9, "delete", 2),
        (9, "insert", 3),
    ]
    assert fed(spark, 4, 4) == [(one, "delete", 4) for one in range(10) if one != 5]
    assert fed(spark, 5, 5) == [(8, "insert", 5), (9, "insert", 5)]


def test_files_are_read_by_the_partitions_that_they_were_written_in(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """A table that was overwritten with another partitioning, by a writer that tells little of removals."""
    root = tmp_path / "t"
    schema = make_schema(pa.schema({"id": pa.int64(), "p": pa.string()}))

    def partitioned(*names: str) -> Metadata:
        return metadata_for(schema, names, RECORDED)

    plain = put_file(root, "a.parquet", pa.table({"id": [1], "p": ["x"]}))
    by_p = put_file(root, "b.parquet", ids(2), partition_values={"p": "y"})
    commits: list[list[Action]] = [
        [protocol("changeDataFeed"), partitioned(), plain],
        [partitioned("p"), remove(plain.path), by_p],
        [remove(by_p.path)],
    ]
    adopted(lake, root, commits)
    assert fed(spark, 0, 2) == [
        (1, "x", "delete", 1),
        (1, "x", "insert", 0),
        (2, "y", "delete", 2),
        (2, "y", "insert", 1),
    ]

"""Tables that other engines made: read as they read them, and taken over only if they can be served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.errors import InvalidLog, InvalidRequest, TableNotFound, UnsupportedFeature
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Add, Txn
from penstock.formats.delta.protocol.names import CommitName, CompactionName
from penstock.formats.rows.schema import Field, StructType, write_schema
from penstock.lake.lake import Lake
from tests.formats.delta.logs import Table, add, metadata, protocol, remove
from tests.formats.delta.rows import as_rows, duckdb_rows, metadata_for, ours, vector_data, z85

KEY = "shop.foreign"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def put(table: Table, name: str, data: pa.Table, **more: Any) -> Add:
    """A file of a table, and the action that adds it."""
    pq.write_table(data, table.root / name)
    return msgspec.structs.replace(add(name), size=(table.root / name).stat().st_size, **more)


def paths(table: Table, version: int | None = None) -> list[str]:
    return sorted(one.path for one in load_snapshot(table.files, version).read_files())


# -- metadata that others came after -----------------------------------------------------------------------


def test_a_table_that_began_without_a_schema_is_read_and_taken_over(table: Table, lake: Lake) -> None:
    """As pipelines of Databricks make them."""
    table.commit(0, protocol(), metadata())
    first = table.root / str(CommitName(0))
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        line.get("metaData", {}).pop("schemaString", None)
    first.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InvalidLog, match="has no schema up to version 0"):
        load_snapshot(table.files)
    data = pa.table({"id": [1]})
    schema = StructType((Field(name="id", type="long", nullable=True),))
    table.commit(1, metadata_for(schema), put(table, "a.parquet", data))
    assert ours(table).to_pylist() == [{"id": 1}]
    assert lake.delta.read(table.root).to_arrow().to_pylist() == [{"id": 1}]
    with pytest.raises(InvalidLog, match="has no schema up to version 0"):
        lake.delta.read(table.root, version=0)
    lake.delta.adopt(table.root, KEY)
    adopted = lake.table(KEY)
    adopted.append(pa.table({"id": [2]}))
    assert sorted(adopted.to_arrow()["id"].to_pylist()) == [1, 2]
    assert [one.version for one in adopted.history()] == [3, 2, 1, 0]
    lake.finish_background()
    assert lake.delta.compact_log(KEY, 0, 3).name
    assert lake.delta.checkpoint(KEY).name
    lake.sweep(dry_run=True)


# -- compactions that are not reconciled -------------------------------------------------------------------


@pytest.mark.parametrize("order", ["oldest first", "newest first"])
def test_a_compaction_with_a_key_twice_is_not_trusted(table: Table, order: str) -> None:
    table.create(add("a"))
    table.commit(1, add("b"), Txn(app_id="app", version=1))
    table.commit(2, remove("a"), add("c"), Txn(app_id="app", version=2))
    table.commit(3, remove("b"))
    table.commit(4, add("d"))
    lines = [(table.root / str(CommitName(one))).read_text().splitlines() for one in (1, 2, 3)]
    if order == "newest first":
        lines.reverse()
    joined = "\n".join(line for some in lines for line in some)
    for change in (joined, joined.replace('"path":"b"', '"path":"x"')):  # of files, and of batches alone
        (table.root / str(CompactionName(1, 3))).write_text(change)
        assert paths(table) == ["c", "d"]
        assert paths(table, 3) == ["c"]
        assert load_snapshot(table.files).transactions["app"].version == 2
    table.delete(CommitName(2))
    with pytest.raises(InvalidLog, match=r"0002\.json .* is missing"):
        load_snapshot(table.files)


# -- deletion vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_an_inline_vector_is_read_as_kernel_rs_pads_it(table: Table, duckdb: Any, lacking: int) -> None:
    """Whose length is no multiple of four: the last characters begin with a '#' for each byte that lacks."""
    data = vector_data([3, 7], "arrays")
    assert len(data) % 4 == 0
    data += bytes(4 - lacking)  # more than a reader needs
    tail = z85(bytes(lacking) + data[-(4 - lacking) :])
    text = z85(data[: -(4 - lacking)]) + "#" * lacking + tail[lacking:]
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": 2}
    schema = StructType((Field(name="id", type="long", nullable=True),))
    file = put(table, "a.parquet", pa.table({"id": range(10)}), stats='{"numRecords":10}')
    table.commit(0, protocol(reader=("deletionVectors",)), metadata_for(schema), file)
    first = table.root / str(CommitName(0))
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = vector
    first.write_text("\n".join(map(json.dumps, lines)))
    assert ours(table)["id"].to_pylist() == [0, 1, 2, 4, 5, 6, 8, 9]
    assert as_rows(duckdb_rows(duckdb, table)) == as_rows(ours(table))


# -- widened types -----------------------------------------------------------------------------------------

WIDENED: dict[str, tuple[Any, list[Any], str, list[Any]]] = {
    "byte": (pa.int8(), [-1, 127], "long", [-1, 127]),
    "short": (pa.int16(), [-1, 300], "integer", [-1, 300]),
    "integer": (pa.int32(), [-1, 2**31 - 1], "long", [-1, 2**31 - 1]),
    "float": (pa.float32(), [0.1, -2.5], "double", [0.10000000149011612, -2.5]),
    "whole as real": (pa.int32(), [-1, 7], "double", [-1.0, 7.0]),
    "whole as decimal": (pa.int32(), [-1, 7], "decimal(12,2)", [Decimal("-1.00"), Decimal("7.00")]),
    "long as decimal": (pa.int64(), [2**63 - 1, 7], "decimal(20,0)", [Decimal(2**63 - 1), Decimal(7)]),
    "decimal": (pa.decimal128(4, 1), [Decimal("1.5"), Decimal("99.9")], "decimal(10,2)", []),
    "date": (pa.date32(), [date(2026, 11, 1), date(1500, 1, 1)], "timestamp_ntz", []),
}


@pytest.mark.parametrize("name", WIDENED)
def test_what_was_written_before_a_column_was_widened_is_read_as_its_type_of_now(
    table: Table, lake: Lake, duckdb: Any, name: str
) -> None:
    arrow, values, kind, wanted = WIDENED[name]
    changes = {"delta.typeChanges": [{"toType": kind, "fromType": str(arrow)}]}
    schema = StructType(
        (
            Field(name="id", type="long", nullable=True),
            Field(name="v", type=kind, nullable=True, metadata=changes),
        )
    )
    features = ("typeWidening", "timestampNtz") if kind == "timestamp_ntz" else ("typeWidening",)
    data = pa.table({"id": [0, 1], "v": pa.array(values, arrow)})
    told = [str(one) if isinstance(one, date | Decimal) else one for one in values]
    bounds = {name: {"v": pick(told)} for name, pick in (("minValues", min), ("maxValues", max))}
    stats = json.dumps({"numRecords": 2, "nullCount": {"v": 0}, **bounds})
    if "decimal" in str(arrow):
        stats = stats.replace('"1.5"', "1.5").replace('"99.9"', "99.9")
    file = put(table, "a.parquet", data, stats=stats)
    table.commit(0, protocol(reader=features), metadata_for(schema), file)
    read = lake.delta.read(table.root)
    found = read.to_arrow()
    if wanted:
        assert found["v"].to_pylist() == wanted
    assert as_rows(found) == as_rows(duckdb_rows(duckdb, table))
    for one, value in zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True):
        text = f"'{value}'" if isinstance(value, date) else repr(value) if kind == "double" else str(value)
        for sign in ("=", ">=", "<="):
            assert one in read.to_arrow(where=f"v {sign} {text}")["id"].to_pylist()
    lake.delta.adopt(table.root, KEY)
    here = lake.table(KEY)
    here.append(found.slice(0, 1))
    here.backfill_to_version()
    assert here.to_arrow().num_rows == 3
    assert as_rows(here.to_arrow()) == as_rows(duckdb_rows(duckdb, table))


# -- what is said before a table is taken over -------------------------------------------------------------


def refused(lake: Lake, table: Table, match: str) -> None:
    before = sorted(one for one in table.root.rglob("*") if one.is_file())
    with pytest.raises(UnsupportedFeature, match=match):
        lake.delta.adopt(table.root, KEY)
    assert sorted(one for one in table.root.rglob("*") if one.is_file()) == before
    assert not lake.table(KEY).exists


def test_a_shallow_clone_is_refused_before_it_is_taken_over(table: Table, lake: Lake, tmp_path: Path) -> None:
    inside = f"file://{table.root}/mine.parquet"
    table.create(add("a"), add(inside), add(f"file://{tmp_path}/other/b.parquet"))
    refused(lake, table, "which is outside the table")
    table.commit(1, remove(f"file://{tmp_path}/other/b.parquet"))
    lake.delta.adopt(table.root, KEY)


def test_a_column_that_cannot_be_read_is_told_before_the_table_is_taken_over(
    table: Table, lake: Lake
) -> None:
    inner = StructType((Field(name="x", type="void", nullable=True),))
    for kind in ("void", inner):
        fields = (Field(name="id", type="long", nullable=True), Field(name="v", type=kind, nullable=True))
        schema = write_schema(StructType(fields))
        table.create()
        table.commit(1, msgspec.structs.replace(metadata(), schema_string=schema))
        refused(lake, table, "'v' has the type void, which is not supported")


def test_a_table_whose_partitions_cannot_be_written_is_told_before_it_is_taken_over(
    table: Table, lake: Lake
) -> None:
    schema = StructType(
        (Field(name="id", type="long", nullable=True), Field(name="b", type="binary", nullable=True))
    )
    table.commit(0, protocol(), metadata_for(schema, ["b"]))
    refused(lake, table, "'b' has the type binary, which is not supported for partition")


@pytest.mark.parametrize("feature", ["icebergWriterCompatV1", "icebergCompatV2"])
def test_what_cannot_be_taken_over_can_be_read_and_copied(table: Table, lake: Lake, feature: str) -> None:
    # Without mapped columns, which it needs.
    properties = {f"delta.enable{feature[0].upper()}{feature[1:]}": "true"}
    schema = StructType((Field(name="id", type="long", nullable=True),))
    file = put(table, "a.parquet", pa.table({"id": [1, 2]}))
    about = metadata_for(schema, properties=properties)
    table.commit(0, protocol(feature), about, file)
    refused(lake, table, r"or copy its rows into a table of the lake \(lake\.delta\.read\)")
    copy = lake.create_table(KEY, data=lake.delta.read(table.root))
    copy.append(pa.table({"id": [3]}))
    assert sorted(copy.to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_a_table_whose_columns_lack_what_their_mapping_needs_is_not_taken_over(
    table: Table, lake: Lake
) -> None:
    about = msgspec.structs.replace(metadata(), configuration={"delta.columnMapping.mode": "name"})
    table.commit(0, protocol(reader=("columnMapping",)), about)
    refused(lake, table, "'columnMapping' cannot be written: .*; write it with the engine that made it")


def test_reading_says_what_is_there_and_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    root = tmp_path / "elsewhere"
    with pytest.raises(TableNotFound):
        lake.delta.read(root)
    write_deltalake(root, pa.table({"id": [1]}))
    write_deltalake(root, pa.table({"id": [2]}), mode="append")
    read = lake.delta.read(root)
    assert (read.version, read.partition_columns, str(root)) == (1, (), read.location)
    assert [one.operation for one in read.history()] == ["WRITE", "WRITE"]
    assert read.to_arrow(where="id = 2").to_pylist() == [{"id": 2}]
    assert lake.delta.read(root, version=0).to_arrow().to_pylist() == [{"id": 1}]
    assert DeltaTable(root).version() == 1


# -- small -------------------------------------------------------------------------------------------------


def test_a_table_without_partitions_may_say_so_by_none(lake: Lake) -> None:
    table = lake.create_table(KEY, data=pa.table({"id": [1]}), partition_by=None)
    assert table.snapshot().partition_columns == ()
    assert (
        lake.delta.create_empty("shop.empty", pa.schema([("id", pa.int64())]), partition_by=None).version == 0
    )


def test_the_name_that_stands_for_null_is_no_partition_value(lake: Lake) -> None:
    data = pa.table({"id": [1], "p": ["__HIVE_DEFAULT_PARTITION__"]})
    with pytest.raises(InvalidRequest, match="__HIVE_DEFAULT_PARTITION__, which is reserved for null"):
        lake.create_table(KEY, data=data, partition_by="p")
    lake.create_table(KEY, data=data)

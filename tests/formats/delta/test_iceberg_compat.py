"""Tables that suit Iceberg, too: what they are made of, what their files hold, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import penstock
from penstock.errors import InvalidContent, InvalidRequest
from penstock.formats.delta.protocol.column_mapping import (
    ID,
    MAX_ID,
    MODE,
    NESTED_IDS,
    PARQUET_ID,
    stored_name,
)
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.iceberg_compat import ROW_ID_FIELD, ROW_VERSION_FIELD
from penstock.formats.delta.protocol.properties import ICEBERG_COMPAT, MATERIALIZED_PARTITIONS
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table

KEY = "shop.orders"
NESTED = pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.int32()))]))
WIDE = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("m", NESTED), ("day", pa.string())])
PLAIN = pa.schema([("id", pa.int64()), ("day", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        yield lake


def rows(*numbers: int, day: str | None = "mon", schema: pa.Schema = WIDE) -> pa.Table:
    made = [{"id": n, "tags": [str(n)], "m": {"k": {"x": [n]}}, "day": day} for n in numbers]
    return pa.Table.from_pylist([{k: row[k] for k in schema.names} for row in made], schema=schema)


def create(lake: Lake, version: int, **properties: str) -> Table:
    schema = PLAIN if version == 1 else WIDE
    return lake.delta.create(
        KEY,
        data=rows(1, 2, schema=schema),
        partition_by="day",
        properties={ICEBERG_COMPAT[version]: "true", **properties},
    )


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def field_ids(schema: Any) -> dict[str, int]:
    """The id of every field of a file, by its path; elements, keys and values are fields, too."""
    found: dict[str, int] = {}

    def note(field: Any, path: str) -> None:
        if PARQUET_ID in (field.metadata or {}):
            found[path] = int(field.metadata[PARQUET_ID])
        for place in range(field.type.num_fields):
            inner = field.type.field(place)
            if pa.types.is_map(field.type):
                note(field.type.key_field, f"{path}.key")
                note(field.type.item_field, f"{path}.value")
                break
            name = "element" if pa.types.is_list(field.type) else inner.name
            note(inner, f"{path}.{name}")

    for field in schema:
        note(field, field.name)
    return found


def files_of(table: Table) -> list[Any]:
    root = Path(table.location)
    return [pq.read_schema(root / unquote(file.path)) for file in table.snapshot().files()]


@pytest.mark.parametrize("version", ICEBERG_COMPAT)
def test_a_table_has_all_that_iceberg_looks_for_through_every_change(lake: Lake, version: int) -> None:
    table = create(lake, version)
    snapshot = table.snapshot()
    assert {f"icebergCompatV{version}", "columnMapping"} <= supported_features(snapshot.protocol)
    assert snapshot.properties[MODE] == "name"
    table.append(rows(3, day="", schema=table.to_arrow().schema))
    table.update({"id": "id + 10"}, "id = 1")
    table.delete("id = 2")
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(4, day="tue", schema=table.to_arrow().schema))
    table.append(rows(5, schema=table.to_arrow().schema))
    dev.merge_into("main")
    assert ids(table) == [3, 4, 5, 11]
    schema = table.snapshot().schema
    wanted = {stored_name(field): field.metadata[ID] for field in schema.fields}
    for written in files_of(table):
        numbers = field_ids(written)
        assert wanted.items() <= numbers.items()
        own = [name for name in written.names if name in wanted]
        assert own == [stored_name(field) for field in schema.fields]  # the partition column is the last one
        for field in schema.fields:
            assert field.metadata.get(NESTED_IDS, {}).items() <= numbers.items()
    if version > 1:
        nested = [len(field.metadata.get(NESTED_IDS, {})) for field in schema.walk()]
        assert nested == [0, 1, 2, 1, 0]
        assert snapshot.properties[MAX_ID] == "9"
    if version == 3:
        assert any(
            {ROW_ID_FIELD, ROW_VERSION_FIELD} <= set(field_ids(one).values()) for one in files_of(table)
        )
    for file in table.snapshot().files():
        day = file.partition_values[stored_name(schema.fields[-1])]
        path = Path(table.location) / unquote(file.path)
        held = pq.read_table(path, columns=[stored_name(schema.fields[-1])])[0].to_pylist()
        assert set(held) == {day}
        assert "numRecords" in json.loads(file.stats or "")
    table.backfill_to_version()
    assert sorted(pa.table(DeltaTable(table.location).scan())["id"].to_pylist()) == ids(table)
    lake.revert("main")
    assert ids(table) == [3, 5, 11]
    table.restore(version=0)
    assert ids(table) == [1, 2]


def test_what_iceberg_does_not_have_is_refused(lake: Lake) -> None:
    create(lake, 2)

    def refuse(match: str, **properties: str) -> None:
        with pytest.raises((InvalidContent, InvalidRequest), match=match):
            lake.delta.set_properties(KEY, properties)

    refuse("deletion vectors", **{"delta.enableDeletionVectors": "true"})
    refuse("never both true", **{ICEBERG_COMPAT[3]: "true"})
    lake.delta.create("shop.mapped", data=rows(1), properties={"delta.enableTypeWidening": "true"})
    lake.delta.widen_column("shop.mapped", ["m", "value", "x", "element"], "double")
    with pytest.raises(InvalidRequest, match="became double from integer"):
        lake.delta.set_properties("shop.mapped", {ICEBERG_COMPAT[2]: "true", MODE: "name"})
    for properties, match in (
        ({ICEBERG_COMPAT[1]: "true"}, "no arrays and maps"),
        ({ICEBERG_COMPAT[2]: "true", MODE: "none"}, "needs mapped columns"),
        ({ICEBERG_COMPAT[3]: "true", "delta.enableRowTracking": "false"}, "needs row tracking"),
        ({ICEBERG_COMPAT[2]: "true", "delta.enableDeletionVectors": "true"}, "deletion vectors"),
    ):
        with pytest.raises((InvalidContent, InvalidRequest), match=match):
            lake.delta.create("shop.other", data=rows(1), properties=properties)
    kinds = StructType(
        (Field(name="id", type="long", nullable=True), Field(name="v", type="variant", nullable=True))
    )
    with pytest.raises(InvalidContent, match="no type variant"):
        lake.delta.create("shop.other", schema=kinds, properties={ICEBERG_COMPAT[2]: "true"})
    computed = Field(name="at", type="date", nullable=True, metadata={"CURRENT_DEFAULT": "current_date()"})
    with pytest.raises(InvalidContent, match="literals as defaults"):
        lake.delta.create(
            "shop.other",
            schema=StructType((kinds.fields[0], computed)),
            properties={ICEBERG_COMPAT[3]: "true", "delta.feature.allowColumnDefaults": "supported"},
        )
    line = (
        '{"add":{"path":"x.parquet","partitionValues":{%s},"size":1,"modificationTime":0,"dataChange":true}}'
    )
    day = stored_name(lake.table(KEY).snapshot().schema.fields[-1])
    with pytest.raises(InvalidContent, match="numRecords"):
        lake.table(KEY).append_actions(line % f'"{day}":"mon"')


def test_a_table_with_vectors_suits_iceberg_once_its_files_are_written_anew(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2), properties={"delta.enableDeletionVectors": "true"})
    table.delete("id = 1")
    assert any(file.deletion_vector for file in table.snapshot().files())
    switched = {ICEBERG_COMPAT[2]: "true", "delta.enableDeletionVectors": "false", MODE: "name"}
    with pytest.raises(InvalidRequest, match="Rewrite such files first"):
        lake.delta.set_properties(KEY, switched)
    table.optimize()
    lake.delta.set_properties(KEY, switched)
    table.append(rows(3))
    assert ids(table) == [2, 3]
    assert table.snapshot().properties[MODE] == "name"
    nested = table.snapshot().schema.fields[1].metadata[NESTED_IDS]
    assert any(nested.items() <= field_ids(written).items() for written in files_of(table))


def test_columns_that_two_branches_add_have_ids_of_their_own(lake: Lake) -> None:
    create(lake, 2)
    dev = lake.branch("dev").create()
    lake.delta.add_columns(KEY, pa.schema([("l", pa.list_(pa.string()))]), branch="dev")
    lake.table(KEY, "dev").append(rows(3).append_column("l", [[["x"]]]))
    lake.delta.add_columns(KEY, pa.schema([("k", pa.list_(pa.int64()))]))
    dev.merge_into("main")
    table = lake.table(KEY)
    *_, ours, theirs = table.snapshot().schema.fields
    assert (ours.name, list(ours.metadata[NESTED_IDS].values())) == ("k", [13])
    assert (theirs.name, list(theirs.metadata[NESTED_IDS].values())) == ("l", [11])
    assert any(
        theirs.metadata[NESTED_IDS].items() <= field_ids(written).items() for written in files_of(table)
    )
    assert table.properties[MAX_ID] == "13"


@pytest.mark.parametrize(
    "properties",
    [{MATERIALIZED_PARTITIONS: "true"}, {"delta.feature.materializePartitionColumns": "supported"}],
)
def test_files_hold_partition_columns_where_the_table_asks_for_it(
    lake: Lake, properties: dict[str, str]
) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2, schema=PLAIN), partition_by="day", properties=properties)
    assert "materializePartitionColumns" in supported_features(table.snapshot().protocol)
    assert table.properties[MATERIALIZED_PARTITIONS] == "true"
    table.append(rows(3, day="tue", schema=PLAIN))
    table.update({"id": "id + 10"}, "id = 1")
    assert [written.names for written in files_of(table)] == [["id", "day"]] * len(files_of(table))
    table.backfill_to_version()
    assert sorted(pa.table(DeltaTable(table.location).scan())["id"].to_pylist()) == ids(table) == [2, 3, 11]
    lake.delta.set_properties(KEY, {"delta.appendOnly": "false"})
    location = table.location
    lake.delta.release(KEY)
    lake.delta.adopt(location, KEY)
    assert ids(table) == [2, 3, 11]

"""Variants: Arrow has them as the two parts that files have, and refuses what it cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidContent, InvalidRequest, UnsupportedFeature
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.rows.schema import ArrayType, Field, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table

KEY = "shop.events"
ARRAY = ArrayType(element_type="variant", contains_null=True)
SCHEMA = StructType(
    (
        Field(name="id", type="long", nullable=True),
        Field(name="v", type="variant", nullable=True),
        Field(name="a", type=ARRAY, nullable=True),
    )
)
ONE = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}
OBJECT = {"metadata": b"\x01\x02\x00\x01\x02ab", "value": b"\x02\x02\x00\x01\x00\x02\x04\x0c\x01\x05x"}
"""The number 1, and {"a": 1, "b": "x"}."""
VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        yield lake


def rows(*made: tuple[int, dict[str, bytes] | None]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("v", VARIANT), ("a", pa.list_(VARIANT))])
    return pa.Table.from_pylist([{"id": n, "v": v, "a": [v, None]} for n, v in made], schema=schema)


def create(lake: Lake, **properties: str) -> Table:
    return lake.delta.create(KEY, schema=SCHEMA, properties=properties)


def test_variants_are_written_read_changed_merged_and_undone(lake: Lake) -> None:
    table = create(lake)
    assert "variantType" in supported_features(table.snapshot().protocol)
    table.append(rows((1, OBJECT), (2, None)))
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows((3, ONE)))
    table.update({"id": "id + 10"}, "id = 1")
    table.merge(rows((2, ONE)), "target.id = source.id").when_matched_update({"v": "source.v"}).commit()
    dev.merge_into("main")
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {11: OBJECT, 2: ONE, 3: ONE}
    assert table.to_arrow(where="v is null").num_rows == 0
    lake.delta.checkpoint(KEY)
    lake.revert("main")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 11]
    table.overwrite(rows((5, None)))
    assert table.to_arrow(columns=["v"]).to_pylist() == [{"v": None}]
    (file,) = table.snapshot().files()
    group = pq.ParquetFile(Path(table.location) / file.path).schema_arrow.field("v").type
    assert [(field.name, field.nullable) for field in group] == [("value", False), ("metadata", False)]
    assert '"nullCount":{"id":0,"v":1,"a":0}' in (file.stats or "")


def test_what_is_no_variant_is_refused(lake: Lake) -> None:
    table = create(lake)
    half = pa.struct([("value", pa.binary())])
    for kind, value, match in (
        (pa.string(), "{}", "has the type variant, but the data has string"),
        (half, {"value": b"\x0c\x01"}, "a variant is struct"),
        (VARIANT, {"value": b"\x0c\x01", "metadata": None}, "without a value or metadata"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            table.append(pa.table({"id": [1], "v": pa.array([value], kind)}))
    with pytest.raises(InvalidRequest):
        table.to_arrow(where="v = 1")
    with pytest.raises(InvalidContent, match="is a variant"):
        lake.delta.create("shop.other", schema=SCHEMA, partition_by="v")
    with pytest.raises(InvalidRequest):
        lake.delta.create("shop.other", schema=SCHEMA, cluster_by="v")


def test_shredded_variants_are_refused_by_name_and_other_columns_are_read(lake: Lake) -> None:
    table = create(lake, **{"delta.enableVariantShredding": "true"})
    assert {"variantType", "variantShredding"} <= supported_features(table.snapshot().protocol)
    table.append(rows((1, OBJECT)))
    kind = pa.struct([*VARIANT, ("typed_value", pa.int64())])
    shredded = {"metadata": b"\x01\x00\x00", "value": None, "typed_value": 5}
    made = pa.table({"id": [2], "v": pa.array([shredded], kind)})
    path = Path(table.location) / "shredded.parquet"
    pq.write_table(made, path)
    line = (
        '{"add":{"path":"shredded.parquet","partitionValues":{},"size":%d,"modificationTime":0,'
        '"dataChange":true,"stats":"{\\"numRecords\\":1}"}}'
    )
    table.append_actions(line % path.stat().st_size)
    with pytest.raises(UnsupportedFeature, match=r"penstock\.spark\.read"):
        table.to_arrow()
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [1, 2]

"""CHECK constraints and invariants: no row is written for which one of them is not true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.errors import InvalidRequest, MergeConflict, UnsupportedFeature
from penstock.formats.delta.protocol.actions import Metadata, Protocol
from penstock.formats.delta.protocol.features import supported_features, with_features
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table as LakeTable
from tests.formats.delta.logs import Table, protocol
from tests.formats.delta.rows import metadata_for

KEY = "shop.orders"
POSITIVE = {"delta.constraints.positive": "id > 0"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def rows(*numbers: int | None) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{one}" for one in numbers]})


def ids(table: LakeTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def constrain(table: LakeTable, properties: dict[str, str]) -> None:
    """As an engine does that adds a constraint."""
    snapshot = table.snapshot()
    about = snapshot.metadata
    metadata = msgspec.structs.replace(about, configuration={**about.configuration, **properties})
    table.commit(snapshot.version + 1, [with_features(snapshot.protocol, {"checkConstraints"}), metadata])


def parquet_files(root: str | Path) -> set[str]:
    return {one.name for one in Path(root).rglob("*.parquet")}


def test_a_table_with_a_constraint_lives_in_a_lake_and_goes_back(
    lake: Lake, tmp_path: Path, duckdb: Any
) -> None:
    root = tmp_path / "theirs"
    write_deltalake(root, rows(1, 2))
    DeltaTable(root).alter.add_constraint({"positive": "id > 0"})
    lake.delta.adopt(root, KEY)
    table = lake.table(KEY)
    table.append(rows(3))
    there = parquet_files(root)
    for write in (table.append, table.overwrite):
        with pytest.raises(
            InvalidRequest, match=r"violates the constraint 'positive' \(id > 0\).*id = -4"
        ) as e:
            write(rows(4, -4))
        assert e.value.details["constraint"] == "positive"
    with pytest.raises(InvalidRequest, match=r"id = None"):
        table.append(rows(None))
    assert parquet_files(root) == there
    dev = lake.branch("dev").create()
    with pytest.raises(InvalidRequest, match="'positive'"):
        lake.table(KEY, "dev").append(rows(-1))
    lake.table(KEY, "dev").append(rows(5))
    table.append(rows(6))
    dev.merge_into("main")
    table.overwrite(rows(7))
    lake.revert("main")
    assert ids(table) == [1, 2, 3, 5, 6]
    table.restore(version=table.version - 1)
    assert ids(table) == [7]
    table.backfill_to_version()
    assert duckdb.sql(f"SELECT id FROM delta_scan('{root}')").fetchall() == [(7,)]
    lake.delta.release(KEY)
    assert "checkConstraints" in supported_features(lake.delta.read(root).protocol)
    with pytest.raises(Exception, match="failed validation check"):
        write_deltalake(root, rows(-1), mode="append")
    write_deltalake(root, rows(8), mode="append")
    assert sorted(DeltaTable(root).to_pyarrow_table()["id"].to_pylist()) == [7, 8]


def test_a_table_is_created_with_constraints(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="'positive'"):
        lake.create_table(KEY, data=rows(-1), properties=POSITIVE)
    table = lake.create_table(KEY, data=rows(1), properties=POSITIVE)
    assert "checkConstraints" in supported_features(table.snapshot().protocol)
    with pytest.raises(InvalidRequest, match="'positive'"):
        table.append(rows(0))


@pytest.mark.parametrize(
    ("condition", "fits", "violates"),
    [
        ("id between 1 and 3 or name is null", {"id": 2, "name": "x"}, {"id": 9, "name": "x"}),
        ("name like 'a%'", {"id": 1, "name": "ab"}, {"id": 1, "name": "b"}),
        ("name in ('a', 'b')", {"id": 1, "name": "a"}, {"id": 1, "name": None}),
        ("not (id = 5)", {"id": 1, "name": "a"}, {"id": 5, "name": "a"}),
        ("length(name) > id", {"id": 1, "name": "ab"}, {"id": 2, "name": "ab"}),
        ("id > 1.5", {"id": 2, "name": "a"}, {"id": 1, "name": "a"}),
    ],
)
def test_conditions_that_are_put_together_are_understood(
    lake: Lake, condition: str, fits: dict[str, Any], violates: dict[str, Any]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = lake.create_table(KEY, schema=schema, properties={"delta.constraints.c": condition})
    table.append(pa.Table.from_pylist([fits], schema=schema))
    with pytest.raises(InvalidRequest, match="the constraint 'c'"):
        table.append(pa.Table.from_pylist([fits, violates], schema=schema))
    assert table.to_arrow().to_pylist() == [fits]


@pytest.mark.parametrize("condition", ["sqrt(id) > 1", "at > '2026-01-01'", 'name = "a"'])
def test_a_constraint_that_cannot_be_evaluated_is_refused_by_name(lake: Lake, condition: str) -> None:
    names = {"id": pa.int64(), "name": pa.string(), "at": pa.timestamp("us", "UTC")}
    table = lake.create_table(KEY, schema=pa.schema(names), properties={"delta.constraints.odd": condition})
    with pytest.raises(UnsupportedFeature, match="against the constraint 'odd'") as caught:
        table.append(pa.table({"id": [1]}))
    assert "penstock.spark.write" in caught.value.message
    assert table.version == 0


def test_an_empty_text_in_a_partition_is_null_to_a_constraint(lake: Lake) -> None:
    condition = {"delta.constraints.named": "name is not null"}
    table = lake.create_table(KEY, schema=rows(1).schema, partition_by="name", properties=condition)
    with pytest.raises(InvalidRequest, match="'named'"):
        table.append(pa.table({"id": [1], "name": [""]}))


def test_invariants_of_columns_are_checked(table: Table, lake: Lake) -> None:
    note = {"delta.invariants": '{"expression":{"expression":"id > 3"}}'}
    field = Field(name="id", type="long", nullable=True, metadata=note)
    about = metadata_for(StructType((field, Field(name="name", type="string", nullable=True))))
    table.commit(0, protocol("invariants"), about)
    lake.delta.adopt(table.root, KEY)
    adopted = lake.table(KEY)
    adopted.append(rows(4))
    with pytest.raises(InvalidRequest, match=r"the invariant of the column 'id' \(id > 3\).*id = 3"):
        adopted.append(rows(5, 3))
    assert ids(adopted) == [4]


def test_marks_that_no_protocol_puts_in_force_stay_out_of_force(table: Table, lake: Lake) -> None:
    note = {"delta.invariants": '{"expression":{"expression":"id > 3"}}'}
    about = metadata_for(StructType((Field(name="id", type="long", nullable=True, metadata=note),)))
    table.commit(0, Protocol(min_reader_version=1, min_writer_version=1), about)
    lake.delta.adopt(table.root, KEY)
    lake.table(KEY).append(pa.table({"id": [1]}))
    with pytest.raises(UnsupportedFeature, match=r"unset 'delta\.constraints\.positive'"):
        lake.delta.adopt(without_force(lake, table.root.parent / "second"), "shop.second")


def without_force(lake: Lake, root: Path) -> Path:
    second = Table(root, lake.places)
    schema = StructType((Field(name="id", type="long", nullable=True),))
    second.commit(0, protocol(), metadata_for(schema, properties=POSITIVE))
    return root


# -- branches ----------------------------------------------------------------------------------------------


def test_rows_of_one_branch_and_a_constraint_of_another_are_a_conflict(lake: Lake) -> None:
    """As in Delta: whoever wrote rows without knowing of the constraint has to write them again."""
    table = lake.create_table(KEY, data=rows(1))
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(2))
    constrain(table, POSITIVE)
    with pytest.raises(MergeConflict):
        dev.merge_into("main")
    other = lake.branch("other").create()
    constrain(lake.table(KEY, "other"), {"delta.constraints.small": "id < 100"})
    table.append(rows(3))
    with pytest.raises(MergeConflict):
        other.merge_into("main")
    third = lake.branch("third").create()
    constrain(lake.table(KEY, "third"), {"delta.constraints.small": "id < 100"})
    constrain(table, {"delta.constraints.few": "id < 10"})
    with pytest.raises(MergeConflict):
        third.merge_into("main")
    alone = lake.branch("alone").create()
    constrain(lake.table(KEY, "alone"), {"delta.constraints.small": "id < 100"})
    alone.merge_into("main")
    with pytest.raises(InvalidRequest, match="'few'"):
        table.append(rows(50))
    assert "delta.constraints.small" in table.properties


def test_rows_do_not_come_back_past_a_constraint_that_came_since(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1))
    table.append(rows(-1))
    table.overwrite(rows(2))
    deleted = lake.branch("main").head
    constrain(table, POSITIVE)
    with pytest.raises(MergeConflict, match=r"the constraint 'positive' .* was added since"):
        lake.revert(deleted)
    assert ids(table) == [2]


def test_a_commit_is_not_repeated_where_its_rows_were_not_checked(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1), properties=POSITIVE)
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    about = there.snapshot().metadata
    without = {name: text for name, text in about.configuration.items() if name not in POSITIVE}
    there.commit(1, [msgspec.structs.replace(about, configuration=without)])
    there.append(rows(-1))
    with pytest.raises(MergeConflict, match="has the constraint 'positive'"):
        lake.transplant([dev.head], "main")
    assert ids(table) == [1]
    dev.merge_into("main")
    assert ids(table) == [-1, 1]


def test_a_constraint_that_lands_before_an_append_has_its_turn_refuses_it(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1))
    before: Metadata = table.snapshot().metadata

    def late() -> Iterator[Any]:
        constrain(table, POSITIVE)
        yield from rows(-1).to_batches()

    reader = pa.RecordBatchReader.from_batches(rows(1).schema, late())
    with pytest.raises(penstock.errors.TableConflict, match="checkConstraints"):
        table.append(reader)
    assert before.configuration.items() <= table.snapshot().metadata.configuration.items()
    assert ids(table) == [1]

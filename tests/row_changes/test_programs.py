"""Programs of statements at random against a plain list of rows, read back by others."""

from __future__ import annotations

from random import Random
from typing import Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.protocol.row_ids import ROW_ID
from penstock.lake.lake import Lake
from tests.row_changes.statements import SCHEMA, Program, counted

STEPS = 12
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
KINDS = [
    pytest.param({}, ("day",), id="partitioned"),
    pytest.param({}, (), id="one folder"),
    pytest.param(VECTORS, ("day",), id="deletion vectors"),
    pytest.param(VECTORS | FEED, (), id="deletion vectors and a feed"),
    pytest.param(FEED, ("day",), id="a feed"),
    pytest.param(MAPPED | FEED, ("day",), id="mapped columns and a feed"),
    pytest.param(TRACKED, ("day",), id="row tracking"),
    pytest.param(TRACKED | VECTORS | FEED, (), id="row tracking and deletion vectors"),
    pytest.param(MAPPED | VECTORS, (), id="mapped columns and deletion vectors"),
]


@pytest.mark.parametrize(("properties", "partition_by"), KINDS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.verify)])
def test_statements_leave_the_rows_that_a_list_would_have(
    lake: Lake, duckdb: Any, properties: dict[str, str], partition_by: tuple[str, ...], seed: int
) -> None:
    lake.delta.create("t", schema=SCHEMA, partition_by=partition_by, properties=properties)
    table = lake.table("t")
    program = Program(Random(f"{seed}{properties}{partition_by}"))
    program.append(table)
    for _ in range(STEPS):
        program.step(table)
        assert counted(table.to_arrow().to_pylist()) == counted(program.rows), program.done
    table.backfill_to_version()
    theirs = deltalake.DeltaTable(table.location)
    assert counted(pa.table(theirs.scan()).to_pylist()) == counted(program.rows)
    if MAPPED.items() <= properties.items() and partition_by:
        return  # DuckDB takes partition values of mapped columns for null
    found = duckdb.sql(f"SELECT * FROM delta_scan('{table.location}')").to_arrow_table()
    assert counted(found.to_pylist()) == counted(program.rows)


@pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["rewritten", "deletion vectors"])
def test_a_change_feed_tells_every_change(lake: Lake, properties: dict[str, str]) -> None:
    lake.delta.create("t", schema=SCHEMA, partition_by=["day"], properties=properties)
    table = lake.table("t")
    program = Program(Random(str(properties)))
    rows_at = {table.version: counted([])}
    program.append(table)
    rows_at[table.version] = counted(program.rows)
    for _ in range(STEPS):
        program.step(table)
        rows_at[table.version] = counted(program.rows)
    table.backfill_to_version()
    feed = deltalake.DeltaTable(table.location).load_cdf(starting_version=1)
    changes = pa.RecordBatchReader.from_stream(feed).read_all().to_pylist()
    for version in range(1, table.version + 1):
        own = [row for row in changes if row["_commit_version"] == version]
        gone = counted(row for row in own if row["_change_type"] in ("delete", "update_preimage"))
        come = counted(row for row in own if row["_change_type"] in ("insert", "update_postimage"))
        assert rows_at[version] == rows_at[version - 1] - gone + come, program.done[version - 2]
        pre, post = (
            sum(row["_change_type"] == f"update_{image}" for row in own)
            for image in ("preimage", "postimage")
        )
        assert pre == post


@pytest.mark.parametrize("properties", [{}, VECTORS | FEED], ids=["rewritten", "deletion vectors"])
def test_changes_are_branched_merged_reverted_and_restored(lake: Lake, properties: dict[str, str]) -> None:
    lake.delta.create("t", schema=SCHEMA, partition_by=["day"], properties=properties)
    program = Program(Random(7))
    for _ in range(3):
        program.append(lake.table("t"))
    for number, statement in enumerate((Program.delete, Program.update, Program.merge, Program.upsert)):
        before = list(program.rows)
        program.append(lake.table("t"))
        lake.branch(f"b{number}").create()
        branched = lake.table("t", f"b{number}")
        kept = list(program.rows)
        statement(program, branched)
        assert counted(branched.to_arrow().to_pylist()) == counted(program.rows)
        assert counted(lake.table("t").to_arrow().to_pylist()) == counted(kept)
        merged = lake.merge(f"b{number}")
        assert counted(lake.table("t").to_arrow().to_pylist()) == counted(program.rows)
        after, program.rows = program.rows, kept
        if merged.commit is not None and counted(after) != counted(kept):
            lake.revert(merged.commit)
            assert counted(lake.table("t").to_arrow().to_pylist()) == counted(kept)
            lake.table("t").restore(ref=merged.commit)
            assert counted(lake.table("t").to_arrow().to_pylist()) == counted(after)
            program.rows = after
        assert len(program.rows) >= len(before) - len(kept)


@pytest.mark.parametrize("properties", [TRACKED, TRACKED | VECTORS], ids=["rewritten", "deletion vectors"])
def test_rows_keep_their_ids(lake: Lake, properties: dict[str, str]) -> None:
    lake.delta.create("t", schema=SCHEMA, partition_by=["day"], properties=properties)
    table, program = lake.table("t"), Program(Random(3))
    for _ in range(4):
        program.append(table)

    def row_ids() -> dict[int, int]:
        rows = table.to_arrow(columns=["id", ROW_ID]).to_pylist()
        return {row["id"]: row[ROW_ID] for row in rows}

    before = row_ids()
    assert len(set(before.values())) == len(before)
    table.delete("id = 3")
    table.update({"amount": "amount + 1"}, "id % 2 = 0")
    table.update({"day": "'a'"}, "id = 5")
    rows = [{"id": number, "day": "b", "amount": 1.0, "name": None} for number in (1, 900)]
    table.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().commit()
    table.optimize()
    after = row_ids()
    assert after.pop(900) not in before.values()
    assert after == {number: row_id for number, row_id in before.items() if number != 3}

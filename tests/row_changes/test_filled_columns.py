"""Updates and merges of tables that give values to their columns: defaults, generated columns and numbers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.column_rules import (
    CURRENT_DEFAULT,
    EXPLICIT,
    GENERATED,
    HIGH_WATER_MARK,
    IDENTITY_START,
    IDENTITY_STEP,
)
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 18, 1, tzinfo=UTC)
DAY, NEXT = date(2026, 11, 17), date(2026, 11, 18)
VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def column(name: str, kind: str, notes: dict[str, Any] | None = None, *, nullable: bool = True) -> Field:
    return Field(name=name, type=kind, nullable=nullable, metadata=notes or {})


FILLED = StructType(
    (
        column("id", "long"),
        column("at", "timestamp"),
        column("state", "string", {CURRENT_DEFAULT: "'open'"}, nullable=False),
        column("day", "date", {GENERATED: "CAST(at AS DATE)"}),
        column("twice", "long", {GENERATED: "id * 2"}),
    )
)


def numbered(*, explicit: bool = False) -> StructType:
    notes = {IDENTITY_START: 1, IDENTITY_STEP: 1, EXPLICIT: explicit}
    return StructType((column("number", "long", notes), column("name", "string"), column("size", "long")))


@pytest.fixture(params=[{}, VECTORS], ids=["rewritten", "deletion vectors"])
def filled(lake: Lake, request: pytest.FixtureRequest) -> Table:
    table = lake.delta.create("t", schema=FILLED, partition_by="day", properties=request.param)
    table.append(pa.table({"id": [1, 2, 3], "at": pa.array([NOON] * 3, pa.timestamp("us", "UTC"))}))
    return table


def read(table: Table) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["state"], row["day"], row["twice"]) for row in table.to_arrow().to_pylist()}


def sort(rows: Any) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in pa.table(rows).to_pylist())


def check_others(table: Table, duckdb: Any) -> None:
    """deltalake and DuckDB read the same rows."""
    table.backfill_to_version()
    rows = sort(table.to_arrow())
    assert sort(deltalake.DeltaTable(table.location).scan()) == rows
    assert sort(duckdb.sql(f"SELECT * FROM delta_scan('{table.location}')").to_arrow_table()) == rows


def test_generated_columns_are_computed_anew_for_rows_that_change(filled: Table, duckdb: Any) -> None:
    assert filled.update({"id": "id + 10"}, "id = 1").updated == 1
    assert filled.update({"at": LATER, "state": "'shut'"}, "id = 2").updated == 1
    assert read(filled) == {11: ("open", DAY, 22), 2: ("shut", NEXT, 4), 3: ("open", DAY, 6)}
    assert filled.update({"twice": "id * 2"}, "id = 3").updated == 1
    before = filled.version
    with pytest.raises(InvalidRequest, match=r"generated column 'twice'.*leave the column out"):
        filled.update({"twice": "7"}, "id = 3")
    with pytest.raises(InvalidRequest, match="'state' is not nullable"):
        filled.update({"state": None}, "id = 3")
    assert filled.version == before
    check_others(filled, duckdb)


def test_a_merge_fills_in_what_its_clauses_do_not_give(filled: Table, duckdb: Any) -> None:
    (
        filled.merge([{"id": 1, "more": 5}, {"id": 7, "more": 70}], on="target.id = source.id")
        .when_matched_update({"id": "source.more"})
        .when_not_matched_insert({"id": "source.id"})
        .when_not_matched_by_source_update({"state": "'left'"}, "id = 3")
        .commit()
    )
    assert read(filled) == {
        5: ("open", DAY, 10), 7: ("open", None, 14), 2: ("open", DAY, 4), 3: ("left", DAY, 6),
    }  # fmt: skip
    rows = pa.table({"id": [2, 8], "at": pa.array([LATER, LATER], pa.timestamp("us", "UTC"))})
    filled.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().commit()
    assert read(filled)[2] == ("open", NEXT, 4)
    assert read(filled)[8] == ("open", NEXT, 16)
    wrong = rows.append_column("twice", pa.array([4, 17]))
    before = filled.version
    with pytest.raises(InvalidRequest, match="generated column 'twice'"):
        filled.merge(wrong.slice(1), on=["id"]).when_matched_update_all().commit()
    with pytest.raises(InvalidRequest, match="no column is assigned"):
        filled.merge(rows, on=["id"]).when_not_matched_insert({}).commit()
    assert filled.version == before
    check_others(filled, duckdb)


def test_changes_of_filled_columns_are_merged_reverted_and_restored(lake: Lake, filled: Table) -> None:
    before = read(filled)
    dev = lake.branch("dev").create()
    lake.table("t", "dev").update({"at": LATER}, "id = 1")
    rows = [{"id": 9, "at": LATER}]
    lake.table("t", "dev").merge(rows, on=["id"]).when_not_matched_insert_all().commit()
    after = {**before, 1: ("open", NEXT, 2), 9: ("open", NEXT, 18)}
    filled.append(pa.table({"id": [4], "at": pa.array([NOON], pa.timestamp("us", "UTC"))}))
    merged = dev.merge_into("main")
    assert read(filled) == {**after, 4: ("open", DAY, 8)}
    assert merged.commit is not None
    lake.revert(merged.commit)
    assert read(filled) == {**before, 4: ("open", DAY, 8)}
    filled.restore(ref=merged.commit)
    assert read(filled) == {**after, 4: ("open", DAY, 8)}


def test_an_expression_that_only_spark_computes_is_refused_before_anything_is_written(lake: Lake) -> None:
    schema = StructType((column("id", "long"), column("h", "integer", {GENERATED: "hash(id)"})))
    table = lake.delta.create("t", schema=schema)
    with pytest.raises(UnsupportedFeature, match=r"the generated column 'h' \(hash\(id\)\)"):
        table.update({"id": "2"})
    with pytest.raises(UnsupportedFeature, match=r"the generated column 'h' \(hash\(id\)\)"):
        table.merge([{"id": 1}], on=["id"]).when_not_matched_insert_all().commit()
    assert table.version == 0
    assert not list(Path(table.location).rglob("*.parquet"))


def numbers_of(table: Table) -> dict[str, int]:
    return {row["name"]: row["number"] for row in table.to_arrow().to_pylist()}


def upsert(table: Table, *names: str) -> None:
    rows = [{"name": name, "size": 1} for name in names]
    table.merge(rows, on=["name"]).when_matched_update_all().when_not_matched_insert_all().commit()


def test_rows_keep_their_numbers_and_new_ones_get_the_next(lake: Lake, duckdb: Any) -> None:
    table = lake.delta.create("t", schema=numbered())
    table.append(pa.table({"name": ["a", "b"]}))
    upsert(table, "b", "c")
    table.update({"size": "5"}, "name = 'a'")
    lake.branch("dev").create()
    upsert(lake.table("t", "dev"), "d")
    upsert(table, "e", "f")
    assert numbers_of(table) == {"a": 1, "b": 2, "c": 3, "e": 5, "f": 6}
    assert numbers_of(lake.table("t", "dev"))["d"] == 4
    table.overwrite(pa.table({"name": ["g"], "size": [9]}), where="size = 9")
    assert numbers_of(table)["g"] == 7
    with pytest.raises(InvalidRequest, match="numbers do not change"):
        table.update({"number": "8"}, "name = 'a'")
    with pytest.raises(InvalidRequest, match="numbers the table assigns"):
        table.merge([{"number": 1, "name": "x"}], on=["name"]).when_not_matched_insert(
            {"number": "source.number", "name": "source.name"}
        ).commit()
    mark = table.snapshot().schema.fields[0].metadata[HIGH_WATER_MARK]
    assert mark == 7
    check_others(table, duckdb)


def test_rows_may_come_with_numbers_where_the_column_says_so(lake: Lake) -> None:
    table = lake.delta.create("t", schema=numbered(explicit=True))
    rows = [{"number": 40, "name": "x", "size": 1}]
    table.merge(rows, on=["number"]).when_matched_update_all().when_not_matched_insert_all().commit()
    upsert(table, "y")
    table.merge([{"number": 40, "name": "z", "size": 2}], on=["number"]).when_matched_update_all().commit()
    assert numbers_of(table) == {"z": 40, "y": 41}


@pytest.mark.parametrize("appends", [1, 8])
def test_a_merge_that_numbered_appends_overtake_is_planned_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, appends: int
) -> None:
    """However often: they change no row that the merge has read, but say how far numbers are given away."""
    table = lake.delta.create("t", schema=numbered())
    table.append(pa.table({"name": ["a"]}))
    commit = DeltaJob.commit_actions

    names = [f"between {number}" for number in range(appends)]
    left = iter(names)

    def overtaken(self: DeltaJob, actions: Any, **options: Any) -> Any:
        if (name := next(left, None)) is not None:
            table.append(pa.table({"name": [name]}))
        return commit(self, actions, **options)

    monkeypatch.setattr(DeltaJob, "commit_actions", overtaken)
    upsert(table, "a", "new")
    rows = table.to_arrow().to_pylist()
    assert sorted(row["name"] for row in rows) == ["a", *names, "new"]
    assert len({row["number"] for row in rows}) == appends + 2
    written = list(Path(table.location).rglob("part-*.parquet"))
    assert len(written) == appends + 2  # of the appends and the merge; what was planned before is removed

"""Changes of what a table is: each is one commit, refused before anything is written if it does not fit, and
survives merges, reverts, restores and other readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import penstock
from penstock.errors import InvalidRequest, MergeConflict, TableConflict, UnsupportedFeature
from penstock.formats.delta.protocol.column_mapping import MODE
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.wider_types import TYPE_CHANGES
from penstock.formats.rows.schema import Field
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.formats.delta.rows import as_rows

KEY = "shop.orders"
WIDE = {"delta.enableTypeWidening": "true"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def rows(*numbers: int | None, kind: Any = None) -> pa.Table:
    names = [None if one is None else f"n{one}" for one in numbers]
    return pa.table({"id": pa.array(numbers, kind or pa.int32()), "name": names})


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def column(table: Table, name: str) -> Field:
    found = table.snapshot().schema.field(name)
    assert found is not None
    return found


def check_readers(table: Table, duckdb: Any) -> None:
    table.backfill_to_version()
    theirs = duckdb.sql(f"SELECT * FROM delta_scan('{table.location}')").to_arrow_table()
    assert as_rows(theirs) == as_rows(table.to_arrow())
    assert DeltaTable(table.location).version() == table.version


def test_properties_are_set_and_unset_and_features_follow(lake: Lake, duckdb: Any) -> None:
    table = lake.create_table(KEY, data=rows(1))
    turned_on = {
        "delta.enableChangeDataFeed": "changeDataFeed",
        "delta.enableDeletionVectors": "deletionVectors",
        "delta.appendOnly": "appendOnly",
        "delta.enableTypeWidening": "typeWidening",
    }
    for name, feature in turned_on.items():
        before = table.version
        done = lake.delta.set_properties(KEY, {name: "true"})
        assert done.version == before + 1
        assert feature in supported_features(table.snapshot().protocol)
        assert table.properties[name] == "true"
    lake.delta.set_properties(KEY, {"delta.checkpointPolicy": "v2", "owner": "sales", "n": "1"})
    assert "v2Checkpoint" in supported_features(table.snapshot().protocol)
    lake.delta.set_properties(KEY, {"delta.feature.vacuumProtocolCheck": "supported"})
    assert "vacuumProtocolCheck" in supported_features(table.snapshot().protocol)
    assert not any(name.startswith("delta.feature.") for name in table.properties)
    lake.delta.set_properties(KEY, {"delta.enableRowTracking": "true"})
    assert table.to_arrow(columns=["id", "_row_id"]).to_pylist() == [{"id": 1, "_row_id": 0}]
    lake.delta.unset_properties(KEY, ["owner", "delta.appendOnly"])
    assert "owner" not in table.properties
    assert "appendOnly" in supported_features(table.snapshot().protocol)
    lake.delta.unset_properties(KEY, ["owner"], if_exists=True)
    told = table.history(1)[0]
    assert told.operation == "UNSET TBLPROPERTIES"
    assert told.info["operationParameters"] == {"properties": '["owner"]', "ifExists": "true"}
    table.append(rows(2))
    assert ids(table) == [1, 2]
    check_readers(table, duckdb)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nothing": (lambda d: d.set_properties(KEY, {}), "give at least one"),
    "unknown": (lambda d: d.set_properties(KEY, {"delta.appendonly": "true"}), "'delta.appendOnly'"),
    "value": (lambda d: d.set_properties(KEY, {"delta.appendOnly": "maybe"}), "must be 'true' or 'false'"),
    "duration": (lambda d: d.set_properties(KEY, {"delta.logRetentionDuration": "x"}), "not a duration"),
    "owner": (
        lambda d: d.set_properties(KEY, {"delta.managedCommitOwnerName": "x"}),
        "with the owner of the table",
    ),
    "times": (
        lambda d: d.unset_properties(KEY, ["delta.enableInCommitTimestamps"]),
        "with the owner of the table",
    ),
    "constraint": (lambda d: d.set_properties(KEY, {"delta.constraints.a": "id > 0"}), "add_constraint"),
    "ids": (
        lambda d: d.set_properties(KEY, {"delta.columnMapping.maxColumnId": "9"}),
        "maintained by the writers",
    ),
    "mode": (lambda d: d.set_properties(KEY, {MODE: "id"}), "from 'none' to 'id'"),
    "version": (lambda d: d.set_properties(KEY, {"delta.minWriterVersion": "7"}), "follow from the features"),
    "feature": (lambda d: d.set_properties(KEY, {"delta.feature.bogus": "supported"}), "'bogus'"),
    "iceberg": (lambda d: d.set_properties(KEY, {"delta.enableIcebergCompatV2": "true"}), "mapped columns"),
    "uniform": (
        lambda d: d.set_properties(KEY, {"delta.universalFormat.enabledFormats": "iceberg"}),
        "readable as Iceberg",
    ),
    "missing": (lambda d: d.unset_properties(KEY, ["nope"]), "no property 'nope'"),
    "condition": (lambda d: d.add_constraint(KEY, "big", "id > 1"), r"'big' \(id > 1\).*id = 1"),
    "function": (lambda d: d.add_constraint(KEY, "f", "sqrt(id) > 0"), "without Spark"),
    "drop": (lambda d: d.drop_constraint(KEY, "nope"), "no constraint 'nope'"),
    "null": (lambda d: d.set_not_null(KEY, "name"), "null in a row with id = 2"),
    "part": (lambda d: d.set_not_null(KEY, ["name", "x"]), "only whole columns"),
    "column": (lambda d: d.comment_column(KEY, "nope", "x"), "no column 'nope'"),
    "type": (lambda d: d.widen_column(KEY, "id", "long"), "delta.enableTypeWidening"),
    "default": (lambda d: d.set_default(KEY, "id", "'x'"), "cannot be evaluated"),
    "call": (lambda d: d.set_default(KEY, "id", "uuid()"), "'uuid' is not supported without Spark"),
    "itself": (lambda d: d.move_column(KEY, "id", after="id"), "after itself"),
    "rename": (lambda d: d.rename_column(KEY, "id", "x"), MODE),
    "clustering": (lambda d: d.cluster_by(KEY, "nope"), "no such column"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_change_that_does_not_fit_is_refused_and_leaves_nothing(lake: Lake, name: str) -> None:
    data = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
    table = lake.create_table(KEY, data=data)
    lake.finish_background()
    files = {one.name for one in Path(table.location).rglob("*")}
    change, message = REFUSED[name]
    with pytest.raises((InvalidRequest, UnsupportedFeature), match=message):
        change(lake.delta)
    assert table.version == 0
    assert {one.name for one in Path(table.location).rglob("*")} == files


def test_a_constraint_is_added_once_all_rows_satisfy_it(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1, -2))
    with pytest.raises(InvalidRequest, match="id = -2"):
        lake.delta.add_constraint(KEY, "Positive", "id > 0")
    table.overwrite(rows(1))
    lake.delta.add_constraint(KEY, "Positive", "id > 0")
    assert table.properties["delta.constraints.positive"] == "id > 0"
    with pytest.raises(InvalidRequest, match="already"):
        lake.delta.add_constraint(KEY, "positive", "id > 5")
    with pytest.raises(InvalidRequest, match="'positive'"):
        table.append(rows(-1))
    lake.delta.drop_constraint(KEY, "POSITIVE")
    table.append(rows(-1))
    assert ids(table) == [-1, 1]


def test_what_refused_changes_advise_makes_them_possible(lake: Lake) -> None:
    data = pa.table({"id": [1, 2], "_change_type": ["a", "b"]})
    properties = {MODE: "name", "delta.dataSkippingNumIndexedCols": "1"}
    table = lake.create_table(KEY, data=data, properties=properties)
    with pytest.raises(InvalidRequest, match="rename it first"):
        lake.delta.set_properties(KEY, {"delta.enableChangeDataFeed": "true"})
    lake.delta.rename_column(KEY, "_change_type", "kind")
    lake.delta.set_properties(KEY, {"delta.enableChangeDataFeed": "true"})
    lake.delta.add_constraint(KEY, "positive", "id > 0")
    with pytest.raises(InvalidRequest, match="drop it first"):
        lake.delta.add_constraint(KEY, "positive", "id > 1")
    lake.delta.drop_constraint(KEY, "positive")
    lake.delta.add_constraint(KEY, "positive", "id >= 1")
    with pytest.raises(InvalidRequest, match="has no statistics of the column"):
        lake.delta.cluster_by(KEY, ["kind"])
    lake.delta.set_properties(KEY, {"delta.dataSkippingStatsColumns": "id,kind"})
    table.analyze()
    lake.delta.cluster_by(KEY, ["kind"])
    assert as_rows(table.to_arrow()) == as_rows(data.rename_columns(["id", "kind"]))


def test_rows_that_land_while_a_constraint_is_added_are_a_conflict(lake: Lake, monkeypatch: Any) -> None:
    """The rows were looked at before: one that came since may violate it."""
    table = lake.create_table(KEY, data=rows(1))
    read = type(table.snapshot()).to_batches

    def overtaken(self: Any, *args: Any, **options: Any) -> Any:
        found = list(read(self, *args, **options))
        monkeypatch.undo()
        table.append(rows(-1))
        return found

    attempts: list[Callable[[], Any]] = [
        lambda: lake.delta.add_constraint(KEY, "positive", "id > 0"),
        lambda: lake.delta.set_not_null(KEY, "name"),
    ]
    for change in attempts:
        monkeypatch.setattr(type(table.snapshot()), "to_batches", overtaken)
        with pytest.raises(TableConflict):
            change()
    assert ids(table) == [-1, -1, 1]
    assert "delta.constraints.positive" not in table.properties


def test_columns_are_commented_moved_defaulted_and_widened(lake: Lake, duckdb: Any) -> None:
    table = lake.create_table(KEY, data=rows(1), properties=WIDE)
    lake.delta.comment_column(KEY, "name", "as it is called")
    lake.delta.move_column(KEY, "name")
    assert [one.name for one in table.snapshot().schema.fields] == ["name", "id"]
    lake.delta.move_column(KEY, "name", after="id")
    lake.delta.set_default(KEY, "name", "'nobody'")
    lake.delta.widen_column(KEY, "id", "bigint")
    assert column(table, "id").metadata[TYPE_CHANGES] == [{"fromType": "integer", "toType": "long"}]
    table.append(pa.table({"id": [2**40]}))
    table.append(pa.table({"id": [3], "name": pa.array([None], pa.string())}))
    names = dict(zip(table.to_arrow()["id"].to_pylist(), table.to_arrow()["name"].to_pylist(), strict=True))
    assert names == {1: "n1", 2**40: "nobody", 3: None}
    lake.delta.set_not_null(KEY, "id")
    with pytest.raises(InvalidRequest, match="not nullable"):
        table.append(rows(None, kind=pa.int64()))
    lake.delta.drop_not_null(KEY, "id")
    lake.delta.drop_default(KEY, "name")
    table.append(pa.table({"id": [4]}))
    assert table.to_arrow(where="id = 4")["name"].to_pylist() == [None]
    lake.delta.set_description(KEY, "all orders")
    assert table.snapshot().metadata.description == "all orders"
    lake.delta.cluster_by(KEY, ["id"])
    assert table.snapshot().clustering == (("id",),)
    lake.delta.cluster_by(KEY, [])
    assert table.snapshot().clustering == ()
    assert column(table, "name").metadata == {"comment": "as it is called"}
    lake.delta.add_constraint(KEY, "positive", "id > 0")
    with pytest.raises(InvalidRequest, match="the constraint 'positive'"):
        lake.delta.widen_column(KEY, "id", "decimal(20,0)")
    check_readers(table, duckdb)


def test_types_inside_of_columns_are_widened(lake: Lake) -> None:
    kind = pa.struct([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.int16(), pa.float32()))])
    data = pa.table({"s": pa.array([{"l": [1], "m": [(1, 0.5)]}], kind)})
    table = lake.create_table(KEY, data=data, properties=WIDE)
    lake.delta.widen_column(KEY, ["s", "l", "element"], "long")
    lake.delta.widen_column(KEY, ["s", "m", "key"], "int")
    lake.delta.widen_column(KEY, ["s", "m", "value"], "double")
    inside: Any = column(table, "s").type
    assert inside.fields[0].metadata[TYPE_CHANGES] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "element"}
    ]
    assert [one["fieldPath"] for one in inside.fields[1].metadata[TYPE_CHANGES]] == ["key", "value"]
    table.append(pa.table({"s": [{"l": [2**40], "m": [(70000, 0.1)]}]}, schema=table.to_arrow().schema))
    assert sorted(one["l"][0] for one in table.to_arrow()["s"].to_pylist()) == [1, 2**40]


def test_columns_become_mapped_and_can_then_be_renamed_and_dropped(lake: Lake, duckdb: Any) -> None:
    table = lake.create_table(KEY, data=rows(1))
    lake.delta.set_properties(KEY, {MODE: "name"})
    lake.delta.rename_column(KEY, "name", "title")
    table.append(pa.table({"id": pa.array([2], pa.int32()), "title": ["b"]}))
    lake.delta.add_columns(KEY, pa.schema([("name", pa.string())]))
    table.append(pa.table({"id": pa.array([3], pa.int32()), "name": ["c"]}))
    assert as_rows(table.to_arrow()) == as_rows(
        pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int32()),
                "title": ["n1", "b", None],
                "name": [None, None, "c"],
            }
        )
    )
    check_readers(table, duckdb)


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "set": lambda d, branch: d.set_properties(KEY, {"owner": "x"}, branch=branch),
    "unset": lambda d, branch: d.unset_properties(KEY, ["team"], branch=branch),
    "describe": lambda d, branch: d.set_description(KEY, "x", branch=branch),
    "comment": lambda d, branch: d.comment_column(KEY, "id", "x", branch=branch),
    "move": lambda d, branch: d.move_column(KEY, "name", branch=branch),
    "default": lambda d, branch: d.set_default(KEY, "name", "'x'", branch=branch),
    "widen": lambda d, branch: d.widen_column(KEY, "id", "long", branch=branch),
    "null": lambda d, branch: d.set_not_null(KEY, "id", branch=branch),
    "constraint": lambda d, branch: d.add_constraint(KEY, "small", "id < 100", branch=branch),
    "cluster": lambda d, branch: d.cluster_by(KEY, "id", branch=branch),
}
READ_ROWS = ("null", "constraint")
"""Changes that rest on all rows, so that rows which came meanwhile are a conflict."""


def state(table: Table) -> tuple[Any, ...]:
    snapshot = table.snapshot()
    about = snapshot.metadata
    return about.configuration, about.description, snapshot.schema, snapshot.clustering


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_on_a_branch_is_merged_reverted_and_restored(lake: Lake, name: str) -> None:
    table = lake.create_table(KEY, data=rows(1), properties={**WIDE, "team": "a"})
    before = state(table)
    dev = lake.branch("dev").create()
    CHANGES[name](lake.delta, "dev")
    after = state(lake.table(KEY, "dev"))
    assert state(table) == before != after
    other = lake.branch("other").create()
    table.append(rows(2))
    if name in READ_ROWS:
        with pytest.raises(MergeConflict):
            dev.merge_into("main")
        lake.revert("main")
        return
    dev.merge_into("main")
    assert state(table) == after
    assert ids(table) == [1, 2]
    lake.revert("main")
    assert state(table)[1:3] == before[1:3]
    assert {**before[0], **state(table)[0]} == before[0]
    table.restore(version=table.version - 1)
    assert state(table) == after
    assert ids(table) == [1, 2]
    CHANGES[name](lake.delta, "other")  # the same on another branch comes to the same, or is a conflict
    with suppress(MergeConflict):
        other.merge_into("main")
    assert state(table) == after


def test_two_branches_that_change_one_property_are_a_conflict(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1))
    dev = lake.branch("dev").create()
    lake.delta.set_properties(KEY, {"owner": "theirs"}, branch="dev")
    lake.delta.set_properties(KEY, {"owner": "ours"})
    with pytest.raises(MergeConflict, match="owner"):
        dev.merge_into("main")
    assert table.properties["owner"] == "ours"


def test_a_branch_that_appended_merges_into_one_that_was_widened(lake: Lake, duckdb: Any) -> None:
    table = lake.create_table(KEY, data=rows(1), properties=WIDE)
    for number, branch in enumerate(("dev", "other"), 2):
        lake.branch(branch).create()
        lake.table(KEY, branch).append(rows(number))
    lake.delta.widen_column(KEY, "id", "long", branch="other")
    lake.table(KEY, "other").append(rows(2**40, kind=pa.int64()))
    lake.branch("other").merge_into("main")
    table.append(rows(2**41, kind=pa.int64()))
    lake.branch("dev").merge_into("main")
    assert ids(table) == [1, 2, 3, 2**40, 2**41]
    assert ids(lake.table(KEY, "dev")) == [1, 2]
    check_readers(table, duckdb)
    late = lake.branch("late").create()
    lake.delta.set_properties(KEY, {"owner": "x"}, branch="late")
    lake.delta.add_columns(KEY, pa.schema([("more", pa.string())]))
    late.merge_into("main")
    assert table.properties["owner"] == "x"
    assert [one.name for one in table.snapshot().schema.fields] == ["id", "name", "more"]
    lake.delta.comment_column(KEY, "id", "kept")
    with pytest.raises(MergeConflict, match=r"rows were added since|changed"):
        lake.revert(next(one.id for one in lake.log() if "other" in (one.message or "")))


def test_widening_one_column_to_two_types_is_a_conflict(lake: Lake) -> None:
    lake.create_table(KEY, data=rows(1), properties=WIDE)
    dev = lake.branch("dev").create()
    lake.delta.widen_column(KEY, "id", "double", branch="dev")
    lake.delta.widen_column(KEY, "id", "long")
    with pytest.raises(MergeConflict):
        dev.merge_into("main")


def test_a_change_is_done_once_under_a_key(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1))
    first, again = (lake.delta.set_description(KEY, "x", idempotency_key="k") for _ in range(2))
    assert first.commit.id == again.commit.id
    assert table.version == 1


def test_retention_and_checkpoints_follow_the_properties(lake: Lake) -> None:
    table = lake.create_table(KEY, data=rows(1))
    lake.delta.set_properties(KEY, {"delta.checkpointInterval": "3"})
    for number in range(2, 6):
        table.append(rows(number))
        lake.finish_background()  # of versions that are published together, only the last has one
    log = Path(table.location) / "_delta_log"
    assert [int(one.name[:20]) for one in sorted(log.glob("*.checkpoint*.parquet"))] == [2, 5]
    table.overwrite(rows(9))
    lake.delta.set_properties(KEY, {"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    lake.finish_background()  # a checkpoint is of what is published
    lake.delta.checkpoint(KEY)
    last = json.loads((log / "_last_checkpoint").read_text())
    assert last["version"] == table.version
    tombstones = pq.read_table(log / f"{table.version:020}.checkpoint.parquet")["remove"]
    assert tombstones.null_count == len(tombstones)

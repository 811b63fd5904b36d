"""Clustered tables: created, adopted, written with the statistics they need, merged, undone, released."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidContent, InvalidRequest
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Add, DomainMetadata, Protocol
from penstock.formats.delta.protocol.clustering import CLUSTERING, DOMAIN, parse_clustering
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.properties import PROTECTED_BEFORE
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.rows.arrow_types import make_schema
from penstock.lake.lake import Lake
from penstock.lake.table import Table as LakeTable
from tests.formats.delta.logs import Table, add, protocol
from tests.formats.delta.rows import as_rows, deltalake, duckdb_rows, metadata_for

KEY = "shop.clustered"
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"], "part": [{"x": 1.5}, {"x": 2.5}]})
FEW = {"delta.dataSkippingNumIndexedCols": "1"}
"""Statistics of the first column alone: clustering columns are not among those that have them anyway."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def clustered(table: Table, told: Any = (("name",), ("part", "x"))) -> None:
    """A table as Delta Spark makes it."""
    domain = DomainMetadata(domain=DOMAIN, configuration=json.dumps({"clusteringColumns": told}))
    about = metadata_for(make_schema(ROWS.schema), properties=FEW)
    files = write_files(table.place, about, ROWS, clustering=parse_clustering(domain.configuration))
    table.commit(0, protocol(CLUSTERING, "domainMetadata"), about, domain, *files)


def counted(file: Add) -> set[str]:
    return set(json.loads(file.stats or "{}")["nullCount"])


def ids(table: LakeTable) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def rows(count: int) -> pa.Table:
    return pa.table({"id": [count], "name": [f"n{count}"], "part": [{"x": float(count)}]})


@pytest.mark.parametrize("told", [(("name",), ("part", "x")), ("name",)])
def test_a_clustered_table_is_taken_over_written_merged_undone_and_handed_back(
    table: Table, lake: Lake, duckdb: Any, told: Any
) -> None:
    clustered(table, told)
    lake.delta.adopt(table.root, KEY)
    here = lake.table(KEY)
    wanted = {"id", "name", "part"} if len(told) == 2 else {"id", "name"}
    here.append(rows(3))
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(4))
    here.append(rows(5))
    dev.merge_into("main")
    assert ids(here) == [1, 2, 3, 4, 5]
    lake.revert("main")
    assert ids(here) == [1, 2, 3, 5]
    here.overwrite(rows(6))
    before = here.version
    here.restore(version=before - 1)
    assert ids(here) == [1, 2, 3, 5]
    here.append(rows(7))
    assert {frozenset(counted(one)) for one in here.snapshot().files()} == {frozenset(wanted)}
    assert here.snapshot().clustering == tuple((one,) if isinstance(one, str) else one for one in told)
    lake.delta.checkpoint(KEY)
    here.backfill_to_version()
    assert as_rows(deltalake(table)) == as_rows(duckdb_rows(duckdb, table)) == as_rows(here.to_arrow())
    lake.delta.release(KEY)
    left = load_snapshot(table.files)
    assert CLUSTERING in supported_features(left.protocol)
    assert parse_clustering(left.domains[DOMAIN].configuration) == tuple(
        (one,) if isinstance(one, str) else one for one in told
    )


def test_a_clustered_table_is_created_empty_or_with_rows(lake: Lake, duckdb: Any) -> None:
    with_rows = lake.delta.create(KEY, data=ROWS, cluster_by=["name", "part.x"], properties=FEW)
    empty = lake.delta.create("shop.empty", schema=ROWS.schema, cluster_by="name", properties=FEW)
    empty.append(ROWS)
    for table, wanted in ((with_rows, {"id", "name", "part"}), (empty, {"id", "name"})):
        snapshot = table.snapshot()
        assert {CLUSTERING, "domainMetadata"} <= supported_features(snapshot.protocol)
        assert [counted(one) for one in snapshot.files()] == [wanted]
        table.backfill_to_version()
        sql = f"SELECT id FROM delta_scan('{table.location}') WHERE name = 'b'"
        assert duckdb.sql(sql).fetchall() == [(2,)]
    assert with_rows.snapshot().clustering == (("name",), ("part", "x"))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"cluster_by": "none"}, "no such column"),
        ({"cluster_by": "part"}, "without minimum and maximum"),
        ({"cluster_by": ["id", "id"]}, "given twice"),
        ({"cluster_by": ["id", "name", "part.x", "a", "b"]}, "at most 4"),
    ],
)
def test_columns_that_no_table_is_clustered_by_are_refused(lake: Lake, wanted: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        lake.delta.create(KEY, data=ROWS, **wanted)


def test_a_table_is_not_partitioned_and_clustered(lake: Lake) -> None:
    with pytest.raises(InvalidContent, match="both partitioned and clustered"):
        lake.delta.create(KEY, data=ROWS, cluster_by="id", partition_by="name")


def test_files_of_other_writers_without_statistics_of_clustering_columns_are_refused(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=ROWS, cluster_by="name", properties=FEW)
    without = add("x.parquet", stats='{"numRecords":1,"nullCount":{"id":0}}')
    with pytest.raises(InvalidContent, match="clustered by 'name'"):
        table.append_actions([without])
    with pytest.raises(InvalidContent, match="clustered by 'name'"):
        table.commit(1, [without])
    fitting = msgspec.structs.replace(without, stats='{"numRecords":1,"nullCount":{"id":0,"name":0}}')
    assert table.append_actions([fitting]).version == 1


# -- checkpointProtection ----------------------------------------------------------------------------------


def test_what_protects_checkpoints_stays_through_writes_and_restores(table: Table, lake: Lake) -> None:
    """As a table is from which Delta Spark has dropped a feature."""
    schema = make_schema(ROWS.schema)
    before, after = metadata_for(schema), metadata_for(schema, properties={PROTECTED_BEFORE: "1"})
    files = write_files(table.place, before, ROWS)
    table.commit(0, protocol(reader=("deletionVectors",)), before, *files)
    dropped = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("checkpointProtection",))
    table.commit(1, dropped, after)
    lake.delta.adopt(table.root, KEY)
    here = lake.table(KEY)
    here.append(rows(3))
    here.restore(version=0)
    assert ids(here) == [1, 2]
    assert here.properties[PROTECTED_BEFORE] == "1"
    lake.revert("main")
    assert ids(here) == [1, 2, 3]
    assert here.properties[PROTECTED_BEFORE] == "1"
    about = here.snapshot().metadata
    less = {name: text for name, text in about.configuration.items() if name != PROTECTED_BEFORE}
    for changed in (less, {**less, PROTECTED_BEFORE: "0"}):
        with pytest.raises(InvalidContent, match=PROTECTED_BEFORE):
            here.commit(here.version + 1, [msgspec.structs.replace(about, configuration=changed)])
    lake.delta.release(KEY)
    assert load_snapshot(table.files).properties[PROTECTED_BEFORE] == "1"

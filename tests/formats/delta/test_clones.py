"""Shallow clones: what they are, what other readers see of them, and what nobody can make of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow.parquet import write_table  # type: ignore[import-untyped]

import penstock
from penstock.errors import CommitConflict, InvalidContent, InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.delta.errors import UnsupportedFeature, VersionNotFound
from penstock.formats.delta.protocol.actions import Add, Metadata, parse_commit
from penstock.formats.delta.protocol.clones import OWNER_CONF, clone_sources
from penstock.formats.delta.protocol.row_ids import highest_row_id
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.formats.delta.row_id_log import check_row_ids

DAYS = ["a b", "ü", "100%", "a=b", "%3A", None]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init(tmp_path / "lake", warehouse=str(tmp_path / "ware house")) as lake:
        yield lake


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: Table) -> list[int]:
    found: list[int] = table.to_arrow()["id"].to_pylist()
    return sorted(found)


def files(table: Table) -> list[Add]:
    return list(table.snapshot().files())


def first_commit(table: Table) -> Path:
    table.backfill_to_version()
    return Path(table.location) / "_delta_log" / f"{0:020}.json"


def test_it_has_the_source_s_files_and_goes_its_own_way(lake: Lake) -> None:
    source = lake.create_table("a.source", data=rows(1, 2))
    made = lake.delta.clone("a.source", "a.clone", message="to try something")
    clone = lake.table("a.clone")
    assert (made.version, lake.branch().log(limit=1)[0].message) == (0, "to try something")
    assert [file.path for file in files(clone)] == [
        f"{source.location}/{file.path}".replace(" ", "%20") for file in files(source)
    ]
    assert not list(Path(clone.location).glob("*.parquet"))
    clone.append(rows(3))
    source.append(rows(4))
    clone.update({"id": "id + 10"}, "id = 1")
    assert (ids(clone), ids(source)) == ([2, 3, 11], [1, 2, 4])
    clone.merge(rows(2, 5), ["id"]).when_not_matched_insert_all().commit()
    assert ids(clone) == [2, 3, 5, 11]


def test_its_history_says_what_it_was_cloned_from(lake: Lake) -> None:
    source = lake.create_table("source", data=rows(1))
    lake.delta.clone("source", "clone")
    (past,) = lake.table("clone").snapshot().history()
    assert past.operation == "CLONE"
    info = next(line.raw for line in parse_commit(first_commit(lake.table("clone")).read_bytes()))
    told = msgspec.json.decode(info)["commitInfo"]["operationParameters"]
    assert told == {"source": source.location, "sourceVersion": "0", "isShallow": "true"}


def test_names_of_partitions_are_found_again(lake: Lake) -> None:
    data = pa.table({"id": range(len(DAYS)), "day": DAYS})
    lake.create_table("source", data=data, partition_by="day")
    lake.delta.clone("source", "clone")
    lake.delta.clone("clone", "again")
    for key in ("clone", "again"):
        assert lake.table(key).to_arrow().sort_by("id").to_pydict() == data.to_pydict()
    lake.table("clone").delete("day = '100%'")
    assert ids(lake.table("clone")) == [0, 1, 3, 4, 5]


def test_mapped_columns_constraints_and_clusters_come_along(lake: Lake) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    lake.delta.create("source", data=rows(1), properties=properties, cluster_by="id")
    lake.delta.rename_column("source", "id", "number")
    lake.delta.add_constraint("source", "positive", "number > 0")
    lake.delta.clone("source", "clone")
    clone = lake.table("clone")
    assert clone.to_arrow().to_pydict() == {"number": [1]}
    assert clone.snapshot().clustering == lake.table("source").snapshot().clustering
    with pytest.raises(InvalidRequest, match="positive"):
        clone.append(pa.table({"number": [-1]}))
    clone.append(pa.table({"number": [2]}))


def test_rows_keep_their_ids_and_new_ones_get_others(lake: Lake) -> None:
    lake.delta.create("source", data=rows(1, 2, 3), properties={"delta.enableRowTracking": "true"})
    lake.table("source").update({"id": "id + 10"}, "id = 2")
    lake.table("source").append(rows(4))
    lake.delta.clone("source", "clone")

    def row_ids(key: str) -> dict[int, int]:
        found = lake.table(key).snapshot().to_arrow(["id", "_row_id"])
        return dict(zip(found["id"].to_pylist(), found["_row_id"].to_pylist(), strict=True))

    before = row_ids("source")
    assert row_ids("clone") == before
    lake.table("clone").append(rows(5))
    after = row_ids("clone")
    assert len(set(after.values())) == len(after)
    lake.table("clone").optimize()
    assert row_ids("clone") == after


def row_ids(lake: Lake, key: str, branch: str = "main") -> dict[int, int]:
    """The id of each row, by its number; no id is there twice."""
    found = lake.table(key, branch).to_arrow(columns=["id", "_row_id"])
    by_number = dict(zip(found["id"].to_pylist(), found["_row_id"].to_pylist(), strict=True))
    assert len(set(by_number.values())) == found.num_rows
    return by_number


@pytest.mark.parametrize("clone_on", ["main", "dev"])
def test_a_clone_of_a_table_of_a_branch_gives_ids_as_if_its_rows_landed(lake: Lake, clone_on: str) -> None:
    source = lake.delta.create("source", data=rows(1, 2), properties={"delta.enableRowTracking": "true"})
    lake.branch("dev").create()
    there = lake.table("source", "dev")
    there.append(rows(3, 4))
    there.update({"id": "id + 10"}, "id in (1, 3)")
    source.append(rows(5, 6))
    lake.delta.clone("source", "clone", ref="dev", branch=clone_on)
    cloned = row_ids(lake, "clone", clone_on)
    assert (cloned[11], cloned[2]) == (0, 1)
    assert all(3 < cloned[number] < 2**62 for number in (13, 4))
    lake.branch("other").create(at=clone_on)
    lake.table("clone", clone_on).append(rows(20, 21))
    lake.table("clone", "other").append(rows(22))
    lake.table("clone", "other").update({"id": "id + 10"}, "id = 22")
    lake.merge(clone_on, "other")
    assert len(row_ids(lake, "clone", "other")) == 7
    lake.merge("other", clone_on)
    if clone_on != "main":
        row_ids(lake, "clone", clone_on)
        lake.merge(clone_on, "main")
    landed = row_ids(lake, "clone")
    assert landed.items() >= cloned.items()
    assert landed.keys() == {11, 2, 13, 4, 20, 21, 32}
    assert max(landed.values()) < 2**62
    lake.table("clone").append(rows(40))
    row_ids(lake, "clone")


RowState = tuple[int, int]
"""The id of a row, and the version at which it was last written."""


def row_states(lake: Lake, branch: str = "main") -> dict[int, RowState]:
    found = lake.table("clone", branch).to_arrow(columns=["id", "_row_id", "_row_commit_version"])
    states = {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in found.to_pylist()}
    assert len({one for one, _ in states.values()}) == found.num_rows
    return states


def tracked_clone(lake: Lake, branch: str, has_vectors: bool) -> dict[int, RowState]:
    """A clone of a table of some versions, with rows that were written down in other files than first."""
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": str(has_vectors).lower()}
    source = lake.delta.create("source", data=rows(1, 2, 3), properties=properties)
    for number in range(4, 10):
        source.append(rows(number, number + 10))
    source.update({"id": "id + 100"}, "id = 2")
    source.optimize()
    source.append(rows(20, 21, 22))
    if branch != "main":
        lake.branch(branch).create()
    lake.delta.clone("source", "clone", branch=branch)
    return row_states(lake, branch)


@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_clone_keeps_ids_and_its_rows_are_as_old_as_itself(lake: Lake, has_vectors: bool) -> None:
    cloned = tracked_clone(lake, "main", has_vectors)
    assert {number: one for number, (one, _) in cloned.items()} == row_ids(lake, "source")
    assert {version for _, version in cloned.values()} == {0}
    clone = lake.table("clone")
    clone.append(rows(30))
    clone.update({"id": "id + 1000"}, "id = 21")
    clone.optimize()
    now = row_states(lake)
    assert {number: one for number, one in now.items() if number in cloned} == {
        number: one for number, one in cloned.items() if number != 21
    }
    assert now[1021] == (cloned[21][0], 2)
    clone.backfill_to_version()
    check_row_ids(clone.location)


@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("made_on", ["main", "dev"])
def test_branches_of_a_clone_keep_the_ids_of_cloned_rows(lake: Lake, made_on: str, has_vectors: bool) -> None:
    """Rows that a branch writes to other files, or marks as deleted in them, and that are gone where it is
    from."""
    cloned = tracked_clone(lake, made_on, has_vectors)
    lake.branch("work").create(at=made_on)
    work = lake.table("clone", "work")
    work.update({"id": "id + 1000"}, "id = 21")
    work.delete("id = 5")
    lake.table("clone", made_on).delete("id > 0")
    on_work = row_states(lake, "work")
    kept = {number: one for number, one in cloned.items() if number not in (5, 21)}
    assert {number: one for number, one in on_work.items() if number != 1021} == kept
    assert on_work[1021][0] == cloned[21][0]
    lake.revert(made_on, made_on)
    lake.merge("work", made_on)
    if made_on != "main":
        assert {one: row_states(lake, made_on)[one] for one in kept} == kept
        lake.merge(made_on, "main")
    landed = row_states(lake)
    assert {number: one for number, one in landed.items() if number != 1021} == kept
    assert landed[1021][0] == cloned[21][0]
    assert landed[1021][1] == lake.table("clone").version
    clone = lake.table("clone")
    clone.backfill_to_version()
    check_row_ids(clone.location)


def test_ids_that_cloned_files_have_written_down_are_not_given_again_when_a_branch_lands(lake: Lake) -> None:
    properties = {"delta.enableRowTracking": "true"}
    source = lake.delta.create("source", data=rows(*range(10)), properties=properties)
    source.delete("id <> 5")
    lake.branch("dev").create()
    lake.delta.clone("source", "clone", branch="dev")
    lake.table("clone", "dev").append(rows(*range(20, 30)))
    lake.merge("dev", "main")
    landed = row_ids(lake, "clone")
    assert landed[5] == 5
    assert len(landed) == 11


def test_a_clone_that_lands_without_new_rows_says_how_far_ids_were_given(lake: Lake) -> None:
    lake.delta.create("source", data=rows(1, 2), properties={"delta.enableRowTracking": "true"})
    lake.branch("dev").create()
    lake.delta.clone("source", "clone", branch="dev")
    lake.merge("dev", "main")
    clone = lake.table("clone")
    assert highest_row_id(clone.snapshot().log_snapshot.domains) >= 1
    clone.append(rows(3))
    assert row_ids(lake, "clone") == {1: 0, 2: 1, 3: 2}


def test_a_table_of_a_branch_alone_is_cloned(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    properties = {"delta.enableRowTracking": "true"}
    made = lake.delta.create("source", data=rows(1, 2), properties=properties, branch=dev.name)
    made.append(rows(3))
    lake.delta.clone("source", "clone", ref="dev")
    lake.table("clone").append(rows(4))
    assert row_ids(lake, "clone") == {1: 0, 2: 1, 3: 2, 4: 3}


def test_an_empty_table_is_cloned(lake: Lake) -> None:
    lake.delta.create("source", schema=rows().schema)
    lake.delta.clone("source", "clone")
    lake.table("clone").append(rows(1))
    assert (ids(lake.table("clone")), ids(lake.table("source"))) == ([1], [])
    lake.delta.release("clone")  # it needs nothing of others


def test_adopted_and_converted_tables_are_cloned(lake: Lake, tmp_path: Path) -> None:
    adopted, folder = tmp_path / "ware house" / "adopted", tmp_path / "ware house" / "folder"
    write_deltalake(str(adopted), rows(1, 2))
    folder.mkdir()
    write_table(rows(3), folder / "any name.parquet")
    lake.delta.adopt(adopted, "adopted")
    lake.delta.convert(folder, "converted")
    for key, expected in (("adopted", [1, 2]), ("converted", [3])):
        lake.delta.clone(key, f"{key}_clone")
        lake.table(key).delete("id > 0")
        assert (ids(lake.table(f"{key}_clone")), ids(lake.table(key))) == (expected, [])


def test_it_is_done_once_under_a_key(lake: Lake) -> None:
    lake.create_table("source", data=rows(1))
    made = lake.delta.clone("source", "clone", idempotency_key="k")
    lake.branch().drop("source")
    assert lake.delta.clone("source", "clone", idempotency_key="k") == made
    assert ids(lake.table("clone")) == [1]


def test_what_cannot_be_cloned_is_refused_before_anything_is_written(lake: Lake) -> None:
    lake.create_table("source", data=rows(1))
    lake.table("files").files.put("a.csv", b"1")
    lake.table("vectors").write(rows(1), format="lance")
    head = lake.branch().head
    with pytest.raises(CommitConflict, match="exists"):
        lake.delta.clone("source", "source")
    with pytest.raises(KeyNotFound):
        lake.delta.clone("nothing", "clone")
    with pytest.raises(VersionNotFound):
        lake.delta.clone("source", "clone", version=9)
    for other in ("files", "vectors"):
        with pytest.raises(NotManaged):
            lake.delta.clone(other, "clone")
    assert lake.branch().head == head


# -- other readers -----------------------------------------------------------------------------------------


def test_other_readers_that_take_whole_addresses_read_it(lake: Lake, duckdb: Any, tmp_path: Path) -> None:
    """DuckDB and deltalake's own engine do; deltalake's Arrow datasets look below the table only."""
    source = lake.delta.create(
        "source", data=rows(1, 2, 3), properties={"delta.enableDeletionVectors": "true"}
    )
    source.delete("id = 1")
    lake.create_table("plain", data=rows(5))
    for key in ("source", "plain"):
        lake.delta.clone(key, f"{key}_clone")
    lake.table("plain_clone").append(rows(6))
    (found,) = duckdb.sql(
        f"SELECT list(id ORDER BY id) FROM delta_scan('{location(lake, 'plain_clone')}')"
    ).fetchall()
    assert found == ([5, 6],)
    (found,) = duckdb.sql(
        f"SELECT list(id ORDER BY id) FROM delta_scan('{location(lake, 'source_clone')}')"
    ).fetchall()
    assert found == ([2, 3],)
    foreign = DeltaTable(location(lake, "plain_clone"))
    read = pa.table(QueryBuilder().register("t", foreign).execute("SELECT id FROM t ORDER BY id"))
    assert read["id"].to_pylist() == [5, 6]
    with pytest.raises(FileNotFoundError):
        foreign.to_pyarrow_table()


def location(lake: Lake, key: str) -> str:
    lake.delta.publish(key)
    return lake.table(key).location


# -- what nobody can make of them --------------------------------------------------------------------------


def test_no_commit_brings_files_of_others_into_a_table(lake: Lake) -> None:
    """Not into a clone either: it has those that it was cloned with, and no more."""
    source = lake.create_table("source", data=rows(1))
    lake.delta.clone("source", "clone")
    source.append(rows(2))
    secret = next(file for file in files(source) if '"minValues":{"id":2}' in (file.stats or ""))
    for key in ("source", "clone"):
        whole = msgspec.structs.replace(secret, path=f"{source.location}/{secret.path}".replace(" ", "%20"))
        with pytest.raises(InvalidContent, match="is absolute"):
            lake.delta.commit({key: [whole]})
    assert ids(lake.table("clone")) == [1]


def test_no_writer_says_whose_files_a_table_has(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("source", data=rows(1))
    lake.create_table("other", data=rows(2))
    settings = msgspec.json.encode({"sources": msgspec.json.encode([str(tmp_path)]).decode()}).decode()
    with pytest.raises(InvalidRequest, match="can only be set by the owner"):
        lake.delta.create("mine", schema=rows().schema, properties={OWNER_CONF: settings})
    metadata = lake.table("other").snapshot().metadata
    assert isinstance(metadata, Metadata)
    forged = msgspec.structs.replace(metadata, configuration={**metadata.configuration, OWNER_CONF: settings})
    with pytest.raises(InvalidContent, match="can only change with the owner"):
        lake.delta.commit({"other": [forged]}, versions={"other": 1})


def test_a_shallow_clone_of_others_is_not_adopted(lake: Lake, tmp_path: Path) -> None:
    """Whatever its log says of an owner: nobody here knows whose the files are."""
    source = lake.create_table("source", data=rows(1))
    lake.delta.clone("source", "clone")
    copy = tmp_path / "ware house" / "copy"
    (copy / "_delta_log").mkdir(parents=True)
    shutil.copy(first_commit(lake.table("clone")), copy / "_delta_log")
    with pytest.raises(UnsupportedFeature, match="outside the table"):
        penstock.read_delta(copy).to_arrow()
    lines = [
        msgspec.json.decode(line) for line in first_commit(lake.table("clone")).read_bytes().splitlines()
    ]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 2}
        if "metaData" in line:
            line["metaData"]["configuration"] = {}
    (copy / "_delta_log" / f"{0:020}.json").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    with pytest.raises(UnsupportedFeature, match="outside the table"):
        lake.delta.adopt(copy, "copy")
    assert ids(source) == [1]


def test_whose_files_it_has_stays_known_when_the_table_changes(lake: Lake) -> None:
    source = lake.create_table("source", data=rows(1))
    lake.delta.clone("source", "clone")
    clone = lake.table("clone")
    lake.delta.set_properties("clone", {"delta.appendOnly": "false"})
    lake.delta.add_columns("clone", pa.schema({"more": pa.string()}))
    assert clone_sources(clone.snapshot().metadata.configuration) == (source.location,)
    clone.restore(version=0)
    assert clone_sources(clone.snapshot().metadata.configuration) == (source.location,)
    assert ids(clone) == [1]


def test_a_lake_that_was_lost_gives_clones_back(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("source", data=rows(1))
    lake.delta.clone("source", "clone")
    lake.finish_background()
    with penstock.init(tmp_path / "new", warehouse=str(tmp_path / "ware house")) as new:
        for key in ("source", "clone"):
            new.delta.recover(lake.table(key).location, key, lost=lake.id)
        assert ids(new.table("clone")) == [1]
        new.table("clone").delete("id = 1")
        assert (ids(new.table("clone")), ids(new.table("source"))) == ([], [1])

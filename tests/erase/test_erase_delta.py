"""Deleted rows of a Delta table are gone from every byte once the table is erased; all else stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import (
    EraseRefused,
    HistoryExpired,
    MergeConflict,
    NotManaged,
)
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.lake.erase import DeltaErasure
from penstock.formats.delta.protocol.actions import Cdc, DeletionVector
from penstock.formats.delta.rows.vectors import DeletedRows
from penstock.formats.delta.rows.vectors import inline_vector as rows_vector
from penstock.kernel.settings import Settings
from penstock.lake.erase import EraseRun, FirstVersionKept
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.erase.tables import MARKER, alone, people, where_is
from tests.formats.delta.rows import inline_vector, vector_data, vector_file_data, z85
from tests.sweep.tables import LateClock

LEFT = [{"id": 1, "name": "ada"}, {"id": 3, "name": "zoe"}]


def rows_of(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_arrow().select(["id", "name"]).sort_by("id").to_pylist()
    return found


def without_marker(table: Table) -> None:
    """Delete the row by writing all others anew."""
    found = table.to_arrow()
    table.overwrite(found.filter(pc.not_equal(found["name"], MARKER)))


def delete_by_vector(table: Table, storage: str) -> None:
    """Delete the row by a deletion vector, as engines do that rewrite nothing."""
    (file,) = table.snapshot().files()
    place = table.lake.places.open_place(table.get_commits().location)
    data = vector_data([1])
    vector = inline_vector(data, 1)
    if storage == "file":
        one = uuid4()
        content, (start,) = vector_file_data(data)
        place.put(f"deletion_vector_{one}.bin", content)
        vector = DeletionVector(
            storage_type="u",
            path_or_inline_dv=z85(one.bytes),
            offset=start,
            size_in_bytes=len(data),
            cardinality=1,
        )
    stats = msgspec.json.encode({**msgspec.json.decode(file.stats or "{}"), "tightBounds": False}).decode()
    add = msgspec.structs.replace(file, deletion_vector=vector, stats=stats)
    table.commit(table.get_commits().latest_version + 1, [make_remove(file, 1), add])


def delete_with_feed(table: Table) -> None:
    """Delete the row, and tell the change feed so."""
    found = table.to_arrow()
    place = Path(table.get_commits().location)
    gone = found.filter(pc.equal(found["name"], MARKER))
    (place / "_change_data").mkdir()
    name = "_change_data/cdc-00000-0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f.c000.snappy.parquet"
    pq.write_table(gone.append_column("_change_type", [["delete"]]), place / name)
    (file,) = table.snapshot().files()
    kept = "part-00000-0e0e0e0e-0e0e-4e0e-8e0e-0e0e0e0e0e0e-c000.snappy.parquet"
    pq.write_table(found.filter(pc.not_equal(found["name"], MARKER)), place / kept)
    add = msgspec.structs.replace(file, path=kept, size=(place / kept).stat().st_size, stats=None)
    cdc = Cdc(path=name, partition_values={}, size=(place / name).stat().st_size, data_change=False)
    table.commit(table.get_commits().latest_version + 1, [make_remove(file, 1), add, cdc])


def overwritten(lake: Lake) -> Table:
    table = lake.create_table("t", data=people())
    without_marker(table)
    return table


def partitioned(lake: Lake) -> Table:
    table = lake.create_table("t", data=people(), partition_by=["name"])
    without_marker(table)
    return table


def after_checkpoints(lake: Lake) -> Table:
    """The deletion comes after a checkpoint with the row, and another one before it."""
    table = lake.create_table("t", data=people())
    for number in range(11):
        table.append(pa.table({"id": [100 + number], "name": [f"n{number}"]}))
    without_marker(table)
    table.overwrite(pa.table({"id": [1, 3], "name": ["ada", "zoe"]}))
    return table


def second_checkpoints(lake: Lake) -> Table:
    properties = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    table = lake.create_table("t", data=people(), properties=properties)
    lake.finish_background()
    lake.delta.checkpoint("t")
    without_marker(table)
    return table


def with_vectors(storage: str) -> Callable[[Lake], Table]:
    def make(lake: Lake) -> Table:
        table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
        delete_by_vector(table, storage)
        return table

    return make


def with_feed(lake: Lake) -> Table:
    table = lake.create_table("t", data=people(), properties={"delta.enableChangeDataFeed": "true"})
    delete_with_feed(table)
    return table


def without_columns(mode: str) -> Callable[[Lake], Table]:
    """The value was in columns that are dropped, one of them inside of another: files have them still."""

    def make(lake: Lake) -> Table:
        notes = pa.array([{"a": 1, "b": MARKER}, {"a": 3, "b": "-"}])
        data = pa.table({"id": [1, 3], "name": ["ada", "zoe"], "secret": ["-", MARKER], "note": notes})
        table = lake.create_table("t", data=data.slice(0, 1), properties={"delta.columnMapping.mode": mode})
        table.append(data.slice(1))
        lake.delta.drop_column("t", "secret")
        lake.delta.drop_column("t", ("note", "b"))
        return table

    return make


KINDS: dict[str, Callable[[Lake], Table]] = {
    "overwritten": overwritten,
    "partitioned": partitioned,
    "after checkpoints": after_checkpoints,
    "second checkpoints": second_checkpoints,
    "inline vectors": with_vectors("inline"),
    "vectors in files": with_vectors("file"),
    "change feed": with_feed,
    "dropped columns, by name": without_columns("name"),
    "dropped columns, by id": without_columns("id"),
}


@pytest.fixture(params=[*KINDS.values()], ids=[*KINDS])
def made(request: pytest.FixtureRequest, lake: Lake) -> Lake:
    """A lake with a table whose last change was the deletion of a row; it is in use by nobody."""
    request.param(lake)
    lake.finish_background()
    lake.close()
    return lake


def test_the_value_is_in_no_byte_of_lake_warehouse_and_log_and_all_other_rows_are(
    made: Lake, path: Path, duckdb: Any
) -> None:
    assert where_is(path), "it is there before"
    with alone(path) as lake:
        table = lake.table("t")
        erased = lake.erase("t")
        assert (erased.finished, erased.until, erased.left) == (True, None, ())
        assert where_is(path) == []
        assert rows_of(table) == LEFT
        location, protocol = table.get_commits().location, table.get_commits().protocol
        assert lake.fsck().damages == ()
    found = duckdb.sql(f"SELECT id, name FROM delta_scan('{location}') ORDER BY id").to_arrow_table()
    assert found.to_pylist() == LEFT
    if not any(feature in protocol for feature in ("deletionVectors", "v2Checkpoint", "columnMapping")):
        theirs = deltalake.DeltaTable(location).to_pyarrow_table()
        assert theirs.select(["id", "name"]).sort_by("id").to_pylist() == LEFT
    assert where_is(path) == [], "closing has brought nothing back"


def test_the_table_goes_on_and_is_erased_again(made: Lake, path: Path) -> None:
    with alone(path) as lake:
        lake.erase("t")
    with penstock.open(path) as lake:
        table = lake.table("t")
        table.append(pa.table({"id": [4], "name": [MARKER]}))
        assert where_is(path)
        without_marker(table)
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path) == []
        assert rows_of(lake.table("t")) == LEFT
        assert lake.fsck().damages == ()


# -- what is behind the horizon ----------------------------------------------------------------------------


@pytest.fixture
def erased(lake: Lake, path: Path) -> dict[str, str]:
    """Commits of a lake from before an erase of ``t``: the first with the row, the last before it went."""
    lake.create_table("other", data=people(city=["a", "b", "c"]))
    table = lake.create_table("t", data=people())
    first = lake.branch().head
    table.append(pa.table({"id": [9], "name": ["joe"]}))
    appended = lake.branch().head
    without_marker(table)
    lake.close()
    with alone(path) as found:
        assert found.erase("t").finished
    return {"first": first, "appended": appended}


def test_time_travel_behind_the_horizon_says_when_and_by_whom(path: Path, erased: dict[str, str]) -> None:
    with penstock.open(path) as lake:
        for read in (
            lambda: lake.table("t").snapshot(0),
            lambda: lake.table("t").snapshot(timestamp="2020-01-01"),
            lambda: lake.at(erased["first"]).table("t").to_arrow(),
            lambda: lake.at(erased["appended"]).table("t").to_arrow(),
        ):
            with pytest.raises(HistoryExpired, match=r"before \d{4}-.* erased by privacy"):
                read()
        assert len(lake.at(erased["first"]).table("other").to_arrow()) == 3, "of other tables nothing is gone"


@pytest.mark.parametrize("how", ["revert", "transplant", "merge a new branch"])
def test_nothing_from_behind_the_horizon_is_brought_back(
    path: Path, erased: dict[str, str], how: str
) -> None:
    with penstock.open(path) as lake:

        def merge() -> None:
            branch = lake.branch("old").create(at=erased["first"])
            branch.table("t").append(pa.table({"id": [5], "name": ["x"]}))
            lake.merge("old", "main")

        ways: dict[str, Callable[[], object]] = {
            "revert": lambda: lake.revert(erased["appended"], "main"),
            "transplant": lambda: lake.transplant([erased["appended"]], "main"),
            "merge a new branch": merge,
        }
        with pytest.raises((MergeConflict, HistoryExpired), match="erased"):
            ways[how]()
        assert 2 not in lake.table("t").to_arrow()["id"].to_pylist()
        assert lake.fsck().damages == ()


def test_a_copy_of_the_lake_knows_the_horizon(path: Path, erased: dict[str, str], tmp_path: Path) -> None:
    from penstock.lake.copy import copy_lake

    copy_lake(str(path), str(tmp_path / "fork"))
    with penstock.open(tmp_path / "fork") as fork:
        assert fork.fsck().damages == ()
        with pytest.raises(HistoryExpired):
            fork.at(erased["first"]).table("t").to_arrow()


# -- who holds rows ----------------------------------------------------------------------------------------


def test_it_is_refused_while_references_or_transactions_hold_rows(lake: Lake, path: Path) -> None:
    table = lake.create_table("t", data=people())
    lake.tag("v1").create()
    lake.branch("dev").create()
    lake.branch("own").create().table("t").append(pa.table({"id": [7], "name": ["own"]}))
    transaction = lake.transaction("main")
    transaction.__enter__()
    without_marker(table)
    before = lake.branch().head
    with pytest.raises(EraseRefused) as refused:
        lake.erase("t")
    for name in ("tag 'v1'", "branch 'dev'", "branch 'own'", f"transaction {transaction.id}"):
        assert name in refused.value.message
    assert lake.branch().head == before, "nothing was changed"
    with pytest.raises(EraseRefused) as still:
        lake.erase("t", all_references=True)
    assert "'v1'" not in still.value.message
    assert "'own'" in still.value.message, "changes of its own are not thrown away"
    assert len(lake.erase("t", dry_run=True).left) == 4


def test_following_the_advice_of_a_refusal_lets_the_erase_go_on(lake: Lake, path: Path) -> None:
    table = lake.create_table("t", data=people())
    lake.tag("v1").create()
    lake.branch("dev").create()
    lake.branch("own").create().table("t").append(pa.table({"id": [7], "name": ["own"]}))
    transaction = lake.transaction("main")
    transaction.__enter__()
    transaction.abort("not needed")
    lake.tag("v1").delete()
    lake.branch("dev").delete()
    lake.merge("own", "main")
    lake.branch("own").delete()
    without_marker(table)
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t").finished
        assert where_is(path) == []
        assert rows_of(lake.table("t")) == [*LEFT, {"id": 7, "name": "own"}]


def test_references_without_changes_let_go_when_told_and_a_branch_gets_the_table_back_by_a_rebase(
    lake: Lake, path: Path
) -> None:
    table = lake.create_table("t", data=people())
    lake.create_table("u", data=people(city=["a", "b", "c"]))
    lake.tag("v1").create()
    lake.branch("dev").create()
    without_marker(table)
    lake.branch().drop("u")
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t", all_references=True).finished
        for name in ("v1", "dev"):
            with pytest.raises(HistoryExpired):
                lake.at(name).table("t").to_arrow()
            assert len(lake.at(name).table("u").to_arrow()) == 3
        lake.rebase("dev")
        assert rows_of(lake.branch("dev").table("t")) == LEFT
        assert lake.fsck().damages == ()


# -- waiting, crashing, racing -----------------------------------------------------------------------------


def test_an_erase_waits_for_the_grace_period_says_until_when_and_ends_after_it(tmp_path: Path) -> None:
    clock = LateClock()
    path = tmp_path / "lake"
    with penstock.open(path, create=True, author="ada", clock=clock) as lake:
        without_marker(lake.create_table("t", data=people()))
        waiting = lake.erase("t")
        assert not waiting.finished
        assert waiting.until is not None
        assert 6.9 < (waiting.until - waiting.begun).total_seconds() / 86_400 < 7.1
        with pytest.raises(HistoryExpired):
            lake.table("t").snapshot(0)
        assert any("file" in one for one in waiting.left)
        clock.days = 3
        assert not lake.erase("t").finished
        clock.days = 7.2
        ended = lake.erase("t")
        assert (ended.finished, ended.begun, ended.first_version) == (
            True,
            waiting.begun,
            waiting.first_version,
        )
        assert where_is(path) == []
        assert rows_of(lake.table("t")) == LEFT


def test_a_revert_is_refused_while_an_erase_is_about_to_begin(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("t", data=people())
    without_marker(table)
    deletion = lake.branch().head
    settle = DeltaErasure.commit_first_version

    def racing(erasure: DeltaErasure, erase: str) -> FirstVersionKept:
        with pytest.raises(MergeConflict, match="is being erased"):
            lake.revert(deletion, "main")
        return settle(erasure, erase)

    monkeypatch.setattr(DeltaErasure, "commit_first_version", racing)
    assert not lake.erase("t").finished, "files are younger than the grace period"
    with pytest.raises(MergeConflict, match="was erased"):
        lake.revert(deletion, "main")
    lake.table("t").append(pa.table({"id": [4], "name": ["new"]}))
    lake.revert(lake.branch().head, "main")
    assert rows_of(lake.table("t")) == LEFT


def test_a_revert_that_lands_before_the_erase_begins_keeps_its_rows(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("t", data=people())
    without_marker(table)
    deletion = lake.branch().head
    begin = EraseRun._note_begun

    def racing(erase: EraseRun, known: Any) -> Any:
        lake.revert(deletion, "main")
        return begin(erase, known)

    monkeypatch.setattr(EraseRun, "_note_begun", racing)
    with alone(path) as other:
        other.erase("t")
    assert len(lake.table("t").to_arrow()) == 3
    assert lake.fsck().damages == ()


def test_appends_go_on_while_a_table_is_erased(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_marker(lake.create_table("t", data=people()))
    number = iter(range(100, 200))
    for name in ("rewrite_files", "_commit_nothing", "cut_history", "sweep_unneeded_files", "find_leftovers"):
        real = getattr(DeltaErasure, name)

        def appending(*given: Any, real: Any = real, **named: Any) -> Any:
            lake.table("t").append(pa.table({"id": [next(number)], "name": ["new"]}))
            return real(*given, **named)

        monkeypatch.setattr(DeltaErasure, name, appending)
    waiting = lake.erase("t")
    assert not waiting.finished
    found = {row["id"] for row in rows_of(lake.table("t"))}
    assert {1, 3, 100, 101, 102} <= found
    assert 2 not in found
    assert lake.fsck().damages == ()
    assert all(one.problem == "" for one in lake.sweep_tables(dry_run=True))


def test_rows_that_are_deleted_by_vectors_at_the_same_time_are_not_brought_back(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
    delete_by_vector(table, "inline")
    rewritten = DeltaErasure._rewrite_files
    raced: list[bool] = []

    def racing(*given: Any) -> Any:
        found = rewritten(*given)
        if not raced:
            raced.append(True)
            lake.table("t").overwrite(pa.table({"id": [3], "name": ["zoe"]}))
        return found

    monkeypatch.setattr(DeltaErasure, "_rewrite_files", racing)
    lake.erase("t")
    assert rows_of(lake.table("t")) == LEFT[1:]


def test_files_that_nobody_knows_and_that_may_have_rows_are_told(lake: Lake, path: Path) -> None:
    table = overwritten(lake)
    place = Path(table.get_commits().location)
    pq.write_table(people(), place / "mine.parquet")
    (place / "_delta_log" / ".00000000000000000007.json.tmp").write_text(MARKER)
    (place / "notes.txt").write_text("not rows")
    lake.close()
    with alone(path) as other:
        erased = other.erase("t")
        assert not erased.finished
        (told,) = erased.left
        assert "mine.parquet" in told
        assert ".00000000000000000007.json.tmp" in told
        assert "notes.txt" not in told


def test_lists_that_readers_made_go_too(lake: Lake, path: Path) -> None:
    overwritten(lake)
    made = path / "warehouse" / "_penstock" / "reads" / ("a" * 32)
    made.mkdir(parents=True)
    (made / "files.json").write_text(MARKER)
    assert any("lists of files" in one for one in lake.erase("t").left)
    lake.close()
    with alone(path) as other:
        assert other.erase("t").finished
        assert where_is(path) == []


def test_two_erases_at_once_come_to_one(lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_marker(lake.create_table("t", data=people()))
    lake.finish_background()
    lake.close()
    begin = EraseRun._note_begun
    others: list[Any] = []

    def racing(erase: EraseRun, known: Any) -> Any:
        if not others:
            others.append(None)
            with alone(path) as other:
                others.append(other.erase("t"))
        return begin(erase, known)

    monkeypatch.setattr(EraseRun, "_note_begun", racing)
    with alone(path) as one:
        assert one.erase("t").finished
        assert others[1].finished
        assert where_is(path) == []
        assert rows_of(one.table("t")) == LEFT
        assert one.fsck().damages == ()


def test_what_cannot_be_erased_is_refused(lake: Lake) -> None:
    lake.branch().put("pointer", penstock.IcebergTable(metadata_location="s3://lake/v1.json"))
    with pytest.raises(NotManaged):
        lake.erase("pointer")
    with pytest.raises(penstock.errors.KeyNotFound):
        lake.erase("nothing")


def test_rows_keep_their_ids_when_an_erase_rewrites_their_files(lake: Lake) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = lake.create_table("t", data=people(), properties=properties)
    table.append(people())
    columns = [*table.to_arrow().column_names, "_row_id", "_row_commit_version"]
    before = table.to_arrow(columns=columns).to_pylist()
    for file in list(table.snapshot().files()):
        total = msgspec.json.decode(file.stats or "")["numRecords"]
        vector = rows_vector(DeletedRows(1, total))
        table.append_actions([make_remove(file, 1), msgspec.structs.replace(file, deletion_vector=vector)])
    left = [one for one in before if one["_row_id"] % (len(before) // 2)]
    assert len(left) == len(before) - 2
    lake.erase("t")
    assert {one.deletion_vector for one in table.snapshot().files()} == {None}
    assert sorted(map(str, table.to_arrow(columns=columns).to_pylist())) == sorted(map(str, left))
    table.append(people())
    assert max(one["_row_id"] for one in before) < min(
        one["_row_id"] for one in table.to_arrow(columns=columns).to_pylist() if one not in left
    )


def test_less_than_the_grace_of_the_lake_has_to_be_stated(path: Path, lake: Lake) -> None:
    overwritten(lake)
    with (
        penstock.open(path, settings=Settings(data_grace_days=0)) as hasty,
        pytest.raises(penstock.errors.InvalidRequest, match="nobody-writes"),
    ):
        hasty.erase("t")

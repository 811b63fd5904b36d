"""A lake that owns Delta tables: what it loads, what it leaves, and what it finds when it comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Settings
from penstock.errors import AdministratorError, CommitConflict, InvalidRequest, PenstockError
from penstock.formats.delta.branch_log.intents import CreateIntent, make_change_operation
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.calls import ActionsFile, CommitTables, TableCommit, TablePart, WriterReads
from penstock.lake.lake import Lake
from penstock.lake.row_input import write_schema_text
from penstock.model.keys import Key
from tests.servers.s3 import S3Place

ROWS = pa.table({"day": ["1"]})
IMPATIENT = Settings(publish_wait_s=0.0, publish_close_s=0.0)
WAIT_S = 20.0


def location(lake: Lake) -> Path:
    return Path(lake.table("t").get_commits().location)


def test_a_lake_without_delta_tables_loads_nothing_for_them(tmp_path: Path) -> None:
    program = """
import sys, threading, penstock
with penstock.open(sys.argv[1]) as lake:
    lake.branch().create_namespace("a")
    lake.log()
    parts = tuple("penstock.formats.delta." + one for one in ("log", "rows", "branch_log", "ownership"))
    print(threading.active_count(), any(name.startswith(parts) for name in sys.modules),
          "pyarrow" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "lake")], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["1", "False", "False"]


def test_a_lake_that_is_closed_has_published_what_it_ratified(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", settings=Settings(publish_wait_s=0.0)) as lake:
        table = lake.create_table("t", data=ROWS)
        for _ in range(5):
            table.append(ROWS)
        place = location(lake)
    assert deltalake.DeltaTable(place).version() == 5


def test_a_commit_is_published_when_it_is_answered(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", settings=Settings(publish_wait_s=WAIT_S)) as lake:
        table = lake.create_table("t", data=ROWS)
        assert deltalake.DeltaTable(location(lake)).version() == 0
        table.append(ROWS)
        assert deltalake.DeltaTable(location(lake)).version() == 1


def test_the_history_tells_which_versions_are_published(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        orders = lake.create_table("sales.orders", data=pa.table({"id": [1]}))
        orders.append(pa.table({"id": [2]}))
        orders.backfill_to_version()
        assert [(one.version, one.is_published) for one in orders.history()] == [(1, True), (0, True)]
        lake.branch("dev").create()
        on_branch = lake.table("sales.orders", "dev")
        on_branch.append(pa.table({"id": [3]}))
        on_branch.backfill_to_version()
        told = [(one.version, one.is_published) for one in on_branch.history()]
        assert told == [(2, False), (1, True), (0, True)]
        orders.append(pa.table({"id": [4]}))  # another version 2, which is published
        lake.finish_background()
        assert [one.is_published for one in on_branch.history()] == [False, True, True]
        assert all(one.is_published for one in orders.history())


def test_what_could_not_be_published_is_published_by_who_opens_the_lake_next(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", settings=IMPATIENT) as lake:
        table = lake.create_table("t", data=ROWS)
        table.backfill_to_version()
        place = location(lake)
        log, aside = place / "_delta_log", place / "aside"
        log.rename(aside)
        log.write_text("no directory")  # storage that takes no more files
        line = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
        assert table.append_actions(line).version == 1
        with pytest.raises(PenstockError):
            table.backfill_to_version()
    log.unlink()
    aside.rename(log)
    assert deltalake.DeltaTable(place).version() == 0
    with penstock.open(tmp_path / "lake", catch_up=False) as lake:
        (status,) = lake.delta.status()
        assert (status.latest_version, status.published, status.backlog) == (1, 0, 1)
        assert status.oldest_s is not None
    with penstock.open(tmp_path / "lake") as lake:
        lake.finish_background()
        assert deltalake.DeltaTable(place).version() == 1


def test_a_foreign_commit_in_the_log_is_an_alarm_and_stays(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", settings=IMPATIENT) as lake:
        table = lake.create_table("t", data=ROWS)
        table.backfill_to_version()
        foreign = location(lake) / "_delta_log" / f"{1:020}.json"
        foreign.write_text("{}")
        table.append(ROWS)
        with pytest.raises(AdministratorError, match="1"):
            table.backfill_to_version()
        (status,) = lake.delta.status()
        assert "out of sync" in status.alarm
        assert "penstock resync t" in status.alarm
        assert foreign.read_text() == "{}"
        assert table.to_arrow().num_rows == 2


def test_a_dropped_table_is_gone_and_its_files_stay(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data=ROWS)
        table.backfill_to_version()
        place = location(lake)
        lake.branch().drop("t")
        assert not table.exists
        assert deltalake.DeltaTable(place).version() == 0
        lake.revert("main")
        assert table.to_arrow().num_rows == 1


def test_the_default_branch_is_not_moved_back_under_a_table(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data=ROWS)
        table.append(ROWS)
        with pytest.raises(PenstockError, match="'t'"):
            lake.branch().assign("main~1")
        with pytest.raises(CommitConflict):
            lake.branch().put("t", table.content)


def test_a_schema_is_arrows_or_deltas() -> None:
    text = write_schema_text(ROWS)
    assert write_schema_text(ROWS.schema) == write_schema_text(text) == text
    with pytest.raises(InvalidRequest, match="got dict"):
        write_schema_text({"day": "string"})


def test_no_table_comes_in_past_the_check_of_its_place(tmp_path: Path) -> None:
    intent = CreateIntent(id=uuid4(), location=str(tmp_path / "elsewhere"), actions=b"", uuid=uuid4())
    with penstock.open(tmp_path / "lake") as lake, pytest.raises(InvalidRequest, match="calls of its format"):
        lake.commit([make_change_operation("t", intent)])


def test_a_commit_that_goes_by_way_of_the_storage_begins_with_what_the_owner_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data=ROWS)
        monkeypatch.setattr(delta, "SENT_MAX_BYTES", 10)
        assert table.append(ROWS).version == 1
        assert [one.operation for one in table.snapshot().history(1)] == ["WRITE"]
        line = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
        assert table.commit(2, line).version == 2
        assert len(list(table.snapshot().files())) == 3


def test_a_body_that_is_put_again_is_one_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data=ROWS)
        monkeypatch.setattr(delta, "SENT_MAX_BYTES", 10)
        line = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
        with pytest.raises(InvalidRequest):
            table.commit(7, line)
        (body,) = Path(table.location).glob("_penstock/bodies/*")
        os.utime(body, (1, 1))
        assert table.commit(1, line).version == 1
        assert body.stat().st_mtime > 1  # so that no clean-up in between takes it for abandoned


def test_so_is_a_body_that_the_lake_puts_itself(tmp_path: Path) -> None:
    fields = {"partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    large = [{"add": {"path": f"{number:0200}", **fields}} for number in range(700)]
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data=ROWS)
        table.append_actions(large)
        (body,) = Path(table.location).glob("_penstock/bodies/*")
        os.utime(body, (1, 1))
        table.append_actions(large)
        assert body.stat().st_mtime > 1


def test_a_table_that_was_recovered_is_released_as_it_was_before_its_first_owner(tmp_path: Path) -> None:
    place = tmp_path / "free"
    deltalake.write_deltalake(place, ROWS)
    with penstock.open(tmp_path / "lost") as lost:
        lost.add_root(str(tmp_path))
        lost.delta.adopt(str(place), "t")
        identity = lost.id
    with penstock.open(tmp_path / "new") as lake:
        lake.add_root(str(tmp_path))
        lake.delta.recover(str(place), "t", lost=identity)
        lake.table("t").append(ROWS)
        lake.delta.release("t")
    deltalake.write_deltalake(place, ROWS, mode="append")
    assert deltalake.DeltaTable(place).metadata().configuration == {}
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2**63},
        {"read_version": 2**64},
        {"actions": "\ud800"},
        {"actions": ActionsFile(name="_penstock/bodies/\udcff.json", size=1, sha256=bytes(32))},
        {"actions": ActionsFile(name="_penstock/bodies/a.json", size=2**64, sha256=bytes(32))},
        {"actions": ActionsFile(name="_penstock/bodies/a.json", size=2**63, sha256=bytes(32))},
        {"reads": WriterReads(files=("\ud800",))},
        {"replaces": (TablePart(values={"day": ("\ud800",)}),)},
        {"replaces": (TablePart(where="day = '\ud800'"),)},
    ],
    ids=["version", "read version", "text", "file", "size", "smaller size", "files", "partitions", "where"],
)
@pytest.mark.parametrize("idempotency_key", [None, "once"])
def test_what_no_request_can_hold_is_a_mistake_of_the_caller(
    tmp_path: Path, wrong: dict[str, Any], idempotency_key: str | None
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.create_table("t", data=ROWS)
        one = TableCommit(**{"key": Key("t"), "actions": "", **wrong})
        with pytest.raises(InvalidRequest):
            lake.do(CommitTables(tables=(one,), idempotency_key=idempotency_key))


def test_tables_in_object_storage_are_created_adopted_and_read_by_others(
    s3_place: S3Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        "AWS_REGION": s3_place.region,
        "AWS_ENDPOINT_URL": s3_place.endpoint or "",
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    root = f"s3://{s3_place.bucket}/{s3_place.prefix}/tables"
    deltalake.write_deltalake(f"{root}/free", ROWS)
    with penstock.init(tmp_path / "lake", warehouse=root) as lake:
        table = lake.create_table("t", data=ROWS)
        table.append(ROWS)
        lake.delta.adopt(f"{root}/free", "adopted")
        lake.table("adopted").append(ROWS)
        for name, version in (("t", 1), ("adopted", 2)):
            mine = lake.table(name)
            assert mine.backfill_to_version() == version
            other = deltalake.DeltaTable(mine.get_commits().location)
            assert (other.version(), other.to_pyarrow_table().num_rows) == (version, 2)
            assert mine.to_arrow().num_rows == 2


def test_a_lake_whose_tables_cannot_be_looked_at_is_opened_all_the_same(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        lake.create_table("t", data=ROWS)
        store, head = lake.kernel.store, lake.kernel.references.get_reference("main").head
        found, _ = store.scan(b"", 1000)
        assert store.delete([one for one in found if one.id == head]) == 1
    with penstock.open(tmp_path / "lake") as lake:
        assert lake.fsck().damages

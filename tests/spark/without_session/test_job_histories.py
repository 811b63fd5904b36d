"""Jobs that wrote for a version which their branch does not have any more, whatever its number is now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import TableConflict
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.protocol.actions import Add, Txn
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.source.target import PlannedTable, PlannedWrite, TaskMessage, plan_target
from penstock.formats.rows.arrow_types import make_schema
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.source.options import parse_options

KEY = "sales.orders"
SCHEMA = pa.schema([("id", pa.int64())])


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def dev(lake: Lake) -> Table:
    """A table of a branch, of which the versions 1 and 2 are the branch's own."""
    lake.create_table(KEY, data=numbers(0))
    lake.branch("dev").create()
    table = lake.table(KEY, "dev")
    table.append(numbers(1))
    table.append(numbers(2))
    return table


def merged_into(lake: Lake) -> None:
    for number in (10, 11):
        lake.table(KEY).append(numbers(number))
    lake.branch("main").merge_into("dev")


def created_anew(lake: Lake) -> None:
    lake.branch("dev").delete()
    lake.branch("dev").create()
    for number in (20, 21, 22):
        lake.table(KEY, "dev").append(numbers(number))


def files_of(table: Table) -> set[Path]:
    return set(Path(table.location).rglob("*.parquet"))


@pytest.mark.parametrize(
    "reads", [WriterReads(), WriterReads(whole_table=True)], ids=["blindly", "having read"]
)
@pytest.mark.parametrize("way", [merged_into, created_anew])
def test_what_a_job_wrote_for_another_history_is_refused_and_removed(
    lake: Lake, dev: Table, way: Callable[[Lake], None], reads: WriterReads
) -> None:
    job = JobTable(lake, KEY, "dev")
    adds: list[Add] = write_files(job.place, job.metadata, numbers(7).to_reader())
    way(lake)
    before = files_of(dev)
    with pytest.raises(TableConflict, match="a different history on 'dev'"):
        job.commit_actions(adds, operation="WRITE", parameters={}, reads=reads)
    assert before - files_of(dev) == {Path(dev.location, one.path) for one in adds}
    again = job.reopen_table()
    adds = write_files(again.place, again.metadata, numbers(7).to_reader())
    again.commit_actions(adds, operation="WRITE", parameters={}, reads=reads)
    assert 7 in dev.to_arrow()["id"].to_pylist()


def written(lake: Lake) -> tuple[PlannedTable, list[TaskMessage]]:
    """What tasks of ``format("penstock")`` wrote, and the table as they knew it."""
    options = parse_options({"lake": lake.url, "table": KEY, "ref": "dev"})
    target = plan_target(options, make_schema(SCHEMA), is_overwrite=False)
    lines = target.write_batches(numbers(7).to_batches())
    planned = PlannedWrite(id=target.id, version=target.version, tip=target.tip, began_s=target.began.time_s)
    return target, [TaskMessage(lines, "query", planned)]


@pytest.mark.parametrize("way", [merged_into, created_anew])
def test_so_is_what_tasks_wrote_for_it(lake: Lake, dev: Table, way: Callable[[Lake], None]) -> None:
    target, messages = written(lake)
    way(lake)
    with pytest.raises(TableConflict, match="a different history on 'dev'"):
        target.commit_files(lake, messages, uuid4(), None)
    assert 7 not in dev.to_arrow()["id"].to_pylist()


@pytest.mark.parametrize("way", [merged_into, created_anew])
def test_so_is_a_batch_whose_commit_is_planned_when_that_has_happened(
    lake: Lake, dev: Table, way: Callable[[Lake], None]
) -> None:
    _, messages = written(lake)
    way(lake)
    target, _ = written(lake)
    with pytest.raises(TableConflict, match="a different history on 'dev'"):
        target.as_planned(messages).commit_files(lake, messages, uuid4(), Txn(app_id="query", version=1))
    assert 7 not in dev.to_arrow()["id"].to_pylist()

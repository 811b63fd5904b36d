"""Jobs of ``format("penstock")`` without Spark around them: files, commits, what failures leave."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import ConflictError, InvalidRequest, KeyNotFound, OutcomeUnknown
from penstock.formats.delta.lake.calls import CommitTables
from penstock.formats.delta.protocol.actions import Metadata, Txn
from penstock.formats.delta.spark.source.reader import TableReader, pin_table
from penstock.formats.delta.spark.source.streams import TableStream
from penstock.formats.delta.spark.source.target import PlannedTable, TaskMessage, plan_target
from penstock.formats.delta.spark.source.writer import TableSink, TableWriter
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import Field, StructType, parse_schema, write_schema
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.job_files import DAY_S
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.model.operations import Delete
from penstock.spark.source.options import parse_options
from tests.remote.patience import set_patience
from tests.remote.serving import serving
from tests.servers.proxy import Proxy

R = TypeVar("R")

KEY = "sales.orders"
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


@pytest.fixture(autouse=True)
def _table(lake: Lake) -> None:
    lake.create_table(KEY, schema=SCHEMA, partition_by="day")


def batch(*ids: int, day: str = "monday") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": one, "day": day} for one in ids], schema=SCHEMA)


def planned(of: Lake, schema: pa.Schema = SCHEMA, *, overwrite: bool = False, **options: str) -> PlannedTable:
    """A job as it gets to tasks and to the commit: pickled."""
    told = parse_options({"lake": of.url, "table": KEY, **options})
    found = plan_target(told, make_schema(schema), is_overwrite=overwrite)
    again: PlannedTable = pickle.loads(pickle.dumps(found))
    return again


def ids(lake: Lake, ref: str | None = None) -> list[int]:
    return sorted(lake.table(KEY, ref).to_arrow()["id"].to_pylist())


def data_files(lake: Lake) -> set[str]:
    root = Path(lake.table(KEY).location)
    return {str(one.relative_to(root)) for one in root.rglob("*.parquet")}


def test_files_of_a_job_are_no_part_of_the_table_before_its_commit(lake: Lake) -> None:
    job = planned(lake)
    lines = job.write_batches([batch(1), batch(2, day="tuesday")])
    assert ids(lake) == []
    assert len(data_files(lake)) == 2
    job.commit_files(lake, [TaskMessage(lines), TaskMessage(())], uuid4(), None)
    assert ids(lake) == [1, 2]


def test_a_file_of_an_attempt_that_lost_is_in_no_commit(lake: Lake) -> None:
    job = planned(lake)
    job.write_batches([batch(1)])
    winner = job.write_batches([batch(1)])
    job.commit_files(lake, [TaskMessage(winner)], uuid4(), None)
    job.write_batches([batch(1)])
    assert ids(lake) == [1]


def test_a_commit_that_is_repeated_is_one_commit(lake: Lake) -> None:
    job = planned(lake)
    messages = [TaskMessage(job.write_batches([batch(1)]))]
    key = uuid4()
    first = job.commit_files(lake, messages, key, None)
    again = job.commit_files(lake, messages, key, None)
    assert first is not None
    assert again is not None
    assert (again.commit.id, ids(lake)) == (first.commit.id, [1])


def test_a_batch_that_two_jobs_write_is_in_the_table_once(lake: Lake) -> None:
    one, other = planned(lake), planned(lake)
    told = [(job, [TaskMessage(job.write_batches([batch(1)]))]) for job in (one, other)]
    for job, messages in told:
        job.commit_files(lake, messages, uuid4(), Txn(app_id="app", version=7))
    assert ids(lake) == [1]


def test_an_abort_after_the_commit_has_landed_removes_nothing(lake: Lake) -> None:
    writer = TableWriter(planned(lake))
    messages = [writer.write(iter([batch(1)])), writer.write(iter([batch(2)]))]
    writer.commit(messages)
    writer.abort(messages)  # as if the answer had been lost
    writer.abort([*messages, None])
    assert ids(lake) == [1, 2]


def test_an_abort_without_a_failed_task_removes_nothing_for_the_commit_may_be_under_way(lake: Lake) -> None:
    writer = TableWriter(planned(lake))
    messages = [writer.write(iter([batch(1)]))]
    writer.abort(messages)
    writer.commit(messages)
    assert ids(lake) == [1]


@pytest.mark.parametrize("kind", [TableWriter, TableSink])
def test_an_abort_after_a_failed_task_removes_the_files_of_the_others_and_no_other_file(
    lake: Lake, kind: type[TableWriter] | type[TableSink]
) -> None:
    lake.table(KEY).append(pa.Table.from_batches([batch(1)]))
    before = data_files(lake)
    writer = kind(planned(lake))
    messages = [writer.write(iter([batch(2)])), None]
    assert data_files(lake) > before
    if isinstance(writer, TableSink):
        writer.abort(messages, 0)
    else:
        writer.abort(messages)
    assert data_files(lake) == before


def test_a_job_for_a_table_that_was_replaced_meanwhile_is_refused_and_leaves_nothing(lake: Lake) -> None:
    job = planned(lake)
    messages = [TaskMessage(job.write_batches([batch(1)]))]
    root = Path(job.location)
    lake.commit([Delete(lake.table(KEY).key)])
    lake.create_table(KEY, schema=SCHEMA, partition_by="day")
    with pytest.raises(ConflictError):
        job.commit_files(lake, messages, uuid4(), None)
    assert ids(lake) == []
    assert not list(root.rglob("part-*"))


def test_an_overwrite_replaces_what_is_there_at_its_turn(lake: Lake) -> None:
    job = planned(lake, overwrite=True)
    lake.table(KEY).append(pa.Table.from_batches([batch(1)]))
    job.commit_files(lake, [TaskMessage(job.write_batches([batch(2)]))], uuid4(), None)
    assert ids(lake) == [2]


def test_an_overwrite_without_rows_empties_the_table(lake: Lake) -> None:
    lake.table(KEY).append(pa.Table.from_batches([batch(1)]))
    job = planned(lake, overwrite=True)
    job.commit_files(lake, [TaskMessage(job.write_batches([]))], uuid4(), None)
    assert ids(lake) == []


def test_an_overwrite_of_a_part_refuses_rows_outside_and_removes_their_files(lake: Lake) -> None:
    lake.table(KEY).append(pa.Table.from_batches([batch(1), batch(2, day="tuesday")]))
    before = data_files(lake)
    job = planned(lake, overwrite=True, replacewhere="day = 'monday'")
    with pytest.raises(InvalidRequest, match="day=tuesday"):
        job.commit_files(lake, [TaskMessage(job.write_batches([batch(3, day="tuesday")]))], uuid4(), None)
    assert data_files(lake) == before
    job.commit_files(lake, [TaskMessage(job.write_batches([batch(4)]))], uuid4(), None)
    assert ids(lake) == [2, 4]


def test_an_append_without_rows_makes_no_version(lake: Lake) -> None:
    job = planned(lake)
    assert job.commit_files(lake, [TaskMessage(job.write_batches([]))], uuid4(), None) is None
    assert lake.table(KEY).version == 0


@pytest.mark.parametrize("tasks", [0, 1])
def test_a_stream_s_batch_without_rows_makes_no_version(lake: Lake, tasks: int) -> None:
    sink = TableSink(planned(lake))
    sink.commit([TaskMessage((), "query")] * tasks, 0)
    assert lake.table(KEY).version == 0


def test_neither_does_one_that_an_application_numbers_itself(lake: Lake) -> None:
    writer = TableWriter(planned(lake, app_id="app", batch="0"))
    writer.commit([writer.write(iter([]))])
    assert lake.table(KEY).version == 0


def test_a_stream_s_batch_for_a_table_that_has_become_another_meanwhile_is_refused(lake: Lake) -> None:
    messages = [TableSink(planned(lake, app_id="query")).write(iter([batch(1)]))]
    now = lake.table(KEY).snapshot().metadata
    for_good = {**now.configuration, "delta.appendOnly": "true"}
    lake.table(KEY).commit(1, [msgspec.structs.replace(now, configuration=for_good)])
    with pytest.raises(ConflictError):
        TableSink(planned(lake, app_id="query")).commit(messages, 0)  # Spark makes another one for the commit
    assert ids(lake) == []
    assert not data_files(lake)


def test_a_stream_s_batch_for_a_table_that_got_a_column_meanwhile_lands(lake: Lake) -> None:
    messages = [TableSink(planned(lake, app_id="query")).write(iter([batch(1)]))]
    lake.table(KEY).commit(1, [_with_column(lake, "price")])
    TableSink(planned(lake, app_id="query")).commit(messages, 0)
    assert ids(lake) == [1]


def test_a_job_whose_rows_end_in_an_error_leaves_no_file(lake: Lake) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(1)
        raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        planned(lake).write_batches(rows())
    assert not data_files(lake)


def test_a_job_that_took_longer_than_its_files_are_safe_commits_nothing(lake: Lake) -> None:
    job = planned(lake)
    messages = [TaskMessage(job.write_batches([batch(1)]))]
    long_ago = msgspec.structs.replace(job.began, time_s=job.began.time_s - 4 * DAY_S)
    with pytest.raises(InvalidRequest, match="data_grace_days"):
        msgspec.structs.replace(job, began=long_ago).commit_files(lake, messages, uuid4(), None)
    assert ids(lake) == []


def test_a_lake_behind_a_server_is_written_to_by_its_address(lake: Lake) -> None:
    with serving(lake.catalogue) as server:
        writer = TableWriter(planned(lake, lake=server.url))
        writer.commit([writer.write(iter([batch(1)]))])
    assert ids(lake) == [1]


def test_nothing_is_removed_if_it_is_not_known_what_became_of_the_commit(lake: Lake) -> None:
    job = planned(lake)
    messages = [TaskMessage(job.write_batches([batch(1)]))]
    answering = Answering(lake.catalogue)
    with serving(answering) as server, Proxy(server.port) as proxy:
        carried_out = threading.Event()
        answering.afterwards = carried_out.set
        far = Lake(RemoteCatalogue(f"http://127.0.0.1:{proxy.port}"))
        set_patience(far)
        proxy.fall_silent()
        with far, pytest.raises(OutcomeUnknown):
            job.commit_files(far, messages, uuid4(), None)
        assert carried_out.wait(60)
        proxy.cut_all()
    assert ids(lake) == [1]


class Answering:
    """A catalogue that does something once a commit to tables is carried out, before it is answered."""

    page_max: int | None = None

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.afterwards: Callable[[], object] = int

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        answer = self._catalogue.do(call, progress)
        if isinstance(call, CommitTables):
            self.afterwards()
        return answer

    def close(self) -> None:
        pass


def _with_column(lake: Lake, name: str) -> Metadata:
    now = lake.table(KEY).snapshot().metadata
    schema = parse_schema(now.schema_string)
    wider = StructType((*schema.fields, Field(name=name, type="double", nullable=True)))
    return msgspec.structs.replace(now, schema_string=write_schema(wider))


def test_files_for_another_branch_lie_where_vacuum_of_other_engines_does_not_look(lake: Lake) -> None:
    lake.branch("dev").create()
    job = planned(lake, branch="dev")
    job.commit_files(lake, [TaskMessage(job.write_batches([batch(1)]))], uuid4(), None)
    assert (ids(lake, "dev"), ids(lake)) == ([1], [])
    assert all(name.startswith("_penstock/data/") for name in data_files(lake))


def test_new_columns_come_with_the_rows_if_that_is_asked_for(lake: Lake) -> None:
    wider = SCHEMA.append(pa.field("price", pa.float64()))
    rows = pa.RecordBatch.from_pylist([{"id": 1, "day": "monday", "price": 2.5}], schema=wider)
    with pytest.raises(InvalidRequest, match="price"):
        planned(lake, wider)
    job = planned(lake, wider, mergeschema="true")
    job.commit_files(lake, [TaskMessage(job.write_batches([rows]))], uuid4(), None)
    assert lake.table(KEY).to_arrow().to_pylist() == [{"id": 1, "day": "monday", "price": 2.5}]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lake": "memory:"}, "in memory"),
        ({"lake": ""}, "no lake is named"),
        ({"table": ""}, "no table is named"),
        ({"replacewhre": "day = 'monday'"}, "no option 'replacewhre'"),
        ({"ref": "main", "branch": "dev"}, "'branch' and 'ref'"),
        ({"version": "newest"}, r"invalid option of format\('penstock'\): .*\$\.version"),
        ({"replacewhere": "day = 'monday'"}, "only be used with mode"),
        ({"version": "3"}, "are options of reads"),
    ],
)
def test_options_that_cannot_be_are_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, options: Mapping[str, str], told: str
) -> None:
    monkeypatch.delenv("PENSTOCK_LAKE", raising=False)
    given = {"lake": lake.url, "table": KEY, **options}
    with pytest.raises(InvalidRequest, match=told):
        plan_target(parse_options(given), make_schema(SCHEMA), is_overwrite=False)


def test_a_condition_on_moments_is_refused_for_nobody_says_in_which_zone_it_is_meant(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    lake.create_table("sales.moments", schema=schema, partition_by="at")
    told = {"lake": lake.url, "table": "sales.moments"}
    with pytest.raises(InvalidRequest, match=r"compares the timestamp .*, and its time zone is not known"):
        plan_target(
            parse_options(told | {"replacewhere": "at = '2026-11-01 00:00:00'"}),
            make_schema(schema),
            is_overwrite=True,
        )
    reading = parse_options(told | {"where": "id > 1 and at > '2026-11-01 00:00:00'"})
    with pytest.raises(InvalidRequest, match="compares the timestamp"):
        TableReader(reading, pin_table(reading), make_schema(schema))
    stream = TableStream(reading, make_schema(schema))
    start = stream.initialOffset()
    with pytest.raises(InvalidRequest, match="compares the timestamp"):
        stream.partitions(start, stream.latestOffset(start))
    stream.stop()


def test_a_column_with_a_name_of_ours_is_refused_when_the_job_is_planned(lake: Lake) -> None:
    wider = SCHEMA.append(pa.field("__penstock_row", pa.int64()))
    with pytest.raises(InvalidRequest, match="the column name '__penstock_row' is reserved"):
        planned(lake, wider, mergeschema="true")


def test_the_lake_may_be_named_by_the_environment(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LAKE", lake.url)
    assert parse_options({"path": KEY}).lake == lake.url


def test_a_table_that_is_not_there_is_not_created(lake: Lake) -> None:
    with pytest.raises(KeyNotFound, match=r"penstock\.spark\.write"):
        planned(lake, table="sales.nothing")

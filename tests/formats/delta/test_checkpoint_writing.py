"""Checkpoints that this Penstock writes: other readers and our own read the same table from them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequest, Unavailable
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log import checkpoint_writer
from penstock.formats.delta.log.checkpoint_writer import (
    LastCheckpoint,
    WrittenCheckpoint,
    write_checkpoint,
    write_hint,
)
from penstock.formats.delta.log.checksum import json_checksum
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.protocol.actions import Action, Add, DeletionVector, DomainMetadata, Remove, Txn
from penstock.formats.delta.protocol.durations import DAY_MS
from penstock.formats.delta.protocol.names import LAST_CHECKPOINT, LOG, SIDECARS, ClassicName, CommitName
from penstock.formats.rows.schema import Field, StructType, write_schema
from penstock.storage.places import Place, Places
from tests.formats.delta.logs import Table, add, metadata, protocol, remove

NOW_MS = 1_700_000_000_000
V2 = {"delta_checkpointPolicy": "v2"}
POLICIES = ["classic", "v2"]


def create(table: Table, policy: str, *actions: Action, **properties: str) -> None:
    if policy == "v2":
        made = (protocol(reader=["v2Checkpoint"]), metadata(**V2, **properties))
    else:
        made = (protocol(), metadata(**properties))
    table.commit(0, *made, *actions)


def written(table: Table, version: int | None = None) -> WrittenCheckpoint:
    made = write_checkpoint(table.place, load_snapshot(table.files, version), NOW_MS)
    assert made is not None
    return made


def from_checkpoint(table: Table, version: int) -> LogSnapshot:
    """The version read from its checkpoint alone."""
    for older in range(version):
        (table.root / str(CommitName(older))).unlink(missing_ok=True)
    found = load_snapshot(table.files, version)
    assert found.segment.checkpoint is not None
    assert found.segment.checkpoint.version == version
    return found


def state_of(snapshot: LogSnapshot) -> dict[str, Any]:
    return {
        "protocol": snapshot.protocol,
        "metadata": snapshot.metadata,
        "transactions": dict(snapshot.transactions),
        "domains": dict(snapshot.domains),
        "files": {one.key: one for one in snapshot.read_files()},
    }


def tombstones_of(removes: Iterable[Remove]) -> dict[Any, Remove]:
    """Tombstones as a checkpoint keeps them."""
    return {one.key: msgspec.structs.replace(one, stats=None, tags=None) for one in removes}


vectors = st.none() | st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=st.text(max_size=5),
    size_in_bytes=st.integers(0, 2**31 - 1),
    cardinality=st.integers(0, 2**62),
    offset=st.none() | st.integers(0, 9),
)
values = st.dictionaries(st.sampled_from(["day", "ü"]), st.none() | st.text(max_size=3), max_size=2)
numbers = st.none() | st.integers(0, 2**62)
paths = st.sampled_from(["a", "day=1/b%20c", "day=1%252F2/d", "é", "s3://other/e", "x" * 300])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        Add,
        path=paths,
        partition_values=values,
        size=st.integers(0, 2**62),
        modification_time=st.integers(0, 2**62),
        data_change=st.booleans(),
        stats=st.none() | texts,
        tags=st.none() | values,
        deletion_vector=vectors,
        base_row_id=numbers,
        default_row_commit_version=numbers,
        clustering_provider=st.none() | texts,
    ),
    st.builds(
        Remove,
        path=paths,
        data_change=st.booleans(),
        deletion_timestamp=st.none() | st.integers(NOW_MS - 14 * DAY_MS, NOW_MS),
        extended_file_metadata=st.none() | st.booleans(),
        partition_values=st.none() | values,
        size=numbers,
        stats=st.none() | texts,
        deletion_vector=vectors,
    ),
    st.builds(Txn, app_id=texts, version=st.integers(0, 2**62), last_updated=numbers),
    st.builds(DomainMetadata, domain=texts, configuration=texts, removed=st.booleans()),
)


@given(
    commits=st.lists(st.lists(actions, max_size=6), min_size=1, max_size=4),
    policy=st.sampled_from(POLICIES),
    rows=st.integers(1, 5),
)
def test_a_checkpoint_holds_whatever_the_version_holds(
    places: Places, commits: Sequence[Sequence[Action]], policy: str, rows: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint_writer, "BATCH_ROWS", rows)
        patched.setattr(checkpoint_writer, "SIDECAR_ROWS", 2 * rows)
        table = Table(Path(folder), places)
        create(table, policy)
        for version, some in enumerate(commits, 1):
            table.commit(version, *some)
        last = len(commits)
        before = load_snapshot(table.files)
        made = written(table)
        after = from_checkpoint(table, last)
        assert state_of(after) == state_of(before)
        kept = [
            one for one in before.read_tombstones() if (one.deletion_timestamp or 0) >= NOW_MS - 7 * DAY_MS
        ]
        assert tombstones_of(after.read_tombstones()) == tombstones_of(kept)
        assert made.last.num_of_add_files == made.totals.files == len(state_of(before)["files"])


def test_tombstones_and_transactions_last_as_long_as_the_table_says(table: Table) -> None:
    durations = {
        "delta_deletedFileRetentionDuration": "interval 2 hours",
        "delta_setTransactionRetentionDuration": "interval 1 day",
    }
    hour = DAY_MS // 24
    create(
        table,
        "classic",
        remove("old", deletion_timestamp=NOW_MS - 3 * hour),
        remove("new", deletion_timestamp=NOW_MS - hour),
        Txn(app_id="old", version=1, last_updated=NOW_MS - 2 * DAY_MS),
        Txn(app_id="new", version=1, last_updated=NOW_MS - hour),
        Txn(app_id="timeless", version=1),
        **durations,
    )
    table.commit(1)
    written(table)
    found = from_checkpoint(table, 1)
    assert [one.path for one in found.read_tombstones()] == ["new"]
    assert sorted(found.transactions) == ["new", "timeless"]


def test_a_retention_that_cannot_be_understood_stops_the_checkpoint(table: Table) -> None:
    create(table, "classic", delta_deletedFileRetentionDuration="interval 1 month")
    with pytest.raises(InvalidRequest, match=r"deletedFileRetentionDuration = 'interval 1 month'"):
        written(table)


@pytest.mark.parametrize("policy", POLICIES)
def test_r34_only_a_published_version_has_a_checkpoint(table: Table, policy: str) -> None:
    create(table, policy)
    table.commit(1, add("a"))
    staged = load_snapshot(table.files)
    table.delete(CommitName(1))
    with pytest.raises(InvalidRequest, match=r"version 1 .* not published"):
        write_checkpoint(table.place, staged, NOW_MS)
    assert [one.name for one in (table.root / LOG).glob("*.parquet")] == []


def test_the_policy_alone_is_no_reason_for_what_readers_may_not_know(table: Table) -> None:
    table.commit(0, protocol(), metadata(**V2))
    assert written(table).name == str(ClassicName(0))


def test_the_small_file_beside_sidecars_has_columns_for_files_too(table: Table) -> None:
    """Readers ask it for its files as they ask any other checkpoint, and some fail without the columns."""
    create(table, "v2", add("a"))
    file = pq.ParquetFile(table.root / written(table).name)
    assert {"add", "remove", "sidecar", "checkpointMetadata"} <= set(file.schema_arrow.names)
    rows = file.read(["add", "remove"])
    assert [column.null_count for column in rows.columns] == [rows.num_rows] * 2


def test_one_of_two_who_write_at_once_is_told_that_it_is_done(table: Table) -> None:
    table.create(add("a"))
    start = Barrier(2)

    def write() -> WrittenCheckpoint | None:
        snapshot = load_snapshot(table.files)
        start.wait(60)
        return write_checkpoint(table.place, snapshot, NOW_MS)

    with ThreadPoolExecutor(2) as threads:
        done = [one.result(30) for one in [threads.submit(write), threads.submit(write)]]
    assert sum(one is not None for one in done) == 1
    assert [one.path for one in from_checkpoint(table, 0).read_files()] == ["a"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_second_checkpoint_of_a_version_is_not_written(table: Table, policy: str) -> None:
    create(table, policy, add("a"))
    name = written(table).name
    first = (table.root / name).read_bytes()
    assert write_checkpoint(table.place, load_snapshot(table.files), NOW_MS) is None
    assert (table.root / name).read_bytes() == first
    assert len(list((table.root / SIDECARS).iterdir())) == (policy == "v2")


class Dying:
    """A place at which the process dies before its n-th new file."""

    def __init__(self, place: Place, count: int) -> None:
        self._place, self._left = place, count

    def create(self, name: str, data: bytes) -> bool:
        if self._left == 0:
            raise Unavailable("the process ended here")
        self._left -= 1
        return self._place.create(name, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


@pytest.mark.parametrize("count", range(4))
def test_a_checkpoint_that_was_not_finished_does_not_count(
    table: Table, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(checkpoint_writer, "SIDECAR_ROWS", 2)
    create(table, "v2", *(add(f"{number}") for number in range(5)))
    dying: Any = Dying(table.place, count)
    with pytest.raises(Unavailable):
        write_checkpoint(dying, load_snapshot(table.files), NOW_MS)
    assert len(list((table.root / SIDECARS).iterdir())) == count
    assert load_snapshot(table.files).segment.checkpoint is None
    assert not (table.root / LAST_CHECKPOINT).exists()
    assert written(table).totals.files == 5
    assert len(list(from_checkpoint(table, 0).read_files())) == 5


def test_the_hint_describes_the_checkpoint_and_carries_its_own_hash(table: Table) -> None:
    table.create(add("a"), add("b", size=3), remove("c", deletion_timestamp=NOW_MS))
    made = written(table)
    hint = json.loads((table.root / LAST_CHECKPOINT).read_bytes())
    assert hint == {
        "version": 0,
        "size": 5,
        "sizeInBytes": (table.root / made.name).stat().st_size,
        "numOfAddFiles": 2,
        "checksum": json_checksum(hint),
    }
    assert made.totals.size_bytes == 4


def test_the_hint_does_not_go_back_to_an_older_checkpoint(table: Table) -> None:
    table.create()
    table.commit(1, add("a"))
    newer = written(table, 1)
    written(table, 0)
    assert json.loads((table.root / LAST_CHECKPOINT).read_bytes())["version"] == newer.last.version == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version":-4}', b'{"version":"x"}'])
def test_a_damaged_hint_is_replaced(table: Table, damage: bytes) -> None:
    table.create()
    table.write(LAST_CHECKPOINT, damage)
    write_hint(table.place, LastCheckpoint(version=0, size=2, size_in_bytes=9, num_of_add_files=0))
    assert json.loads((table.root / LAST_CHECKPOINT).read_bytes())["size"] == 2


def column(name: str, kind: str) -> Field:
    return Field(name=name, type=kind, nullable=True)


TYPED = StructType(
    (
        column("p", "date"),
        column("day", "date"),
        column("at", "timestamp"),
        column("local", "timestamp_ntz"),
        column("price", "decimal(9,2)"),
        column("real", "double"),
        column("name", "string"),
        column("raw", "binary"),
        Field(name="in", type=StructType((column("x", "byte"),)), nullable=True),
    )
)
STATISTICS = (
    '{"numRecords":3,"minValues":{"day":"2024-02-29","at":"2024-01-02T03:04:05.006+01:00",'
    '"local":"2024-01-02T03:04:05.006","price":1.5,"real":7,"name":"","in":{"x":300},"other":1},'
    '"maxValues":{"day":"no day","price":1.555,"in":3},"nullCount":{"raw":2,"in":{"x":1}},"tightBounds":true}'
)


def typed(table: Table, *files: Add, **properties: str) -> list[dict[str, Any]]:
    """The files of a checkpoint of a table with a column of each type."""
    asked = {"delta_checkpoint.writeStatsAsStruct": "true", **properties}
    table.commit(0, protocol(), metadata(write_schema(TYPED), ["p"], **asked), *files)
    read = pq.read_table(table.root / written(table).name, columns=["add"])["add"]
    return [one for one in read.to_pylist() if one is not None]


def test_statistics_and_partitions_are_written_in_their_types_where_the_table_asks(table: Table) -> None:
    (file,) = typed(table, add("a", stats=STATISTICS, partition_values={"p": "2024-03-01"}))
    assert file["stats"] == STATISTICS
    assert file["partitionValues_parsed"] == {"p": date(2024, 3, 1)}
    found = file["stats_parsed"]
    assert found["minValues"] == {
        "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 2, 2, 4, 5, 6000, UTC),
        "local": datetime.fromisoformat("2024-01-02T03:04:05.006"),
        "price": Decimal("1.50"),
        "real": 7.0,
        "name": "",
        "in": {"x": None},
    }
    assert {name for name, value in found["maxValues"].items() if value is not None} == set()
    assert found["nullCount"]["raw"] == 2
    assert found["nullCount"]["in"] == {"x": 1}
    assert (found["numRecords"], found["tightBounds"]) == (3, True)


@pytest.mark.parametrize("stats", [None, "", "no JSON", "[1]", "{}"])
def test_statistics_that_say_nothing_are_nothing(table: Table, stats: str | None) -> None:
    (file,) = typed(table, add("a", stats=stats, partition_values={"p": None}))
    assert file["partitionValues_parsed"] == {"p": None}
    assert file["stats"] == stats
    assert file["stats_parsed"] is None or file["stats_parsed"]["numRecords"] is None


def test_statistics_are_for_the_columns_that_the_table_names(table: Table) -> None:
    (file,) = typed(table, add("a"), delta_dataSkippingStatsColumns="day, `in`")
    assert file["stats_parsed"] is None
    kind = pq.read_schema(table.root / str(ClassicName(0))).field("add").type.field("stats_parsed").type
    assert kind.field("nullCount").type == pa.struct({"day": pa.int64(), "in": pa.struct({"x": pa.int64()})})


@pytest.mark.parametrize(("count", "columns"), [("2", 2), ("0", None), ("-1", 8)])
def test_statistics_are_for_the_first_columns_otherwise(
    table: Table, count: str, columns: int | None
) -> None:
    typed(table, add("a"), delta_dataSkippingNumIndexedCols=count)
    kind = pq.read_schema(table.root / str(ClassicName(0))).field("add").type
    if columns is None:
        assert kind.get_field_index("stats_parsed") == -1
    else:
        assert kind.field("stats_parsed").type.field("nullCount").type.num_fields == columns


@pytest.mark.parametrize(
    ("as_struct", "expected"), [("false", None), ("true", '{"numRecords":1,"nullCount":{"day":0}}')]
)
def test_statistics_are_not_written_as_text_where_the_table_wants_none(
    table: Table, as_struct: str, expected: str | None
) -> None:
    asked = {"delta_checkpoint.writeStatsAsJson": "false", "delta_checkpoint.writeStatsAsStruct": as_struct}
    stats = '{"numRecords":1,"nullCount":{"day":0}}'
    table.commit(0, protocol(), metadata(write_schema(TYPED), **asked), add("a", stats=stats))
    written(table)
    (file,) = from_checkpoint(table, 0).read_files()
    assert file.stats == expected


def test_a_partition_value_of_another_type_stops_the_checkpoint(table: Table) -> None:
    with pytest.raises(InvalidLog, match=r"p = 'x' of a is not a valid date.*(.|\n)*writeStatsAsStruct"):
        typed(table, add("a", partition_values={"p": "x"}))
    assert load_snapshot(table.files).segment.checkpoint is None


def test_an_action_that_does_not_fit_is_an_error_of_the_log(table: Table) -> None:
    vector = DeletionVector(storage_type="u", path_or_inline_dv="v", size_in_bytes=2**40, cardinality=1)
    table.create(add("a", deletion_vector=vector))
    with pytest.raises(InvalidLog, match=r"version 0 .* that cannot be written to a checkpoint"):
        written(table)
    assert load_snapshot(table.files).segment.checkpoint is None


ROWS = pa.table(
    {"id": range(8), "kind": ["a", "b", None, "ü/%=:?#&"] * 2, "seen": [datetime(2024, 1, 1, tzinfo=UTC)] * 8}
)


@pytest.mark.parametrize("shape", ["classic", "typed", "v2", "v2 typed"])
def test_other_readers_see_the_same_table_through_our_checkpoint(
    table: Table, duckdb: Any, shape: str
) -> None:
    root = str(table.root)
    asked: dict[str, str | None] = {"delta.checkpointInterval": "100"}
    if "typed" in shape:
        asked["delta.checkpoint.writeStatsAsStruct"] = "true"
    for _ in range(3):
        write_deltalake(root, ROWS, mode="append", partition_by=["kind"], configuration=asked)
    if "v2" in shape:
        opened = DeltaTable(root)
        policy = msgspec.structs.replace(
            load_snapshot(table.files).metadata,
            configuration={**opened.metadata().configuration, "delta.checkpointPolicy": "v2"},
        )
        table.commit(3, protocol(reader=["v2Checkpoint"]), policy)
    DeltaTable(root).delete("kind = 'a' AND id = 0")
    last = DeltaTable(root).version()
    name = written(table).name
    assert (name != str(ClassicName(last))) == ("v2" in shape)
    from_checkpoint(table, last)
    write_deltalake(root, ROWS.slice(5, 1), mode="append")
    expected = sorted([*list(range(1, 8)) * 3, 5])
    assert DeltaTable(root).version() == last + 1
    assert sorted(pa.table(DeltaTable(root).scan(columns=["id"]))["id"].to_pylist()) == expected
    scanned = duckdb.execute("SELECT id FROM delta_scan(?) WHERE seen < '2025-01-01'", [root]).fetchall()
    assert sorted(one for (one,) in scanned) == expected
    some = duckdb.execute("SELECT count(*) FROM delta_scan(?) WHERE kind = 'b'", [root]).fetchall()
    assert some == [(7,)]


def test_reading_a_log_without_checkpoints_does_not_load_pyarrow(table: Table) -> None:
    table.create(add("a"))
    script = (
        "import sys\n"
        "from penstock.formats.delta.publishing import maintenance\n"
        "from penstock.formats.delta.log.log_files import PlaceFiles\n"
        "from penstock.formats.delta.log.snapshot import load_snapshot\n"
        "from penstock.storage.places import Places\n"
        "places = Places()\n"
        "print(len(list(load_snapshot(PlaceFiles(places.open_place(sys.argv[1]))).read_files())))\n"
        "places.close()\n"
        "print('pyarrow' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(table.root)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout.split() == ["1", "False"]

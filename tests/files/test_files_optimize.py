"""Small Parquet files of a table of files are written together, with the same rows, beside writers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.files.lake import file_upkeep
from penstock.formats.files.lake.pending_changes import commit_pending_changes
from penstock.lake.lake import Lake
from penstock.lake.table import Table

KEY = "shop.visits"


def rows(first: int, count: int = 4) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": numbers, "day": [f"d{number % 2}" for number in numbers]})


def make(lake: Lake, writes: int = 3, **options: Any) -> Table:
    table = lake.table(KEY)
    for number in range(writes):
        table.write(rows(4 * number), **{"format": "parquet", "partition_by": "day", **options})
    return table


def paths(table: Table) -> list[str]:
    return [file.path for file in table.files.list()]


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def test_small_files_of_a_folder_become_one_by_one_commit(lake: Lake) -> None:
    table = make(lake)
    table.files.put("notes/readme.txt", "not rows")
    before, seen = len(lake.log(limit=None)), list[tuple[int, int]]()
    done = table.optimize(progress=lambda part, whole: seen.append((part, whole)))
    assert (done.files_removed, done.files_added, done.version) == (6, 2, None)
    assert done.bytes_added > 0
    assert seen[-1] == (done.bytes_removed, done.bytes_removed)
    assert [path.partition("/")[0] for path in paths(table)] == ["day=d0", "day=d1", "notes"]
    table.files.delete("notes/readme.txt")
    assert ids(table) == list(range(12))
    assert len(lake.log(limit=None)) == before + 2
    assert lake.log(limit=2)[1].message == f"optimize {KEY}"
    assert table.optimize().files_removed == 0


def test_it_is_reverted_and_merged_as_any_commit(lake: Lake) -> None:
    table = make(lake)
    lake.branch("dev").create()
    assert lake.table(KEY, "dev").optimize().files_added == 2
    table.write(rows(100), format="parquet")
    lake.merge("dev")
    assert ids(table) == [*range(12), *range(100, 104)]
    before = paths(table)
    table.optimize()
    lake.revert(table.log(limit=1)[0].id)
    assert paths(table) == before
    assert ids(table) == [*range(12), *range(100, 104)]


def test_files_of_other_columns_stay_apart_and_old_times_stay_as_they_are(lake: Lake) -> None:
    table = make(lake, 2, partition_by=None)
    table.write(rows(50).append_column("more", pa.array([1, 2, 3, 4])), format="parquet")
    times = pa.BufferOutputStream()
    column = pa.array([0], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": column}), times, use_deprecated_int96_timestamps=True)
    data = times.getvalue().to_pybytes()
    table.files.write({"old/a.parquet": data, "old/b.parquet": data})
    done = table.optimize()
    assert (done.files_removed, done.files_added) == (2, 1)
    assert {"old/a.parquet", "old/b.parquet"} < set(paths(table))


def test_a_size_is_kept_to_and_nonsense_is_refused(lake: Lake) -> None:
    table = make(lake, 6, partition_by=None)
    size = table.files.list()[0].size
    done = table.optimize(target_file_bytes=2 * size + 100)
    assert (done.files_removed, done.files_added) == (6, 3)
    with pytest.raises(InvalidRequest, match="1 or more"):
        table.optimize(target_file_bytes=0)
    with pytest.raises(NotManaged, match="leave out where"):
        table.optimize(zorder_by="id")
    table.files.write({"x.parquet": b"no Parquet", "y.parquet": b"nor this"})
    with pytest.raises(InvalidRequest, match=r"y\.parquet' of 'shop\.visits' cannot be read as Parquet"):
        table.optimize()


def test_what_is_not_parquet_is_refused_by_its_name(lake: Lake) -> None:
    table = lake.table("shop.csv")
    table.write(rows(0), format="csv")
    with pytest.raises(NotManaged, match="a table of csv files"):
        table.optimize()


@pytest.mark.parametrize("often", [1, 9])
def test_files_that_others_replace_meanwhile_are_taken_as_they_are(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, often: int
) -> None:
    table = make(lake, partition_by=None)
    tries = list[int]()

    def wrapped(*arguments: Any) -> Any:
        tries.append(len(tries))
        if len(tries) <= often:
            table.files.delete(min(paths(table)))
            table.write(rows(100 * len(tries)), format="parquet")
        return commit_pending_changes(*arguments)

    monkeypatch.setattr(file_upkeep, "commit_pending_changes", wrapped)
    before = len(ids(table))
    done = table.optimize()
    assert len(ids(table)) == before
    assert len(set(ids(table))) == before
    assert (done.files_skipped, len(tries)) == ((0, 2) if often == 1 else (3, 5))

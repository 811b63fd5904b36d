"""Dry runs: what they count is what is done, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.model.merges import MergeResult
from tests.restore.tables import FORMATS, files_below, key_of, numbers, rows_of, write


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


def counts(result: MergeResult) -> dict[str, tuple[object, ...]]:
    """By key: what happens, files that come, go and change, rows that come and go."""
    return {
        str(one.key): (
            one.action,
            *(
                ()
                if one.change is None
                else (
                    one.change.files_added,
                    one.change.files_removed,
                    one.change.files_changed,
                    one.change.rows_added,
                    one.change.rows_removed,
                )
            ),
        )
        for one in result.keys
    }


def test_a_dry_run_tells_what_is_done_and_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    for format_name in FORMATS:
        write(lake, key_of(format_name), [1, 2])
        write(lake, key_of(format_name, "gone"), [5])
    then = lake.branch().head
    for format_name in FORMATS:
        write(lake, key_of(format_name), [3, 4, 5], mode="overwrite")
        write(lake, key_of(format_name), [6])
        write(lake, key_of(format_name, "new"), [7, 8])
        lake.branch().drop(key_of(format_name, "gone"))
    lake.finish_background(30)
    before, head = files_below(tmp_path), lake.branch().head
    preview = lake.restore(all=True, to=then, dry_run=True)
    assert files_below(tmp_path) == before
    assert (preview.dry_run, preview.applied, preview.commits, preview.head) == (True, False, (), head)
    assert counts(preview) == {
        "delta.gone": ("created", 1, 0, 0, 1, 0),
        "delta.new": ("dropped", 0, 1, 0, 0, 2),
        "delta.t": ("changed", 1, 2, 0, 2, 4),
        "files.gone": ("created", 1, 0, 0, None, None),
        "files.new": ("dropped", 0, 1, 0, None, None),
        "files.t": ("changed", 1, 2, 0, None, None),
        "lance.gone": ("created", 1, 0, 0, 1, 0),
        "lance.new": ("dropped", 0, 1, 0, 0, 2),
        "lance.t": ("changed", 1, 2, 0, 2, 4),
    }
    done = lake.restore(all=True, to=then)
    assert {str(one.key): one.action for one in done.keys} == {
        key: told[0] for key, told in counts(preview).items()
    }
    versions = {str(one.key): one.change for one in preview.keys}
    for key in ("delta.t", "lance.t", "delta.gone", "lance.gone"):
        assert versions[key].version_after == lake.table(key).version  # type: ignore[union-attr]
    assert rows_of(lake, "delta.t") == [1, 2]


@pytest.mark.parametrize("rows", [3, 600])
def test_a_dry_run_of_a_large_delta_restore_stages_no_body(lake: Lake, tmp_path: Path, rows: int) -> None:
    """A commit of more than 128 KiB is staged beside the table, unless it is only asked about."""
    data = pa.table({"id": list(range(rows)), "part": list(range(rows))})
    lake.create_table("delta.t", data=data, partition_by=["part"])
    first = lake.branch().head
    lake.table("delta.t").overwrite(pa.table({"id": [1], "part": [1]}))
    lake.finish_background(30)
    before = files_below(tmp_path)
    preview = lake.restore("delta.t", to=first, dry_run=True)
    assert files_below(tmp_path) == before
    assert counts(preview) == {"delta.t": ("changed", rows, 1, 0, rows, 1)}
    lake.restore("delta.t", to=first)
    assert len(lake.table("delta.t").to_arrow()) == rows
    bodies = [name for name in files_below(tmp_path).keys() - before.keys() if "/bodies/" in name]
    assert len(bodies) == (rows > 3)


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_dry_run_of_a_revert_counts_too(lake: Lake, tmp_path: Path, format_name: str) -> None:
    key = key_of(format_name)
    write(lake, key, [1])
    bad = write(lake, key, [2, 3])
    lake.finish_background(30)
    before = files_below(tmp_path)
    preview = lake.revert(bad, dry_run=True)
    assert files_below(tmp_path) == before
    rows = (None, None) if format_name == "files" else (0, 2)
    assert counts(preview) == {key: ("changed", 0, 1, 0, *rows)}
    lake.revert(bad)
    assert rows_of(lake, key) == [1]


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_dry_runs_of_merges_transplants_and_rebases_count_too(
    lake: Lake, tmp_path: Path, format_name: str
) -> None:
    key = key_of(format_name)
    write(lake, key, [1])
    lake.branch("dev").create()
    write(lake, key, [2, 3], ref="dev")
    write(lake, key, [4], ref="dev")
    write(lake, key, [9])
    lake.finish_background(30)
    before = files_below(tmp_path)
    results = [
        lake.merge("dev", dry_run=True),
        lake.transplant("dev~2..dev", dry_run=True),
        lake.rebase("dev", dry_run=True),
    ]
    assert files_below(tmp_path) == before
    rows = (None, None) if format_name == "files" else (3, 0)
    for result in results:
        assert counts(result) == {key: ("changed", 2, 0, 0, *rows)}


def test_what_statistics_do_not_tell_is_not_known(lake: Lake) -> None:
    table = lake.create_table("delta.t", data=numbers(1))
    head = lake.branch().head
    path = Path(table.location) / "more.parquet"
    pq.write_table(numbers(2, 3), path)
    size = path.stat().st_size
    add = {"path": path.name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    table.append_actions([json.dumps({"add": add})])
    (told,) = lake.restore("delta.t", to=head, dry_run=True).keys
    assert told.change is not None
    assert (told.change.files_removed, told.change.bytes_removed) == (1, size)
    assert (told.change.rows_added, told.change.rows_removed) == (0, None)

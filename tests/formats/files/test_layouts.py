"""Files of one table are of one format, and partitioned by the same columns."""

from __future__ import annotations

from functools import partial
from threading import Barrier
from typing import Any

import pytest

from penstock import Lake
from penstock.errors import CommitConflict
from penstock.formats.files.format import FilesFormat
from penstock.testing.threads import at_once
from tests.formats.files.lakes import paths, write

by_day = partial(write, written_as="parquet", partition_by=("day",))
by_hour = partial(write, written_as="parquet", partition_by=("hour",))
unpartitioned = partial(write, written_as="parquet")


def test_of_two_first_jobs_with_other_partition_columns_one_lands(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them looked before there was a table."""
    looked, plain = Barrier(2), FilesFormat.prepare
    refused: list[CommitConflict] = []

    def together(self: FilesFormat, *asked: Any) -> Any:
        found = plain(self, *asked)
        looked.wait(30)
        return found

    def first(job: partial[Any], path: str) -> None:
        try:
            job(lake, path)
        except CommitConflict as conflict:
            refused.append(conflict)

    monkeypatch.setattr(FilesFormat, "prepare", together)
    at_once(partial(first, by_day, "day=1/a"), partial(first, by_hour, "hour=1/a"))
    assert len(paths(lake)) == len(refused) == 1
    assert "but the job writes files partitioned by" in str(refused[0])


@pytest.mark.parametrize("job", [by_hour, unpartitioned], ids=["others", "none"])
def test_a_job_with_other_partition_columns_is_refused_beside_files(lake: Lake, job: partial[Any]) -> None:
    by_day(lake, "day=1/a", "day=2/a")
    with pytest.raises(CommitConflict, match="has files partitioned by day, but the job writes files"):
        job(lake, "b")
    with pytest.raises(CommitConflict, match="has files partitioned by day"):
        job(lake, "b", replaced=["day=1/"])
    assert paths(lake) == ["day=1/a", "day=2/a"]


@pytest.mark.parametrize("replaced", [[""], ["day=1/", "day=2/"]], ids=["the table", "all folders"])
def test_a_job_that_leaves_none_of_the_others_may_have_its_own_columns(
    lake: Lake, replaced: list[str]
) -> None:
    by_day(lake, "day=1/a", "day=2/a")
    by_hour(lake, "hour=1/b", replaced=replaced)
    by_hour(lake, "hour=1/c")
    assert paths(lake) == ["hour=1/b", "hour=1/c"]


def test_a_path_that_is_written_again_is_not_one_of_the_others(lake: Lake) -> None:
    unpartitioned(lake, "a")
    write(lake, put=["a"], written_as="csv")
    assert paths(lake) == ["a"]


def test_files_of_which_nothing_is_known_go_with_any(lake: Lake) -> None:
    write(lake, "day=1/a")
    by_day(lake, "day=1/b")
    write(lake, "day=2/a")
    assert len(paths(lake)) == 3

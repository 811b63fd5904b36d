"""Writes of rows as jobs: they commit in time or not at all, and files go only when nobody can name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import (
    CommitConflict,
    Damaged,
    InvalidRequest,
    KeyNotFound,
    OutcomeUnknown,
    PenstockError,
    TableConflict,
    Unavailable,
    VersionNotFound,
)
from penstock.formats.delta.lake.calls import CommitTables, CreateTable
from penstock.formats.delta.lake.snapshot import list_commit_files
from penstock.kernel.reachable import show_no_progress
from penstock.kernel.settings import Settings
from penstock.lake import calls
from penstock.lake import job_files as delta_jobs
from penstock.lake.call import Call
from penstock.lake.job_files import DAY_S, JobStart
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Delete

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        yield lake


class Failing(Lake):
    """A lake whose commits to tables end with an error, before or after they were carried out."""

    def fail(self, error: PenstockError, *, after: bool = False) -> Failing:
        self._error, self._after = error, after
        return self

    def do(self, call: Call[Any], progress: Callable[[str, int], None] = show_no_progress) -> Any:
        is_commit = isinstance(call, CommitTables | CreateTable)
        answer = None if is_commit and not self._after else super().do(call, progress)
        if is_commit:
            raise self._error
        return answer


def files(lake: Lake) -> int:
    return len(list(Path(lake.warehouse).rglob("*.parquet")))


WRITES: dict[str, Callable[[Lake], Any]] = {
    "append": lambda lake: lake.table("t").append(ROWS),
    "overwrite": lambda lake: lake.table("t").overwrite(ROWS),
    "create": lambda lake: lake.create_table("new", data=ROWS),
}


@pytest.mark.parametrize("write", WRITES)
def test_rows_that_took_longer_than_their_files_are_safe_are_not_committed(
    lake: Lake, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("t", data=ROWS)
    now = JobStart.at_lake_time

    def long_ago(of: Lake) -> JobStart:
        return JobStart(now(of).monotonic_s, now(of).time_s - 4 * DAY_S, 7 * DAY_S)

    monkeypatch.setattr(delta_jobs.JobStart, "at_lake_time", long_ago)
    with pytest.raises(InvalidRequest, match="'data_grace_days' must"):
        WRITES[write](lake)
    assert lake.table("t").version == 0
    assert not lake.table("new").exists
    assert files(lake) == 1


def test_how_long_that_is_follows_from_the_lake_s_settings(tmp_path: Path) -> None:
    with penstock.open(
        tmp_path / "hasty", settings=Settings(data_grace_days=1e-9, nobody_writes=True)
    ) as hasty:
        with pytest.raises(InvalidRequest, match="nothing was committed"):
            hasty.create_table("t", data=ROWS)
        assert files(hasty) == 0


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    ("error", "files_left"),
    [
        pytest.param(TableConflict([], "changed"), 1, id="a conflict"),
        pytest.param(KeyNotFound("gone"), 1, id="a refusal"),
        pytest.param(Unavailable("no answer"), 2, id="somebody may send it again"),
        pytest.param(Damaged("torn"), 2, id="an error of which nobody knows when it came"),
    ],
)
def test_files_go_after_refusals_alone(lake: Lake, write: str, error: PenstockError, files_left: int) -> None:
    lake.create_table("t", data=ROWS)
    with pytest.raises(type(error)):
        WRITES[write](Failing(lake.catalogue, lake.author).fail(error))
    assert files(lake) == files_left


@pytest.mark.parametrize("write", WRITES)
def test_files_of_a_commit_whose_answer_was_lost_stay(lake: Lake, write: str) -> None:
    lake.create_table("t", data=ROWS)
    with pytest.raises(OutcomeUnknown):
        WRITES[write](Failing(lake.catalogue, lake.author).fail(OutcomeUnknown("lost", key="k"), after=True))
    found = lake.table("new" if write == "create" else "t").to_arrow()
    assert len(found) == (4 if write == "append" else 2)


def test_rows_for_a_table_that_others_replace_meanwhile_leave_nothing(lake: Lake) -> None:
    table = lake.create_table("t", data=ROWS)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        lake.commit([Delete(Key.parse("t"))], message="make room")
        lake.create_table("t", data=ROWS)

    with pytest.raises(CommitConflict):
        table.append(pa.RecordBatchReader.from_batches(ROWS.schema, rows()))
    assert files(lake) == 2
    assert len(lake.table("t").to_arrow()) == 2


def test_commits_are_found_in_the_log_or_where_the_lake_says_and_nowhere_else(lake: Lake) -> None:
    table = lake.create_table("t", data=ROWS)
    lake.branch("dev").create()
    mine, theirs = lake.table("t", "dev"), table
    mine.append(ROWS)
    theirs.append(ROWS)
    theirs.append(ROWS)
    lake.delta.publish("t")
    log = mine.get_commits()
    place = lake.places.open_place(log.location)
    found = list(list_commit_files(log, place, range(2)))
    assert [one.version for one in found] == [0, 1]
    assert found[1].data != next(list_commit_files(theirs.get_commits(), place, [1])).data
    # The log of the default branch has a version 2, which is none of this branch.
    assert None not in list(place.read(["_delta_log/00000000000000000002.json"]))
    with pytest.raises(VersionNotFound, match="no version 2: the newest one is 1"):
        list_commit_files(log, place, range(3))


def test_a_lake_is_asked_once_in_a_while_how_long_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        asked: list[object] = []
        do = lake.catalogue.do

        def counted(call: Any, *more: Any) -> Any:
            asked.append(call)
            return do(call, *more)

        monkeypatch.setattr(lake.catalogue, "do", counted)
        lake.delta.create("demo.rows", data=pa.table({"id": [1]}))
        for number in range(3):
            lake.table("demo.rows").append(pa.table({"id": [number]}))
        assert sum(isinstance(one, calls.GetAbout) for one in asked) == 1
        monkeypatch.setattr(delta_jobs, "ASKED_EVERY_S", -1.0)
        JobStart.at_lake_time(lake)
        assert sum(isinstance(one, calls.GetAbout) for one in asked) == 2

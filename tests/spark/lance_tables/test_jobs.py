"""Jobs that meet others, fail, or are tried again: each row lands once, and a refusal leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from penstock.errors import (
    CommitConflict,
    Denied,
    IdempotencyKeyReused,
    InvalidRequest,
    KeyNotFound,
    OutcomeUnknown,
    PenstockError,
)
from penstock.formats.lance.lake.calls import CommitLance, GetLanceTable
from penstock.formats.lance.spark import output
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.lake.transactions.calls import CommitTransaction, ListTransactions
from penstock.model.keys import Key
from penstock.spark import read
from tests.spark.lance_tables.cases import (
    ITEMS,
    after_writing,
    data_files,
    dataset,
    failing_last,
    head,
    ids,
    once,
    rows,
    save,
    together,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# -- races -------------------------------------------------------------------------------------------------


@pytest.mark.verify
def test_appends_at_once_are_both_there(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    found = together(monkeypatch, lambda: save(rows(spark, 10)), lambda: save(rows(spark, 20)))
    assert {one.version for one in found if one is not None and not isinstance(one, PenstockError)} == {2, 3}
    assert ids(lake) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


@pytest.mark.verify
def test_appends_that_create_the_table_at_once_are_both_there(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    together(monkeypatch, lambda: save(rows(spark, 10)), lambda: save(rows(spark, 20)))
    assert ids(lake) == [10, 11, 12, 20, 21, 22]
    assert lake.do(ListTransactions()) == ()


@pytest.mark.verify
def test_of_two_that_only_create_one_is_refused_and_leaves_nothing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = together(
        monkeypatch, lambda: save(rows(spark, 10), mode="error"), lambda: save(rows(spark, 20), mode="error")
    )
    assert [type(one) for one in found if isinstance(one, CommitConflict)] != []
    assert ids(lake) in ([10, 11, 12], [20, 21, 22])
    assert len(data_files(lake)) == 1


@pytest.mark.verify
def test_an_append_goes_on_top_of_an_overwrite_that_was_faster(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    after_writing(monkeypatch, once(lambda: save(rows(spark, 20), mode="overwrite")))
    save(rows(spark, 10))
    assert ids(lake) == [10, 11, 12, 20, 21, 22]


@pytest.mark.verify
def test_an_append_to_columns_that_are_others_by_now_is_refused_and_leaves_nothing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    other = rows(spark, 20).selectExpr("id", "'x' AS s")
    after_writing(monkeypatch, once(lambda: save(other, mode="overwrite", overwrite_schema=True)))
    with pytest.raises(CommitConflict, match=r"'vectors\.items' was changed by another writer"):
        save(rows(spark, 10))
    assert ids(lake) == [20, 21, 22]
    assert len(data_files(lake)) == 2  # of the two versions that there are


@pytest.mark.verify
def test_an_overwrite_goes_on_top_of_an_append_that_was_faster(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    after_writing(monkeypatch, once(lambda: save(rows(spark, 20))))
    done = save(rows(spark, 10), mode="overwrite")
    assert done is not None
    assert done.version == 3
    assert ids(lake) == [10, 11, 12]


def test_an_overwrite_drops_no_column_that_came_while_it_ran(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    after_writing(monkeypatch, once(lambda: dataset(lake).add_columns({"extra": "id + 1"})))
    with pytest.raises(CommitConflict, match=r"changed by another writer.*its columns have changed"):
        save(rows(spark, 10), mode="overwrite")
    assert dataset(lake).schema.names == ["id", "v", "extra"]
    assert ids(lake) == [0, 1, 2]
    files = data_files(lake)
    after_writing(monkeypatch, once(lambda: dataset(lake).add_columns({"more": "id + 1"})))
    save(rows(spark, 10), mode="overwrite", overwrite_schema=True)  # it asked for that
    assert dataset(lake).schema.names == ["id", "v"]
    assert files < data_files(lake)


# -- the same job again ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_new", [True, pytest.param(False, marks=pytest.mark.verify)])
def test_a_job_with_a_name_is_done_once(spark: SparkSession, lake: Lake, is_new: bool) -> None:
    if not is_new:
        save(rows(spark, 0), mode="error")
    first = save(rows(spark, 10), job_id="nightly")
    before = head(lake), data_files(lake)
    again = save(rows(spark, 10), job_id="nightly")
    assert first is not None
    assert again is not None
    assert (again.commit, again.version, again.job) == (first.commit, first.version, first.job)
    assert (head(lake), data_files(lake)) == before
    save(rows(spark, 20), job_id="tomorrow")
    assert ids(lake)[-3:] == [20, 21, 22]


def test_an_id_that_another_table_was_written_under_is_refused(spark: SparkSession, lake: Lake) -> None:
    """Whether the tables were there before, or come by the jobs."""
    job, creating = uuid4().hex, uuid4()
    save(rows(spark, 0), "vectors.a")
    save(rows(spark, 0), "vectors.b")
    save(rows(spark, 10), "vectors.a", job_id=job)
    with pytest.raises(IdempotencyKeyReused, match=r"'vectors\.b' was not written"):
        save(rows(spark, 10), "vectors.b", job_id=job)
    assert ids(lake, "vectors.b") == [0, 1, 2]
    save(rows(spark, 0), "vectors.c", job_id=creating)
    save(rows(spark, 0), "vectors.d", job_id=creating)
    assert ids(lake, "vectors.d") == [0, 1, 2]


@pytest.mark.verify
def test_under_one_id_a_table_is_created_on_each_branch(spark: SparkSession, lake: Lake) -> None:
    """Also on one that is deleted and made anew."""
    job = uuid4().hex
    lake.branch("dev").create(at="main")
    save(rows(spark, 0), job_id=job)
    for _ in range(2):
        done = save(rows(spark, 10), branch="dev", job_id=job)
        assert done is not None
        assert done.rows == 3
        again = save(rows(spark, 10), branch="dev", job_id=job)
        assert again is not None
        assert again.rows is None
        assert ids(lake, ref="dev") == [10, 11, 12]
        lake.branch("dev").delete()
        lake.branch("dev").create(at="main~1")
    assert ids(lake) == [0, 1, 2]


@pytest.mark.verify
def test_attempts_of_a_job_at_once_land_once(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    found = together(monkeypatch, *[lambda: save(rows(spark, 10), job_id="nightly")] * 2)
    assert (
        len({one.commit.id for one in found if one and not isinstance(one, PenstockError) and one.commit})
        == 1
    )
    assert ids(lake) == [0, 1, 2, 10, 11, 12]
    assert len(data_files(lake)) == 2


@pytest.mark.verify
def test_a_later_attempt_that_creates_the_table_takes_the_place_of_one_that_runs(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_writing(monkeypatch, once(lambda: save(rows(spark, 10), job_id="nightly")))
    with pytest.raises(PenstockError, match="a later attempt of its job began"):
        save(rows(spark, 10), job_id="nightly")
    assert ids(lake) == [10, 11, 12]


# -- failures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_new", [True, pytest.param(False, marks=pytest.mark.verify)])
def test_a_job_that_fails_leaves_nothing_that_anybody_sees(
    spark: SparkSession, lake: Lake, tmp_path: Path, is_new: bool
) -> None:
    """Also not what tasks wrote that had finished by then."""
    if not is_new:
        save(rows(spark, 0))
    before, files = head(lake), data_files(lake)
    with (
        failing_last(rows(spark, 10, 4, tasks=2), tmp_path / "go") as failing,
        pytest.raises(Exception, match="no more"),
    ):
        save(failing)
    assert (head(lake), data_files(lake)) == (before, files)
    assert lake.do(ListTransactions()) == ()
    if is_new:
        with pytest.raises(KeyNotFound):
            lake.do(GetLanceTable(key=Key.parse(ITEMS)))
    save(rows(spark, 50), job_id="next")
    assert ids(lake)[-3:] == [50, 51, 52]


@pytest.mark.parametrize("is_new", [False, pytest.param(True, marks=pytest.mark.verify)])
def test_an_answer_that_is_lost_is_found_out(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        save(rows(spark, 0))
    losing = _Losing(lake, CommitLance, OutcomeUnknown("the answer was lost"), is_done=True)
    after_writing(monkeypatch, lambda: monkeypatch.setattr(lake, "do", losing.do))
    done = save(rows(spark, 10))
    assert losing.count == 1
    assert done is not None
    assert done.commit is not None
    assert done.commit.id == head(lake)
    assert ids(lake)[-3:] == [10, 11, 12]


@pytest.mark.parametrize("call", [CommitLance, CommitTransaction])
@pytest.mark.verify
def test_a_commit_that_is_refused_says_why_and_leaves_no_file(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, call: type[Call[Any]]
) -> None:
    if call is CommitLance:
        save(rows(spark, 0))
    before, files = head(lake), data_files(lake)
    refusing = _Losing(lake, call, InvalidRequest("not on a Sunday"), is_done=False)
    after_writing(monkeypatch, lambda: monkeypatch.setattr(lake, "do", refusing.do))
    with pytest.raises(InvalidRequest, match="not on a Sunday"):
        save(rows(spark, 10))
    assert (head(lake), data_files(lake)) == (before, files)


@pytest.mark.verify
def test_a_commit_that_may_yet_be_done_keeps_its_files(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 0))
    files = data_files(lake)
    denying = _Losing(lake, CommitLance, Denied("not you"), is_done=False)
    after_writing(monkeypatch, lambda: monkeypatch.setattr(lake, "do", denying.do))
    with pytest.raises(Denied):
        save(rows(spark, 10))
    assert files < data_files(lake)


class _Losing:
    """A lake whose first answer to a call is lost, or that refuses it."""

    def __init__(self, lake: Lake, call: type[Call[Any]], error: PenstockError, *, is_done: bool) -> None:
        self._do, self._call, self._error, self._is_done = lake.do, call, error, is_done
        self.count = 0

    def do(self, call: Call[Any], *more: Any, **named: Any) -> Any:
        if not isinstance(call, self._call) or (self._is_done and self.count):
            return self._do(call, *more, **named)
        self.count += 1
        if self._is_done:
            self._do(call, *more, **named)
        raise self._error


def test_what_two_attempts_of_one_task_tell_is_not_committed() -> None:
    told = [output._TaskFragments(3, []) for _ in range(2)]
    with pytest.raises(InvalidRequest, match="reported the output of partition 3 twice"):
        output._collect_output(told)


@pytest.mark.verify
def test_a_read_stays_at_its_commit_while_a_writer_goes_on(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    found = read(spark, ITEMS)
    save(rows(spark, 10))
    save(rows(spark, 20), mode="overwrite")
    assert sorted(one.id for one in found.collect()) == [0, 1, 2]

"""Rows of Lance tables by Penstock's own methods: each write lands once, and what fails is said plainly."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import (
    CommitConflict,
    IdempotencyKeyReused,
    InvalidRequest,
    NotManaged,
    OutcomeUnknown,
    PenstockError,
    VersionNotFound,
)
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.keys import Key

WAIT_S = 30


def made(lake: Lake, name: str, ids: list[int], ref: str | None = None) -> Table:
    """A table that Lance itself wrote."""
    import lance

    lance.write_dataset(pa.table({"id": ids}), namespace_client=lake.lance(ref), table_id=[name])
    return lake.table(name, ref)


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow(["id"]).column("id").to_pylist())


# -- once --------------------------------------------------------------------------------------------------


def test_a_key_that_was_used_for_another_table_is_refused_and_nothing_is_taken_for_done(own: Lake) -> None:
    first, second = made(own, "a", [1]), made(own, "b", [1])
    first.append({"id": [10]}, idempotency_key="run-7")
    for write in (second.append, second.overwrite):
        with pytest.raises(IdempotencyKeyReused, match="'b' was not written"):
            write({"id": [10]}, idempotency_key="run-7")
    second.append({"id": [10]}, idempotency_key="run-7 b")
    assert (ids(first), ids(second)) == ([1, 10], [1, 10])


def test_the_same_write_again_is_answered_as_the_first_time(own: Lake, far: Lake) -> None:
    table = made(own, "a", [1])
    first = far.table("a").append({"id": [10]}, idempotency_key="run-7")
    again = table.append({"id": [10]}, idempotency_key="run-7")
    assert (again.commit.id, again.tables[0].version) == (first.commit.id, first.tables[0].version)
    assert (first.tables[0].repeated, again.tables[0].repeated) == (False, True)
    assert ids(table) == [1, 10]


def test_the_same_key_on_another_branch_is_another_write(own: Lake) -> None:
    table = made(own, "a", [1])
    own.branch("dev").create(at="main")
    table.append({"id": [10]}, idempotency_key="run-7")
    own.table("a", "dev").append({"id": [10]}, idempotency_key="run-7")
    assert ids(own.table("a", "dev")) == [1, 10]


def test_an_answer_that_is_lost_is_found_out(own: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, do, lost = made(own, "a", [1]), own.do, list[object]()

    def losing(call: Call[Any], *more: Any) -> Any:
        answer = do(call, *more)
        if isinstance(call, CommitLance) and not lost:
            lost.append(answer)
            raise OutcomeUnknown("the answer was lost")
        return answer

    monkeypatch.setattr(own, "do", losing)
    done = table.append({"id": [10]})
    assert len(lost) == 1
    assert done.commit.id == own.branch().head
    assert ids(table) == [1, 10]


def test_attempts_at_once_under_one_key_land_once(own: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(own, "a", [1])
    found = _at_once(own, monkeypatch, *[lambda: table.append({"id": [10]}, idempotency_key="run-7")] * 2)
    assert [one for one in found if isinstance(one, PenstockError)] == []
    assert len({one.commit.id for one in found}) == 1
    assert ids(table) == [1, 10]


def test_of_overwrites_at_once_one_is_refused_as_a_conflict(
    own: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(own, "a", [1])
    found = _at_once(
        own, monkeypatch, lambda: table.overwrite({"id": [10]}), lambda: table.overwrite({"id": [20]})
    )
    (problem,) = (one for one in found if isinstance(one, PenstockError))
    assert isinstance(problem, CommitConflict)
    assert "'a' was changed by another writer" in problem.message
    assert problem.message.count("conflict\n") == 1
    assert ids(table) in ([10], [20])


def _at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, *work: Callable[[], Any]) -> list[Any]:
    """What writes came to of which none is sent before all are about to be."""
    all_there, waited, do = Barrier(len(work)), list[None](), lake.do

    def waiting(call: Call[Any], *more: Any) -> Any:
        if isinstance(call, CommitLance) and len(waited) < len(work):
            waited.append(None)
            all_there.wait(WAIT_S)
        return do(call, *more)

    monkeypatch.setattr(lake, "do", waiting)

    def one(write: Callable[[], Any]) -> Any:
        try:
            return write()
        except PenstockError as problem:
            return problem

    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(one, work))


# -- what is said ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (lambda table: table.append({"nope": [1]}), "'a': Append with different schema"),
        (lambda table: table.append({"id": ["x"]}), "`id` should have type int64"),
        (lambda table: table.append({"id": 5}), "cannot be converted to Arrow"),
        (
            lambda table: table.append(pa.table([[1], [2]], names=["id", "id"])),
            "the rows have duplicate columns: 'id'",
        ),
        (lambda table: table.to_arrow(["nope"]), "'a': Schema error: No field named nope"),
        (lambda table: table.to_arrow(where="nope > 1"), "No field named nope"),
    ],
    ids=["other column", "other type", "no rows", "twice", "no such column", "no such condition"],
)
def test_what_lance_refuses_is_said_without_its_source_code(
    own: Lake, do: Callable[[Table], Any], why: str
) -> None:
    table = made(own, "a", [1])
    before = own.branch().head
    with pytest.raises(InvalidRequest, match=why) as refused:
        do(table)
    assert ".rs:" not in refused.value.message
    assert own.branch().head == before


def test_a_version_whose_files_were_removed_is_gone_for_good(own: Lake) -> None:
    table = made(own, "a", [1])
    before = own.at()
    table.append({"id": [10]})
    table.to_lance().optimize.compact_files()
    for name in table.to_lance().tags.list():  # by which it would be left
        table.to_lance().tags.delete(name)
    table.to_lance().cleanup_old_versions(older_than=timedelta(0))
    assert ids(table) == [1, 10]
    with pytest.raises(VersionNotFound, match="files of this version of 'a' no longer exist"):
        before.table("a").to_arrow()


def test_a_data_file_that_is_gone_is_told_likewise(own: Lake) -> None:
    table = made(own, "a", [1])
    for one in Path(own.warehouse).rglob("data/*.lance"):
        one.unlink()
    with pytest.raises(VersionNotFound, match="files of this version of 'a' no longer exist"):
        table.to_arrow()


# -- what is asked of Delta tables -------------------------------------------------------------------------


def test_place_and_version_are_told_as_of_a_delta_table(own: Lake) -> None:
    table = made(own, "a", [1])
    table.append({"id": [10]})
    assert Path(table.location).is_dir()
    assert (table.version, own.at("main~1").table("a").version) == (2, 1)
    own.do(CommitLance(operations=(DeclareLance(key=Key.parse("b")),)))
    with pytest.raises(VersionNotFound, match="'b' has no version yet"):
        _ = own.table("b").version


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.properties,
        lambda table: table.history(),
        lambda table: table.snapshot(),
        lambda table: table.overwrite({"id": [1]}, where="id = 1"),
        lambda table: table.overwrite({"id": [1]}, partitions={"id": 1}),
    ],
    ids=["properties", "history", "snapshot", "where", "partitions"],
)
def test_what_is_for_delta_tables_alone_says_what_a_lance_table_is_read_by(
    own: Lake, ask: Callable[[Table], Any]
) -> None:
    table = made(own, "a", [1])
    with pytest.raises(NotManaged, match=r"'a' is a Lance table.* to_lance\(\)") as refused:
        ask(table)
    assert "adopt" not in refused.value.message

"""What counts as read in a transaction: every public way of reading, and no look that a write has to take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import lance_namespace as ln
import pytest

from penstock.errors import InvalidRequest, KeyNotFound, Unavailable
from penstock.formats.delta.branch_log.read_check import NO_ROWS
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.lake.transactions.calls import NoteReads
from penstock.lake.transactions.transaction import Transaction
from penstock.model.keys import Key
from penstock.model.reads import PARTS_MAX, Read
from tests.transactions.pipelines import FORMATS, ids, opened, reads, rows

R = TypeVar("R")

DELTA, LANCE, RAW, ABSENT = Key("s", "delta"), Key("s", "lance"), Key("s", "parquet"), Key("s", "absent")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reads") / "lake"


@pytest.fixture(scope="module")
def lake(place: Path) -> Iterator[Lake]:
    """One for all of these tests: nothing lands in it."""
    with opened("embedded", place) as found:
        for kind in FORMATS:
            found.table(f"s.{kind}").write(rows(1, 2), format=kind)
        yield found


def whole(*keys: Key) -> list[Read]:
    return [Read(key=key) for key in sorted(keys, key=Key.encode)]


def part(key: Key, text: str) -> list[Read]:
    return [Read(key=key, part=text)]


def names(key: Key | None) -> list[Read]:
    return [Read(key=key, is_listing=True)]


def swallow(error: type[Exception], do: Callable[[], Any]) -> None:
    with pytest.raises(error):
        do()


LOOKS: dict[str, tuple[Callable[[Transaction, Lake], Any], list[Read]]] = {
    "rows of Delta": (lambda tx, _: tx.table(DELTA).to_arrow(), whole(DELTA)),
    "rows by a condition": (lambda tx, _: tx.table(DELTA).to_arrow(where="id > 1"), part(DELTA, "id > 1")),
    "files by a condition": (
        lambda tx, _: list(tx.table(DELTA).snapshot().files("id = 1")),
        part(DELTA, "id = 1"),
    ),
    "a stream": (lambda tx, _: tx.table(DELTA).snapshot().to_batches().read_all(), whole(DELTA)),
    "a version": (lambda tx, _: tx.table(DELTA).version, whole(DELTA)),
    "a schema": (lambda tx, _: tx.table(DELTA).snapshot().schema, whole(DELTA)),
    "columns": (lambda tx, _: tx.table(DELTA).schema, part(DELTA, NO_ROWS)),
    "columns of files": (lambda tx, _: tx.table(RAW).schema, whole(RAW)),
    "properties": (lambda tx, _: tx.table(DELTA).properties, part(DELTA, NO_ROWS)),
    "a type": (lambda tx, _: tx.table(DELTA).type, names(DELTA)),
    "a history": (lambda tx, _: tx.table(DELTA).history(), whole(DELTA)),
    "commits of a table": (lambda tx, _: tx.table(DELTA).get_commits(), whole(DELTA)),
    "commits of a table up to one": (lambda tx, _: tx.table(DELTA).get_commits(0, 0), whole(DELTA)),
    "rows of Lance": (lambda tx, _: tx.table(LANCE).to_arrow(), whole(LANCE)),
    "a dataset of Lance": (lambda tx, _: tx.table(LANCE).to_lance().count_rows(), whole(LANCE)),
    "rows of files": (lambda tx, _: tx.table(RAW).to_arrow(), whole(RAW)),
    "a list of files": (lambda tx, _: tx.table(RAW).files.list(), whole(RAW)),
    "a folder": (lambda tx, _: tx.table(RAW).files.list("day=1"), part(RAW, "day=1/")),
    "a file that is not there": (lambda tx, _: tx.table(RAW).files.exists("a"), part(RAW, "a")),
    "a total": (lambda tx, _: tx.table(RAW).files.total("x/"), part(RAW, "x/")),
    "a file by fsspec": (
        lambda tx, lake: lake.files_system(tx.branch).exists("s.parquet/a"),
        [*part(RAW, "a"), *part(RAW, "a/")],
    ),
    "tables by fsspec": (lambda tx, lake: lake.files_system(tx.branch, pinned=True).ls(""), names(None)),
    "whether a table is there": (lambda tx, _: tx.table(ABSENT).exists, names(ABSENT)),
    "a table that is not there": (
        lambda tx, _: swallow(KeyNotFound, tx.table(ABSENT).to_arrow),
        whole(ABSENT),
    ),
    "what a key holds": (lambda tx, lake: lake.at(tx.branch).get(ABSENT), whole(ABSENT)),
    "tables": (lambda tx, _: tx.tables("s"), names(Key("s"))),
    "all tables": (lambda tx, lake: lake.tables(ref=tx.branch), names(None)),
    "namespaces": (lambda tx, lake: lake.at(tx.branch).namespaces(), names(None)),
    "entries": (
        lambda tx, lake: list(lake.at(tx.branch).entries(DELTA)),
        [*names(DELTA), *whole(DELTA)],
    ),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_is_remembered(lake: Lake, look: str) -> None:
    take, expected = LOOKS[look]
    tx = lake.transaction()
    take(tx, lake)
    assert reads(tx, lake) == expected
    steps = len(lake.log(tx.branch))
    take(tx, lake)
    assert len(lake.log(tx.branch)) == steps, "what is known already leaves no commit"
    assert tx.land().commit is None, "who has only read lands nothing"


def older(tx: Transaction, lake: Lake) -> None:
    tx.table(DELTA).snapshot(0).to_arrow()


def refused(tx: Transaction, lake: Lake) -> None:
    swallow(InvalidRequest, lambda: tx.table(DELTA).to_arrow(where="nothing ="))


def outside(tx: Transaction, lake: Lake) -> None:
    assert ids(lake, "s.delta") == [1, 2]
    lake.tables()


def told_of_itself(tx: Transaction, lake: Lake) -> None:
    assert tx.info.branch == tx.branch
    lake.log(tx.branch)
    lake.diff("main", tx.branch)
    lake.changes(tx.branch)
    tx.table(DELTA).log()


def writing(key: str, **how: Any) -> Callable[[Transaction, Lake], Any]:
    return lambda tx, _: tx.write(rows(3), key, **how)


NO_LOOKS: dict[str, Callable[[Transaction, Lake], Any]] = {
    **{f"appends to {one}": writing(f"s.{one}") for one in FORMATS},
    **{f"overwrites {one}": writing(f"s.{one}", mode="overwrite") for one in FORMATS},
    **{f"creates {one}": writing("new", format=one) for one in FORMATS},
    "appends": lambda tx, _: [tx.table(key).append(rows(3)) for key in (DELTA, LANCE)],
    "puts a file": lambda tx, _: tx.table(RAW).files.put("a", b"1"),
    "puts by fsspec": lambda tx, lake: lake.files_system(tx.branch).pipe("s.parquet/a", b"1"),
    "removes by fsspec": lambda tx, lake: lake.files_system(tx.branch).rm("s.parquet", recursive=True),
    "creates": lambda tx, _: tx.create_table("new", data=rows(1)),
    "drops": lambda tx, _: tx.drop(DELTA),
    "an older version": older,
    "what cannot be understood": refused,
    "what is read outside of it": outside,
    "a look at itself": told_of_itself,
}


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("what", NO_LOOKS)
def test_what_a_write_looks_at_is_not_read(lake: Lake, what: str, isolation: str) -> None:
    tx = lake.transaction(isolation=isolation)
    NO_LOOKS[what](tx, lake)
    assert reads(tx, lake) == []
    tx.abort()


LANCE_LOOKS: dict[str, Callable[[Any], Any]] = {
    "describe": lambda one: one.describe_table(ln.DescribeTableRequest(id=[*LANCE])),
    "versions": lambda one: one.list_table_versions(ln.ListTableVersionsRequest(id=[*LANCE])),
    "version": lambda one: one.describe_table_version(ln.DescribeTableVersionRequest(id=[*LANCE], version=1)),
    "tags": lambda one: one.list_table_tags(ln.ListTableTagsRequest(id=[*LANCE])),
    "branches": lambda one: one.list_table_branches(ln.ListTableBranchesRequest(id=[*LANCE])),
}


@pytest.mark.parametrize("look", LANCE_LOOKS)
def test_what_a_client_of_lance_looks_at_counts_in_a_serializable_transaction(lake: Lake, look: str) -> None:
    for isolation, expected in (("snapshot", []), ("serializable", whole(LANCE))):
        tx = lake.transaction(isolation=isolation)
        LANCE_LOOKS[look](tx.lance)
        assert reads(tx, lake) == expected
        tx.abort()


def test_many_parts_become_the_whole(lake: Lake) -> None:
    tx = lake.transaction()
    for number in range(PARTS_MAX + 2):
        tx.table(DELTA).to_arrow(where=f"id = {number}")
    assert reads(tx, lake) == whole(DELTA)
    steps = len(lake.log(tx.branch))
    tx.table(DELTA).to_arrow(where="id = 1000")
    assert len(lake.log(tx.branch)) == steps


def test_what_is_read_in_another_process_is_remembered_too(lake: Lake, place: Path) -> None:
    tx = lake.transaction(isolation="serializable")
    tx.table(DELTA).to_arrow()
    with opened("embedded", place) as other:
        again = other.transaction(id=tx.id, isolation="serializable")
        again.table(RAW).to_arrow()
        assert reads(tx, lake) == whole(DELTA, RAW)
        with pytest.raises(InvalidRequest, match="isolation"):
            other.transaction(id=tx.id)


def test_a_transaction_that_has_ended_remembers_no_more(lake: Lake) -> None:
    tx = lake.transaction()
    pinned = lake.at(tx.branch)
    tx.abort()
    assert pinned.table(DELTA).to_arrow().num_rows == 2
    assert reads(tx, lake) == []


class Interrupted:
    """A lake that does not answer when something is to be remembered, as often as it is told."""

    def __init__(self, lake: Lake) -> None:
        self._catalogue, self.page_max = lake.catalogue, lake.catalogue.page_max
        self.left = 0

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        if isinstance(call, NoteReads) and self.left:
            self.left -= 1
            raise Unavailable("the store is away")
        return self._catalogue.do(call, progress)

    def close(self) -> None:
        """It is another one's."""


def test_nothing_is_shown_that_could_not_be_remembered(lake: Lake) -> None:
    between = Interrupted(lake)
    with Lake(between) as other:
        for key in (DELTA, LANCE, RAW):
            tx = other.transaction()
            between.left = 2
            for _ in range(2):
                with pytest.raises(Unavailable):
                    tx.table(key).to_arrow()
            assert reads(tx, lake) == []
            assert tx.table(key).to_arrow().num_rows == 2
            assert reads(tx, lake) == whole(key)
            tx.abort()

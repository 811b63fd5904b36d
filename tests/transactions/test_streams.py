"""Rows that can be had once: a stream is written whole, or refused; never what is left of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitConflict, InvalidRequest, Unavailable
from penstock.lake.lake import Lake
from penstock.lake.transactions import runner
from penstock.lake.transactions.transaction import Transaction
from tests.transactions.pipelines import FORMATS, ids, opened, rows

SCHEMA = pa.schema([("id", pa.int64())])
ONCE = "already consumed"


class Foreign:
    """A stream of another library, which has nothing more to give once it was read, and does not say so."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._reader.__arrow_c_stream__(requested_schema)


STREAMS: dict[str, Callable[[pa.RecordBatchReader], Any]] = {"of Arrow": lambda one: one, "foreign": Foreign}


def stream(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(runner, "WAIT_MIN_S", 0.001)
    with opened("embedded", tmp_path / "lake") as found:
        yield found


@pytest.mark.parametrize("kind", FORMATS)
def test_a_second_try_does_not_land_what_the_first_one_has_left_of_a_stream(lake: Lake, kind: str) -> None:
    lake.table("t").write(rows(0), format=kind)
    once, tries = rows(1, 2).to_reader(), list[str]()

    def late(tx: Transaction) -> None:
        tries.append(tx.id)
        ids(lake, "t", tx.branch)
        tx.write(once, "t", mode="overwrite")
        if len(tries) == 1:
            lake.table("t").write(rows(7))

    with pytest.raises(InvalidRequest, match=ONCE):
        lake.run(late)
    assert (len(tries), ids(lake, "t")) == (2, [0, 7])


@pytest.mark.parametrize("made", STREAMS)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_stream_is_not_written_to_two_tables(lake: Lake, kind: str, made: str) -> None:
    once = STREAMS[made](rows(1).to_reader())
    with lake.transaction() as tx:
        tx.write(once, "one", format=kind)
        with pytest.raises(InvalidRequest, match=ONCE):
            tx.write(once, "other", format=kind)
    assert ids(lake, "one") == [1]
    assert not lake.table("other").exists


def test_what_can_be_had_again_is_written_again(lake: Lake) -> None:
    lake.table("t").write(rows(1))
    for data in (rows(2), batch(2), lake.table("t").snapshot()):
        for key in ("one", "other"):
            lake.table(key).write(data)
    assert ids(lake, "one") == ids(lake, "other") == [1, 2, 2]


def test_a_stream_that_nobody_has_read_of_can_still_be_written(lake: Lake) -> None:
    lake.table("other").write(pa.table({"name": ["a"]}))
    once = rows(1).to_reader()
    with pytest.raises(InvalidRequest, match="id"):
        lake.table("other").append(once)
    lake.table("t").write(once)
    assert ids(lake, "t") == [1]


@pytest.mark.parametrize(
    "problem", [RuntimeError("the source died"), Unavailable("the source is away")], ids=["its own", "ours"]
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("kind", FORMATS)
def test_what_the_source_of_rows_raises_is_told_and_nothing_is_written(
    lake: Lake, kind: str, mode: str, problem: Exception
) -> None:
    lake.table("t").write(rows(1, 2, 3), format=kind)

    def dying() -> Iterator[pa.RecordBatch]:
        yield batch(4)
        raise problem

    def write(tx: Transaction) -> None:
        tx.write(stream(dying()), "new", format=kind)

    with pytest.raises(type(problem), match="the source"):
        lake.table("t").write(stream(dying()), mode=mode)
    with pytest.raises(type(problem), match="the source"):
        lake.run(write, retries=1)
    assert ids(lake, "t") == [1, 2, 3]
    assert not lake.table("new").exists


@pytest.mark.parametrize("made", STREAMS)
@pytest.mark.parametrize("kind", ["delta", "lance"])
def test_a_stream_for_a_table_that_somebody_else_creates_is_refused(lake: Lake, kind: str, made: str) -> None:
    def raced() -> Iterator[pa.RecordBatch]:
        yield batch(1)
        lake.table("t").write(rows(99), format=kind)
        yield batch(2)

    with pytest.raises(CommitConflict):
        lake.table("t").write(STREAMS[made](stream(raced())), format=kind)
    assert ids(lake, "t") == [99]

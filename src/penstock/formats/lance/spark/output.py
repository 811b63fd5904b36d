"""Output: tasks write the rows of a DataFrame as fragments of a Lance table, and tell which these are.

The fragments are files in the table's folder, and no part of any version. A task's fragments come with its
message, and Spark hands on one message of each partition, whichever attempt it is from: what other attempts
wrote is in nobody's list. No row passes the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.lance.spark import tasks
from penstock.formats.lance.spark.arrow import map_in_arrow
from penstock.formats.lance.spark.schemas import ColumnFit
from penstock.lake.job_files import remove_files
from penstock.model.decoders import get_json_decoder
from penstock.spark import jar
from penstock.spark.row_refusals import raise_refusals
from penstock.spark.schemas import quote_name
from penstock.wire.errors import ERROR_MARK, encode_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.storage.places import Place

DATA: Final = "data/"
"""Where below a table's folder its fragments' files are."""


class FragmentTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job writes, and how."""

    place: Any
    """The table's folder, as storage."""
    dataset: bytes | str
    """The table as it was opened, for the tasks; the address of its folder if it has no version."""
    fit: ColumnFit
    mode: str
    """Of Lance's writer."""
    options: dict[str, Any]
    """For Lance's writer."""


class LanceOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has written."""

    fragments: tuple[Any, ...]
    """Lance's own word for each, in the order of the partitions."""
    rows: int
    files: tuple[str, ...]
    """Below the table's folder."""


class _TaskFragments(msgspec.Struct, frozen=True):
    """What one task wrote."""

    partition: int
    fragments: list[Any]


def write_fragments(df: DataFrame, target: FragmentTarget) -> LanceOutput:
    """Write all rows, and return the fragments that hold them, each row once.

    ``InvalidRequest`` for values that the table cannot have; else whatever Spark raises comes through. What
    finished tasks have written is removed then, as far as it is known. A sweep finds the rest.
    """
    heard = _FilesOfFinishedTasks(df.sparkSession)
    task = tasks.make_write_task(
        target.dataset, target.fit.schema, target.mode, target.options, _encode_refusal(), heard.tell
    )
    rows = df.select(*_make_fitted_columns(target.fit))
    with heard.removed_if_it_fails(target.place), raise_refusals():
        found_rows = map_in_arrow(rows, task, "message string").collect()
        return _collect_output(get_json_decoder(_TaskFragments).decode(row.message) for row in found_rows)


def remove_written_files(place: Place, files: Iterable[str]) -> None:
    """Remove files that no version names, as far as possible. What stays is swept later."""
    with suppress(PenstockError):
        remove_files(place, [*files])


def _collect_output(messages: Iterable[_TaskFragments]) -> LanceOutput:
    by_partition: dict[int, _TaskFragments] = {}
    for message in messages:
        if by_partition.setdefault(message.partition, message) is not message:
            raise InvalidRequest(
                f"Spark reported the output of partition {message.partition} twice; nothing was committed"
            )
    fragments = tuple(
        fragment for _, message in sorted(by_partition.items()) for fragment in message.fragments
    )
    return LanceOutput(
        fragments=fragments,
        rows=sum(fragment["physical_rows"] for fragment in fragments),
        files=tuple(DATA + file["path"] for fragment in fragments for file in fragment["files"]),
    )


def _make_fitted_columns(fit: ColumnFit) -> list[Column]:
    """The columns of the table, from those of the rows."""
    from pyspark.sql import functions as f

    # A name is given to nulls too, for Spark would make up one.
    return [
        f.lit(None).alias(field.name) if name is None else f.col(quote_name(name))
        for name, field in zip(fit.columns, fit.schema, strict=True)
    ]


def _encode_refusal() -> str:
    return ERROR_MARK + encode_error(InvalidRequest("{}"), "").decode()


class _FilesOfFinishedTasks:
    """The files of tasks that finished, whatever became of their job. Spark Connect has no way to tell."""

    def __init__(self, spark: SparkSession) -> None:
        self._told = (
            spark.sparkContext.accumulator([], _make_list_accumulator()) if jar.is_classic(spark) else None
        )
        self.tell = None if self._told is None else _make_progress_reporter(self._told)

    @contextmanager
    def removed_if_it_fails(self, place: Place) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._told is not None:
                remove_written_files(place, [DATA + name for name in self._told.value])
            raise


def _make_progress_reporter(collector: Any) -> Any:
    def report_files(files: list[str]) -> None:
        collector.add(files)

    return report_files


def _make_list_accumulator() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class ListAccumulator(AccumulatorParam[list[str]]):
        def zero(self, value: list[str]) -> list[str]:  # noqa: ARG002 - as Spark calls it
            return []

        def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802
            return [*value1, *value2]

    return ListAccumulator()

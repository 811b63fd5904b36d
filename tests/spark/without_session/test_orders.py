"""What may be asked of a write, told before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.spark.writes.delta_write_options import DeltaWriteOptions, check_options
from penstock.lake.call import CommitDescription
from penstock.lake.write_jobs import SaveMode
from penstock.spark.write_arguments import check_partition_columns, is_dynamic, parse_mode


def order(**chosen: Any) -> DeltaWriteOptions:
    plain: dict[str, Any] = {
        "mode": SaveMode.APPEND,
        "partition_by": None,
        "replace_where": None,
        "is_dynamic": False,
        "merge_schema": False,
        "overwrite_schema": False,
        "properties": {},
        "description": "",
        "options": {},
        "app_id": None,
        "batch": None,
        "said": CommitDescription(),
        "idempotency_key": None,
    }
    return DeltaWriteOptions(**(plain | chosen))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("Append", SaveMode.APPEND),
        ("OVERWRITE", SaveMode.OVERWRITE),
        ("ignore", SaveMode.IGNORE),
        ("error", SaveMode.ERROR),
    ]
    + [(name, SaveMode.ERROR) for name in ("errorifexists", "ErrorIfExists", "default")],
)
def test_modes_have_the_names_that_they_have_in_spark(name: str, mode: SaveMode) -> None:
    assert parse_mode(name) is mode


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("replaceWhere", "replace_where"),
        ("mergeSchema", "merge_schema"),
        ("MERGESCHEMA", "merge_schema"),
        ("overwriteSchema", "overwrite_schema"),
        ("partitionOverwriteMode", "partition_overwrite"),
        ("txnAppId", "app_id"),
    ],
)
def test_options_that_delta_has_are_refused_with_the_argument_to_give(option: str, argument: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{option}' is not an option .* the argument '{argument}'"):
        check_options(order(options={option: "true"}))


@pytest.mark.parametrize(
    "option",
    [
        "penstock.attempt",
        "Penstock.Subdirectory",
        "mapreduce.fileoutputcommitter.algorithm.version",
        "spark.sql.sources.commitProtocolClass",
        "spark.sql.parquet.output.committer.class",
        "path",
    ],
)
def test_options_that_decide_how_a_job_commits_are_refused(option: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the option '{option}' is reserved"):
        check_options(order(options={option: "x"}))


def test_options_of_the_parquet_writer_are_let_through() -> None:
    check_options(
        order(options={"compression": "gzip", "maxRecordsPerFile": "5", "parquet.block.size": "1000"})
    )


def test_only_the_partitions_that_get_rows_are_overwritten_if_that_is_said_in_whatever_letters() -> None:
    assert is_dynamic("DYNAMIC")
    assert not is_dynamic("Static")
    with pytest.raises(InvalidRequest, match="'static' or 'dynamic'"):
        is_dynamic("some")


@pytest.mark.parametrize("ask", [parse_mode, is_dynamic])
def test_what_is_no_text_is_refused_as_any_other_name_that_is_none(ask: Callable[[Any], object]) -> None:
    with pytest.raises(InvalidRequest, match="None"):
        ask(None)


def test_columns_to_partition_by_are_named() -> None:
    with pytest.raises(InvalidRequest, match="'partition_by' must be names of columns"):
        check_partition_columns((3,))  # type: ignore[arg-type]

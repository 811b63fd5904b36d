"""Partition columns of paths: which there are, what is hidden, and what is refused. Without a Spark."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.files.lake.data_files import is_data
from penstock.formats.files.lake.partition_columns import PartitionRules, find_partition_columns


def columns(*paths: str, known: dict[str, str] | None = None, **rules: Any) -> tuple[tuple[str, str], ...]:
    return find_partition_columns(paths, known or {}, PartitionRules(**rules)).fields


@pytest.mark.parametrize(
    "path",
    [
        "_SUCCESS",
        "_metadata",
        "day=1/_x.parquet",
        ".x",
        "day=1/.x.crc",
        "_temporary/0/x",
        ".hidden/x",
        "x._COPYING_",
    ],
)
def test_hidden_files_are_no_data(path: str) -> None:
    assert not is_data(path)


@pytest.mark.parametrize("path", ["x", "day=1/x", "_day=1/x", "x_", "a.b/c.d", "_day=1/_x=1.csv"])
def test_other_files_are_data(path: str) -> None:
    assert is_data(path)


def test_columns_are_those_of_the_innermost_folders_with_values() -> None:
    assert columns("a/b/day=1/hour=2/part/x") == (("day", "integer"), ("hour", "integer"))
    assert columns("day=1/other/hour=2/x") == (("hour", "integer"),)
    assert columns("a/x", "b/c/y") == ()
    assert columns() == ()


def test_names_and_values_are_unescaped() -> None:
    found = find_partition_columns(["the%20day%3D=a%2Fb%25/x"], {}, PartitionRules())
    assert found.fields == (("the day=", "string"),)
    assert found.parse_values("the%20day%3D=a%2Fb%25/x") == ("a/b%",)


def test_a_value_may_have_the_sign_between_name_and_value() -> None:
    assert find_partition_columns(["a=b=c/x"], {}, PartitionRules()).parse_values("a=b=c/x") == ("b=c",)


def test_known_columns_have_their_names_and_types() -> None:
    found = find_partition_columns(
        ["DAY=01/x", "day=__HIVE_DEFAULT_PARTITION__/x"], {"Day": "string"}, PartitionRules()
    )
    assert found.fields == (("Day", "string"),)
    assert [found.parse_values("DAY=01/x"), found.parse_values("day=__HIVE_DEFAULT_PARTITION__/y")] == [
        ("01",),
        (None,),
    ]
    assert columns("DAY=01/x", known={"Day": "string"}, is_case_sensitive=True) == (("DAY", "integer"),)


@pytest.mark.parametrize("day", ["0000-01-01", "-2026-01-01", "0000-02-29", "2000-02-29"])
def test_days_that_python_has_not_are_days_to_spark(day: str) -> None:
    assert columns(f"day={day}/x") == (("day", "date"),)
    assert columns("day=1900-02-29/x") == (("day", "string"),)


def test_without_inference_values_are_texts() -> None:
    assert columns("n=1/d=2026-11-14/x", infers=False) == (("n", "string"), ("d", "string"))


@pytest.mark.parametrize(
    "paths",
    [
        ("day=1/x", "day=1/hour=2/y"),
        ("day=1/x", "y"),
        ("day=1/x", "hour=1/y"),
        ("a/day=1/x", "b/day=1/y"),
        ("day=1/hour=1/x", "hour=1/day=1/y"),
    ],
    ids=["deeper", "beside", "other name", "other base", "other order"],
)
def test_paths_that_do_not_agree_are_refused_by_name(paths: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="partition columns") as refused:
        columns(*paths)
    assert all(f"'{path}'" in refused.value.message for path in paths)


def test_names_that_differ_in_case_are_one_column_unless_the_session_says_otherwise() -> None:
    assert columns("Day=1/x", "day=2/y") == (("Day", "integer"),)
    with pytest.raises(InvalidRequest, match="partition columns"):
        columns("Day=1/x", "day=2/y", is_case_sensitive=True)
    with pytest.raises(InvalidRequest, match="two folders of one partition column"):
        columns("Day=1/day=2/x")


@pytest.mark.parametrize("path", ["day=/x", "=1/x"])
def test_a_folder_without_a_name_or_a_value_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match="without a name, or without a value"):
        columns(path)
